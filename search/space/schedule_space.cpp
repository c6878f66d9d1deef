// SPDX-License-Identifier: Apache-2.0
#include "search/space/schedule_space.hpp"

#include <algorithm>
#include <utility>

#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/servers.hpp"
#include "plan/stage/stage_placement.hpp"
#include "search/space/schedule_choice.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::search {

namespace {

constexpr int kManyWorkers = 64;

std::int64_t count_layers(const models::Network& network) {
  return std::count_if(network.chain.begin(), network.chain.end(), [&](int block) {
    return network.blocks[static_cast<std::size_t>(block)].kind == models::BlockKind::Layer;
  });
}

}  // namespace

ScheduleSpace::ScheduleSpace(const plan::Plan& base, const Constraints& constraints)
    : base_(base),
      constraints_(constraints),
      layers_(count_layers(base.network)),
      chain_cuts_(static_cast<std::size_t>(layers_) + 1),
      encoder_parts_(static_cast<int>(constraints.fixed_number("encoder_parts").value_or(1))) {
  const std::vector<std::string> named = constraints.named_schedules();
  const bool asynchronous = constraints.searches_asynchronous();
  for (const sim::Schedule* schedule : sim::schedule_table()) {
    const bool asked = std::find(named.begin(), named.end(), schedule->name) != named.end();
    const bool offloads = schedule->traits.copies_to_host && constraints.allows_offload();
    const bool tried = schedule->in_search || asked || asynchronous || offloads;
    if (schedule->in_plans && !schedule->traits.packs_sequences &&
        schedule->traits.synchronous != asynchronous && tried &&
        constraints.admits("schedule", schedule->name)) {
      for (const bool ships_weights : shipments(*schedule)) {
        choices_.push_back({std::string(schedule->name), schedule, nullptr,
                            plan::schedule_traits(*schedule),
                            plan::module_cut(*schedule, base.network), asked, ships_weights});
      }
    }
  }
  for (const auto& document : constraints.documents()) {
    if (sim::traits_of(*document).synchronous != asynchronous &&
        constraints.admits("schedule", document->name)) {
      plan::Plan plan;
      plan.schedule = document->name;
      plan.schedule_document = document;
      choices_.push_back({document->name, nullptr, document, plan::schedule_traits(plan),
                          plan::ModuleCut::OneChain, true, base.execution.ships_weights});
    }
  }
  for (std::size_t index = 0; index < choices_.size(); ++index) {
    choices_[index].index = static_cast<int>(index);
  }
  shares_ends_ = std::any_of(choices_.begin(), choices_.end(), [](const ScheduleChoice& choice) {
    return choice.traits.shares_output_layer;
  });
}

// As the plans say, or what is faster of both; latent attention has several products to ship.
std::vector<bool> ScheduleSpace::shipments(const sim::Schedule& schedule) const {
  if (schedule.traits.spreads_attention && !constraints_.is_fixed("ships_weights") &&
      base_.network.spec.mla.kv_lora_rank == 0) {
    return {false, true};
  }
  return {base_.execution.ships_weights};
}

std::optional<sim::ScheduleParams> ScheduleSpace::told(const ScheduleChoice& choice,
                                                       sim::ScheduleParams params) const {
  if (choice.cut == plan::ModuleCut::FrozenApart || choice.cut == plan::ModuleCut::Cascaded) {
    params.slices = plan::frozen_portions(base_.network);
  } else if (choice.cut == plan::ModuleCut::ByModules) {
    plan::Plan plan;
    plan.network = base_.network;
    plan.pp = params.stages;
    plan.stage_blocks = stages(params.stages, params.chunks, choice, false);
    params.warm_up = plan::encoder_segments(plan);
    params.slices = encoder_parts_;
    if (plan.stage_blocks.empty()) {
      return std::nullopt;
    }
  } else if (choice.traits.uses_servers) {
    plan::Plan plan;
    plan.schedule = choice.name;
    plan.pp = params.stages;
    plan.dp = plan.cluster.num_nodes = kManyWorkers;  // lists are no longer for more
    if (!plan::servers_problem(plan).empty()) {
      return std::nullopt;
    }
    plan::tell_servers(plan, params);
  } else if (choice.traits.fills_frozen || choice.traits.by_modules) {
    return std::nullopt;  // the network has no such part
  }
  return params;
}

