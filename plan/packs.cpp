// SPDX-License-Identifier: Apache-2.0
#include "plan/packs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"
#include "plan/plan_schedule.hpp"
#include "plan/stage_memory.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::plan {

namespace {

std::int64_t tokens_of(const Pack& pack) {
  return std::accumulate(pack.sequences.begin(), pack.sequences.end(), std::int64_t{0});
}

bool meets_every_micro_batch(const Plan& plan) {
  return std::any_of(plan.blocks.begin(), plan.blocks.end(),
                     [](const BlockRun& run) { return run.layout.zero_stage >= 2; });
}

// What all ranks do while they run such packs.
struct PackRun {
  Simulation step;  // of one micro-batch and its end
  SimTime forward;
  SimTime backward;
  Flops recomputed;  // by one group
  Seconds time() const { return to_seconds(forward + backward); }
};

using PackKey = std::pair<int, std::vector<std::int64_t>>;

PackRun run_pack(const Plan& plan, const Pack& pack, const SimulateOptions& options) {
  const Plan alone = plan_of_pack(plan, pack);
  SimulateOptions with_passes = options;
  with_passes.record_spans = true;
  PackRun run;
  run.step = simulate(alone, with_passes);
  run.forward = run.step.passes.forward.front();
  run.backward = run.step.passes.backward.front();
  const FlopsPerSecond peak = plan.cluster.gpu.peak_of(plan.precision) * plan.num_gpus();
  run.recomputed = (peak * run.step.iteration_time) *
                   ((run.step.hfu_fraction - run.step.mfu_fraction) / alone.dp);
  return run;
}

class PackedStep {
 public:
  PackedStep(const Plan& plan, const SimulateOptions& options)
      : plan_(plan), options_(options), busy_(static_cast<std::size_t>(plan.dp)) {}

  Simulation run() {
    for (const std::vector<Pack>& micro_batch : plan_.packs) {
      add(micro_batch);
    }
    fill_pipeline();
    fill_report();
    return std::move(result_);
  }

 private:
  const PackRun& run_of(const Pack& pack) {
    const auto [slot, is_new] = known_.try_emplace(PackKey{pack.group, pack.sequences});
    if (is_new) {
      slot->second = run_pack(plan_, pack, options_);
    }
    return slot->second;
  }

  // The packs of a micro-batch on aligned groups of ranks.
  void add(const std::vector<Pack>& micro_batch) {
    std::vector<const Pack*> packs;
    std::vector<int> sizes;
    for (const Pack& pack : micro_batch) {
      packs.push_back(&pack);
      sizes.push_back(pack.group);
    }
    std::stable_sort(packs.begin(), packs.end(),
                     [](const Pack* a, const Pack* b) { return a->group > b->group; });
    const std::vector<sim::DeviceBlock> places = sim::soonest_blocks(sizes, plan_.dp);
    const PackRun* slowest = nullptr;
    for (std::size_t k = 0; k < packs.size(); ++k) {
      const PackRun& run = run_of(*packs[k]);
      slowest = slowest == nullptr || run.time() > slowest->time() ? &run : slowest;
      for (int rank = places[k].first; rank < places[k].first + places[k].size; ++rank) {
        busy_[static_cast<std::size_t>(rank)] += run.time();
      }
      recomputed_ += run.recomputed;
      if (result_.memory.empty() ||
          run.step.memory.front().total() > result_.memory.front().total()) {
        result_.memory = run.step.memory;
        result_.host_per_node = run.step.host_per_node;
        result_.disk_per_node = run.step.disk_per_node;
      }
    }
    slowest_.push_back(slowest);
  }

  Seconds time_of_passes() const {
    return meets_every_micro_batch(plan_)
               ? std::accumulate(slowest_.begin(), slowest_.end(), Seconds(),
                                 [](Seconds sum, const PackRun* run) { return sum + run->time(); })
               : *std::max_element(busy_.begin(), busy_.end());
  }

  // The slowest packs, one after the other.
  void fill_pipeline() {
    const auto units = static_cast<int>(slowest_.size());
    sim::PipelineOrder order = sim::bare_order(1, 1);
    sim::add_chain(order, {0}, {.units = units});
    sim::PipelineCosts costs;
    for (int unit = 0; unit < units; ++unit) {
      sim::add_pass(order, sim::PassKind::Forward, 0, unit);
      sim::add_pass(order, sim::PassKind::Backward, 0, unit);
      costs.unit_forward.push_back(slowest_[static_cast<std::size_t>(unit)]->forward);
      costs.unit_backward.push_back(slowest_[static_cast<std::size_t>(unit)]->backward);
    }
    costs.forward = {costs.unit_forward.front()};
    costs.backward = {costs.unit_backward.front()};
    result_.pipeline =
        sim::evaluate_pipeline(order, costs, {.record_spans = options_.record_spans});
    if (options_.record_spans) {
      result_.order = std::move(order);
      result_.passes = std::move(costs);
    }
  }