namespace {

// Orders with the output layer over all devices cost more to write than all others: longer ones are
// tried when they are asked for by name.
constexpr std::int64_t kMaxSharedOutputPasses = 32'768;  // virtual stages x micro-batches

bool is_long(const ScheduleChoice& choice, const sim::ScheduleParams& params) {
  return !choice.named && std::int64_t{params.stages} * params.chunks * params.micro_batches >
                              kMaxSharedOutputPasses;
}

// Slices fill pipelines of few micro-batches; with many they only make the lists long.
constexpr std::int64_t kMaxSlicedPasses = 16'384;  // virtual stages x micro-batches x slices
constexpr std::int64_t kFewestTokens = 256;  // of a slice: below, kernels no longer get shorter

// Frozen layers run for the iteration to come, modules in an order of their own: also in one stage.
bool fills_elsewhere(const plan::ScheduleTraits& traits) {
  return traits.fills_frozen || traits.by_modules;
}

// Without a pipeline every schedule of whole backwards is the same loop.
bool is_plain_loop(const plan::ScheduleTraits& traits) {
  return !traits.splits_backward && !traits.two_directions && !traits.shares_output_layer &&
         !traits.uses_servers && !traits.joins_passes && !traits.recomputes &&
         !traits.lists_updates && !fills_elsewhere(traits);
}

// Workers that are no pipelines have no other form.
bool has_single_stages_only(const plan::ScheduleTraits& traits) {
  return traits.uses_servers && !traits.pushes_waves;
}

}  // namespace

bool ScheduleSpace::is_usable(const ScheduleChoice& choice, const sim::ScheduleParams& params,
                              bool routes) const {
  const int virtual_stages = params.stages * params.chunks;
  if (base_.network.spec.cascade.layers > 0 &&
      !plan::takes_cascade(choice.traits, virtual_stages)) {
    return false;
  }
  if (choice.document != nullptr) {
    return document_runs(choice, params, base_.network);
  }
  if (params.stages == 1 && constraints_.leaves_out_single_stages() &&
      !has_single_stages_only(choice.traits)) {
    return false;
  }
  const bool sliced = params.slices > 1;
  if (sliced != choice.traits.uses_slices) {
    return false;  // without slices those that have some are gpipe and 1f1b again
  }
  if (sliced) {
    const bool asked = choice.named || constraints_.is_fixed("slices");
    const std::int64_t passes =
        std::int64_t{params.stages} * params.chunks * params.micro_batches * params.slices;
    return (asked || passes <= kMaxSlicedPasses) &&
           (params.chunks == 1 || choice.traits.uses_chunks) &&
           choice.registered->check(params).empty();
  }
  const models::NetworkSpec& spec = base_.network.spec;
  if (choice.traits.spreads_attention &&
      (std::int64_t{params.stages} * params.chunks != spec.layers || spec.encoder.layers > 0 ||
       spec.adapters.rank > 0 || spec.encoder_layers > 0)) {
    return false;
  }
  if (choice.traits.runs_arcs && (spec.encoder.layers > 0 || spec.encoder_layers > 0)) {
    return false;
  }
  const int most_chunks = choice.registered->most_chunks_tried;
  if (most_chunks > 0 && params.chunks > most_chunks && !constraints_.is_fixed("chunks")) {
    return false;
  }
  if (choice.traits.shares_output_layer && (params.stages == 1 || is_long(choice, params))) {
    return false;  // a stage alone has nobody to share with
  }
  if (choice.registered->for_experts && !routes && !choice.named) {
    return false;
  }
  if (choice.traits.copies_to_host && (base_.cluster.node.host_memory.value() == 0 ||
                                       base_.cluster.node.host_link_per_gpu.value() <= 0)) {
    return false;
  }
  const std::optional<sim::ScheduleParams> own = told(choice, params);
  const bool fits = params.chunks > 1
                        ? choice.traits.uses_chunks
                        : !choice.traits.uses_chunks || choice.registered->own_with_one_chunk;
  return own && fits && choice.registered->check(*own).empty();
}

// The same for any number of micro-batches.
const plan::StagePlacement& ScheduleSpace::placement_of(int choice,
                                                        const sim::ScheduleParams& params) const {
  const std::tuple<int, int, int> key = {choice, params.stages, params.chunks};
  {
    const std::lock_guard<std::mutex> lock(placements_mutex_);
    if (const auto known = placements_.find(key); known != placements_.end()) {
      return known->second;
    }
  }
  plan::StagePlacement made = make_placement(choices_[static_cast<std::size_t>(choice)], params);
  const std::lock_guard<std::mutex> lock(placements_mutex_);
  return placements_.try_emplace(key, std::move(made)).first->second;
}

plan::StagePlacement ScheduleSpace::make_placement(const ScheduleChoice& schedule,
                                                   const sim::ScheduleParams& params) const {
  plan::Plan plan = plan_of(schedule, params);
  if (schedule.cut != plan::ModuleCut::OneChain) {
    plan.network = base_.network;
    plan.encoder_parts = parts_of(schedule);
    plan.stage_blocks = stages(params.stages, params.chunks, schedule, false);
  }
  plan::StagePlacement placement =
      plan::placement_of(schedule.traits, params.chunks, plan::schedule_devices(plan));
  placement.undecided = schedule.registered != nullptr &&
                        plan::lacks_stage_bounds(*schedule.registered, params.chunks);
  placement.flushes = placement.flushes && !base_.execution.post_validation;
  return placement;
}

// Powers of two; other numbers when they are asked for. Without a pipeline slices only save memory,
// so that they are not tried.
std::vector<int> ScheduleSpace::slice_counts(int pp, int slice_unit) const {
  std::vector<int> counts;
  if (constraints_.admits("slices", 1)) {
    counts.push_back(1);
  }
  const auto add = [&](std::int64_t count) {
    const bool is_new = std::find(counts.begin(), counts.end(), count) == counts.end();
    if (slice_unit > 0 && is_new && base_.sequence % (count * slice_unit) == 0 &&
        constraints_.admits("slices", count)) {
      counts.push_back(static_cast<int>(count));
    }
  };
  for (const ScheduleChoice& choice : choices_) {
    if (const auto listed = choice.document ? sim::listed_sizes(*choice.document) : std::nullopt) {
      add(listed->slices);
    }
  }
  if (const auto fixed = constraints_.fixed_number("slices")) {
    add(*fixed);
  } else if (pp > 1) {
    for (int count = 2; count <= kMostSlices && base_.sequence / count >= kFewestTokens;
         count *= 2) {
      add(count);
    }
  }
  return counts;
}

const std::vector<Family>& ScheduleSpace::families(int pp, int micro_batches, int slice_unit,
                                                   bool routes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [slot, is_new] = families_.try_emplace({pp, micro_batches, slice_unit, routes});
  if (is_new) {
    slot->second = make_families(pp, micro_batches, slice_unit, routes);
  }
  return slot->second;
}

std::vector<Family> ScheduleSpace::make_families(int pp, int micro_batches, int slice_unit,
                                                 bool routes) const {
  std::vector<Family> families;
  for (const int slices : slice_counts(pp, slice_unit)) {
    sim::ScheduleParams params{pp, micro_batches, 1, 0};
    params.slices = slices;
    params.cap = cap_of(pp);
    add_families(params, routes, families);
  }
  return families;
}

void ScheduleSpace::add_families(sim::ScheduleParams params, bool routes,
                                 std::vector<Family>& families) const {
  const int pp = params.stages;
  std::int64_t counted =
      families.empty()
          ? 0
          : families.back().first + static_cast<std::int64_t>(families.back().schedules.size());
  for (const int chunks : chunk_counts(pp)) {
    params.chunks = chunks;
    std::vector<int> usable;
    for (std::size_t index = 0; index < choices_.size(); ++index) {
      if (is_usable(choices_[index], params, routes)) {
        usable.push_back(static_cast<int>(index));
      }
    }
    if (pp == 1 && !usable.empty()) {  // one of them is enough
      const auto loop = std::find_if(usable.begin(), usable.end(), [&](int choice) {
        return is_plain_loop(choices_[static_cast<std::size_t>(choice)].traits);
      });
      const int plain = loop == usable.end() ? usable.front() : *loop;
      std::erase_if(usable, [&](int choice) {  // servers update, joined passes overlap otherwise
        const plan::ScheduleTraits& traits = choices_[static_cast<std::size_t>(choice)].traits;
        return choice != plain && !traits.uses_servers && !traits.joins_passes &&
               !fills_elsewhere(traits);
      });
    }
    std::vector<Family> of_cut;
    for (const int choice : usable) {
      const plan::StagePlacement& placement = placement_of(choice, params);
      const auto same = std::find_if(of_cut.begin(), of_cut.end(), [&](const Family& family) {
        return family.placement == placement;
      });
      if (same != of_cut.end()) {
        same->schedules.push_back(choice);
      } else {
        const ScheduleChoice& first = choices_[static_cast<std::size_t>(choice)];
        of_cut.push_back({chunks, false, params.slices, parts_of(first), placement, {choice}, 0});
      }
    }
    for (const bool balanced : {false, true}) {
      for (Family family : of_cut) {
        const auto first = static_cast<std::size_t>(family.schedules.front());
        const std::vector<bool> own = cuts(params, choices_[first]);
        if (std::find(own.begin(), own.end(), balanced) == own.end()) {
          continue;
        }
        family.balanced = balanced;
        family.first = counted;
        counted += static_cast<std::int64_t>(family.schedules.size());
        families.push_back(std::move(family));
      }
    }
  }
}

}  // namespace orrery::search