  void fill_report() {
    const PackRun& last = *slowest_.back();
    const Seconds end = last.step.iteration_time - last.time();
    const Seconds passes = time_of_passes();
    result_.iteration_time = passes + end;
    const double draws = result_.iteration_time / last.step.iteration_time;
    result_.interval_low = last.step.interval_low * draws;
    result_.interval_high = last.step.interval_high * draws;
    double tokens = 0;
    Flops model;
    for (const std::vector<Pack>& micro_batch : plan_.packs) {
      for (const Pack& pack : micro_batch) {
        for (const std::int64_t sequence : pack.sequences) {
          tokens += static_cast<double>(sequence);
          model += models::model_flops(plan_.network, {1, sequence});
        }
      }
    }
    const double gpus = plan_.num_gpus();
    result_.tokens_per_second_per_gpu = tokens / result_.iteration_time.value() / gpus;
    const Flops possible =
        plan_.cluster.gpu.peak_of(plan_.precision) * gpus * result_.iteration_time;
    result_.mfu_fraction = model / possible;
    result_.hfu_fraction = (model + recomputed_) / possible;
    result_.bubble_fraction =
        std::max(0.0, 1.0 - *std::min_element(busy_.begin(), busy_.end()) / passes);
    fill_breakdown(passes);
    const MemoryVerdict verdict = memory_verdict(plan_, result_.memory);
    if (!verdict.fits) {
      result_.does_not_fit = verdict.text;
    }
  }

  // Of ranks that always have the slowest pack.
  void fill_breakdown(Seconds passes) {
    TimeBreakdown& sum = result_.breakdown;
    Seconds all;
    for (const PackRun* run : slowest_) {
      const TimeBreakdown& own = run->step.breakdown;
      sum.compute += own.compute;
      sum.recompute += own.recompute;
      for (const auto& [axis, time] : own.exposed_communication) {
        sum.exposed_communication[axis] += time;
      }
      all += run->time();
    }
    const double share = passes / all;  // less where ranks do not meet
    sum.compute = sum.compute * share;
    sum.recompute = sum.recompute * share;
    for (auto& [axis, time] : sum.exposed_communication) {
      time = time * share;
    }
    sum.optimizer = slowest_.back()->step.breakdown.optimizer;
  }

  const Plan& plan_;
  const SimulateOptions& options_;
  std::map<PackKey, PackRun> known_;
  std::vector<const PackRun*> slowest_;  // by micro-batch
  std::vector<Seconds> busy_;            // by data-parallel rank
  Flops recomputed_;
  Simulation result_;
};

std::string problem_of_shape(const Plan& plan) {
  const models::NetworkSpec& spec = plan.network.spec;
  if (plan.pp > 1) {
    return "there is no pipeline: set pp to 1";
  }
  if (plan.micro_batch > 1) {
    return "packs say which sequences run together: set micro_batch to 1";
  }
  if (spec.encoder.layers > 0 || spec.encoder_layers > 0) {
    return fmt::format(
        "{} has an encoder, and packs hold sequences of one chain of layers: set "
        "the schedule to \"1f1b\"",
        spec.name);
  }
  if (plan.blocks.size() > 1) {
    return "groups cut the sequences of all blocks alike: give all blocks the same layout";
  }
  const BlockPlan& layout = plan.blocks.front().layout;
  if (layout.cp > 1 || layout.ep > 1 || layout.shard_degree > 0) {
    return "the groups of packs are the context parallelism: set cp and ep to 1 and shard_degree "
           "to "
           "0";
  }
  if (layout.tensor_parallel != TensorMesh::OneD) {
    return "groups trade sequence for heads: set tensor_parallel to 1d";
  }
  return plan.execution.fused_attention
             ? ""
             : "packed sequences share one attention kernel: set fused_attention to true";
}

std::string problem_of_group(const Plan& plan, const Pack& pack) {
  const int tp = plan.blocks.front().layout.tp;
  const std::int64_t heads = plan.network.spec.heads;
  if (plan.dp % pack.group != 0) {
    return fmt::format("a group of {} ranks does not divide dp = {}", pack.group, plan.dp);
  }
  if (heads % (tp * pack.group) != 0) {
    return fmt::format("a group of {} ranks with tp = {} does not divide {} heads", pack.group, tp,
                       heads);
  }
  const std::int64_t longest = *std::max_element(pack.sequences.begin(), pack.sequences.end());
  return longest <= plan.sequence
             ? ""
             : fmt::format("a sequence of {} tokens: set sequence to {}", longest, longest);
}

}  // namespace

std::vector<std::vector<Pack>> read_packs(const JsonReader& value) {
  std::vector<std::vector<Pack>> packs;
  for (const JsonReader& micro_batch : value.array(limits::kMaxBatch)) {
    packs.emplace_back();
    for (const JsonReader& entry : micro_batch.array(limits::kMaxDevices)) {
      ObjectReader object = entry.object();
      Pack pack;
      pack.group = static_cast<int>(object.required("group").integer(1, limits::kMaxDevices));
      const JsonReader sequences = object.required("sequences");
      for (const JsonReader& tokens : sequences.array(limits::kMaxBatch)) {
        pack.sequences.push_back(tokens.integer(1, limits::kMaxSequence));
      }
      if (pack.sequences.empty() || tokens_of(pack) > limits::kMaxSequence) {
        sequences.fail(fmt::format("a pack has between 1 and {} tokens", limits::kMaxSequence));
      }
      object.finish();
      packs.back().push_back(std::move(pack));
    }
    if (packs.back().empty()) {
      micro_batch.fail("a micro-batch without packs");
    }
  }
  return packs;
}

Json packs_json(const std::vector<std::vector<Pack>>& packs) {
  Json all = Json::array();
  for (const std::vector<Pack>& micro_batch : packs) {
    Json side_by_side = Json::array();
    for (const Pack& pack : micro_batch) {
      Json sequences = Json::array();
      for (const std::int64_t tokens : pack.sequences) {
        sequences.push(tokens);
      }
      side_by_side.push(Json::Object{{"group", pack.group}, {"sequences", std::move(sequences)}});
    }
    all.push(std::move(side_by_side));
  }
  return all;
}

std::string packs_problem(const Plan& plan) {
  const bool runs_packs = schedule_traits(plan).packs_sequences;
  if (!runs_packs) {
    return plan.packs.empty() ? ""
                              : fmt::format("packs belong to the schedule {}: leave them out",
                                            schedules_with(&sim::Schedule::packs_sequences));
  }
  if (plan.network.chain.empty()) {
    return "";
  }
  const std::string shape = problem_of_shape(plan);
  if (!shape.empty()) {
    return shape;
  }
  if (plan.packs.empty()) {
    return "which sequences run on which groups is missing: state \"packs\" in \"parallelism\", or "
           "let `orrery plan` find them (--lengths)";
  }
  std::int64_t sequences = 0;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    int ranks = 0;
    for (const Pack& pack : micro_batch) {
      const std::string problem = problem_of_group(plan, pack);
      if (!problem.empty()) {
        return problem;
      }
      ranks += pack.group;
      sequences += static_cast<std::int64_t>(pack.sequences.size());
    }
    if (ranks > plan.dp) {
      return fmt::format("the groups of a micro-batch have {} ranks, more than dp = {}", ranks,
                         plan.dp);
    }
  }
  return sequences == plan.batch
             ? ""
             : fmt::format("the packs hold {} sequences: set batch to {}", sequences, sequences);
}

std::string group_sizes_text(const Plan& plan) {
  std::set<int, std::greater<>> sizes;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      sizes.insert(pack.group);
    }
  }
  std::string text;
  for (auto size = sizes.begin(); size != sizes.end(); ++size) {
    const bool last = std::next(size) == sizes.end();
    text += text.empty() ? "" : last ? " and " : ", ";
    text += fmt::format("{}", *size);
  }
  return text;
}

void tell_packs(const Plan& plan, sim::ScheduleParams& params) {
  params.stages = plan.dp;
  params.slices_of.clear();
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      params.slices_of.push_back(pack.group);
    }
  }
  params.micro_batches = std::max<int>(1, static_cast<int>(params.slices_of.size()));
}

Plan plan_of_pack(const Plan& plan, const Pack& pack) {
  Plan alone = plan;
  alone.schedule = "1f1b";
  alone.packs = {{pack}};
  alone.dp = plan.dp / pack.group;
  alone.batch = alone.dp;
  for (BlockRun& run : alone.blocks) {
    run.layout.cp = pack.group;
    run.layout.context = ContextParallel::Ulysses;
  }
  const BlockPlan& layout = alone.blocks.front().layout;
  const std::int64_t parts = std::int64_t{pack.group} * (layout.sequence_parallel ? layout.tp : 1);
  alone.sequence = ceil_div(tokens_of(pack), parts) * parts;
  return alone;
}

const Pack& fullest_pack(const Plan& plan) {
  const Pack* fullest = nullptr;
  const auto load = [](const Pack& pack) {
    return static_cast<double>(tokens_of(pack)) / pack.group;
  };
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      fullest = fullest == nullptr || load(pack) > load(*fullest) ? &pack : fullest;
    }
  }
  return *fullest;
}

Simulation simulate_packs(const Plan& plan, const SimulateOptions& options) {
  return PackedStep(plan, options).run();
}

}  // namespace orrery::plan
