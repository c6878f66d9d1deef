// SPDX-License-Identifier: Apache-2.0
#include "plan/modules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/stages.hpp"

namespace orrery::plan {

namespace {

constexpr std::int64_t kMostPortions = 64;  // of a micro-batch

const models::Block& block_at(const models::Network& network, int position) {
  const auto slot = static_cast<std::size_t>(network.chain[static_cast<std::size_t>(position)]);
  return network.blocks[slot];
}

// A run of the chain as a network of its own.
models::Network run_of(const models::Network& network, int first, int count) {
  models::Network part;
  part.spec = network.spec;
  part.blocks = network.blocks;
  part.chain.assign(network.chain.begin() + first, network.chain.begin() + first + count);
  return part;
}

// `count` positions from `first` on into stages; `work` of the whole chain, or none.
std::vector<int> cut_run(const models::Network& network, int first, int count, int stages,
                         std::span<const std::int64_t> work) {
  const models::Network run = run_of(network, first, count);
  if (stages > layers_of(run)) {
    return {};
  }
  return work.empty() ? even_stages(run, stages)
                      : balanced_stages(work.subspan(static_cast<std::size_t>(first),
                                                     static_cast<std::size_t>(count)),
                                        stages);
}

double forward_work(const models::Network& network, std::int64_t sequence) {
  double work = 0;
  for (int position = 0; position < static_cast<int>(network.chain.size()); ++position) {
    work += models::forward_flops(block_at(network, position), {1, sequence}, true).value();
  }
  return work;
}

// Segments in proportion to the work, at least one for each.
int segments_for_encoder(const models::Network& encoder, const models::Network& decoder,
                         std::int64_t sequence, int pp, int chunks) {
  const double of_encoder = forward_work(encoder, sequence);
  const double share = of_encoder / (of_encoder + forward_work(decoder, sequence));
  const int wanted = static_cast<int>(std::lround(share * chunks));
  return std::clamp(wanted, 1, std::max(1, std::min(chunks - 1, layers_of(encoder) / pp)));
}

}  // namespace

int layers_of(const models::Network& network) {
  int layers = 0;
  for (int position = 0; position < static_cast<int>(network.chain.size()); ++position) {
    layers += block_at(network, position).kind == models::BlockKind::Layer ? 1 : 0;
  }
  return layers;
}

int encoder_positions(const models::Network& network) {
  int count = 0;
  while (count < static_cast<int>(network.chain.size()) && block_at(network, count).tokens > 0) {
    ++count;
  }
  return count;
}

bool encoder_is_frozen(const models::Network& network) {
  return encoder_positions(network) > 0 && block_at(network, 0).frozen;
}

int frozen_positions(const models::Network& network) {
  int count = 0;
  while (count < static_cast<int>(network.chain.size()) && block_at(network, count).frozen) {
    ++count;
  }
  return count;
}

int second_backbone(const models::Network& network) {
  const auto length = static_cast<int>(network.chain.size());
  const std::int64_t layers = network.spec.cascade.layers;
  return layers > 0 ? length - static_cast<int>(layers + 2) : length;
}

int frozen_portions(const models::Network& network) {
  return static_cast<int>(std::clamp<std::int64_t>(network.spec.encoder.layers, 2, kMostPortions));
}

double runs_of_stage(const Plan& plan, std::size_t stage) {
  const ScheduleTraits traits = schedule_traits(plan);
  if (traits.fills_frozen && stage >= plan.stage_blocks.size()) {
    return 1.0 / plan.pp;
  }
  const bool of_encoder =
      traits.by_modules && static_cast<int>(stage) < encoder_segments(plan) * plan.pp;
  return of_encoder ? plan.encoder_parts : 1.0;
}

double runs_of_block(const Plan& plan, int block) {
  const bool of_encoder = plan.network.blocks[static_cast<std::size_t>(block)].tokens > 0;
  return of_encoder ? plan.encoder_parts : 1.0;
}

int encoder_segments(const Plan& plan) {
  const int positions = encoder_positions(plan.network);
  int covered = 0;
  int stages = 0;
  while (stages < static_cast<int>(plan.stage_blocks.size()) && covered < positions) {
    covered += plan.stage_blocks[static_cast<std::size_t>(stages++)];
  }
  return covered == positions && stages % plan.pp == 0 ? stages / plan.pp : 0;
}

std::string encoder_parts_problem(const Plan& plan) {
  const std::int64_t items = plan.micro_batch * plan.network.spec.encoder.items;
  return items % plan.encoder_parts == 0
             ? ""
             : fmt::format(
                   "encoder_parts = {} do not divide the {} items of a micro-batch: set "
                   "encoder_parts to {}",
                   plan.encoder_parts, items, std::gcd(items, std::int64_t{plan.encoder_parts}));
}

bool takes_cascade(const ScheduleTraits& traits, int virtual_stages) {
  return traits.cascades || (virtual_stages == 1 && traits.synchronous && !traits.by_modules &&
                             !traits.shares_output_layer && !traits.packs_sequences);
}

namespace {

// Of plans with a cascade, or whose schedule needs one.
std::string cascade_problem(const Plan& plan, const ScheduleTraits& traits) {
  const bool has = plan.network.spec.cascade.layers > 0;
  if (!traits.cascades) {
    return has && !takes_cascade(traits, plan.pp * plan.chunks)
               ? fmt::format(
                     "{} has two trained backbones, which are not one chain of stages: set the "
                     "schedule to {}{}, or run it as \"1f1b\" with pp = 1",
                     plan.network.spec.name, schedules_with(&sim::ScheduleTraits::cascades),
                     plan.chunks == 2 ? "" : " with 2 chunks")
               : "";
  }
  const auto stages = std::min(static_cast<std::size_t>(plan.pp), plan.stage_blocks.size());
  const auto end = plan.stage_blocks.begin() + static_cast<std::ptrdiff_t>(stages);
  const int first = std::accumulate(plan.stage_blocks.begin(), end, 0);
  return plan.chunks != 2 || first == second_backbone(plan.network)
             ? ""
             : fmt::format(
                   "each backbone has a stage on every device: let the first {} `stages` sum to "
                   "the {} blocks of the encoder and the first backbone, not to {}",
                   plan.pp, second_backbone(plan.network), first);
}

}  // namespace

std::string modules_problem(const Plan& plan) {
  const ScheduleTraits traits = schedule_traits(plan);
  const int positions = encoder_positions(plan.network);
  if (plan.encoder_parts > 1 && !traits.by_modules) {
    return fmt::format("encoder_parts = {} belong to the schedule {}: set encoder_parts to 1",
                       plan.encoder_parts, schedules_with(&sim::ScheduleTraits::by_modules));
  }
  if (traits.fills_frozen && !encoder_is_frozen(plan.network)) {
    return positions > 0 ? fmt::format(
                               "the encoder of {} is trained, and frozen layers alone fill "
                               "idle times: set encoder.frozen to true",
                               plan.network.spec.name)
                         : fmt::format(
                               "{} has no frozen part: give the network an \"encoder\" "
                               "with \"frozen\": true{}",
                               plan.network.spec.name,
                               traits.cascades && plan.network.spec.cascade.layers == 0
                                   ? ", and a \"cascade\""
                                   : "");
  }
  if (traits.cascades && plan.network.spec.cascade.layers == 0) {
    return fmt::format("{} has one trained backbone: give the network a \"cascade\"",
                       plan.network.spec.name);
  }
  if (traits.fills_frozen && !plan.stage_blocks.empty() && plan.stage_blocks.front() <= positions) {
    return fmt::format(
        "the first stage has {} blocks, but the {} of the frozen encoder count to "
        "it: give it at least {}",
        plan.stage_blocks.front(), positions, positions + 1);
  }
  if (std::string problem = cascade_problem(plan, traits); !problem.empty() || !traits.by_modules) {
    return problem;
  }
  if (positions == 0) {
    return fmt::format("{} has one module: give the network an \"encoder\"",
                       plan.network.spec.name);
  }
  if (std::string problem = encoder_parts_problem(plan); !problem.empty()) {
    return problem;
  }
  return encoder_segments(plan) > 0
             ? ""
             : fmt::format(
                   "every module has stages of its own on all {} devices: let the first "
                   "`stages`, a multiple of {}, sum to the {} blocks of the encoder, with "
                   "chunks = 2 or more",
                   plan.pp, plan.pp, positions);
}

namespace {

ModuleCut cut_for(const ScheduleTraits& traits, const models::Network& network) {
  const bool apart = traits.fills_frozen && encoder_is_frozen(network);
  return apart && traits.cascades                              ? ModuleCut::Cascaded
         : apart                                               ? ModuleCut::FrozenApart
         : traits.by_modules && encoder_positions(network) > 0 ? ModuleCut::ByModules
                                                               : ModuleCut::OneChain;
}

}  // namespace

ModuleCut module_cut(const Plan& plan) { return cut_for(schedule_traits(plan), plan.network); }

ModuleCut module_cut(const sim::Schedule& schedule, const models::Network& network) {
  return cut_for(schedule_traits(schedule), network);
}

namespace {

// As many stages of each; empty where one has too few layers.
std::vector<int> cut_backbones(const models::Network& network, int pp,
                               std::span<const std::int64_t> work) {
  const int begin = encoder_positions(network);
  const int second = second_backbone(network);
  const auto length = static_cast<int>(network.chain.size());
  std::vector<int> stages = cut_run(network, begin, second - begin, pp, work);
  const std::vector<int> others = cut_run(network, second, length - second, pp, work);
  if (stages.empty() || others.empty()) {
    return {};
  }
  stages.front() += begin;
  stages.insert(stages.end(), others.begin(), others.end());
  return stages;
}

}  // namespace

std::vector<int> cut_stages(const models::Network& network, std::int64_t sequence, int pp,
                            int chunks, ModuleCut cut, std::span<const std::int64_t> work) {
  const auto length = static_cast<int>(network.chain.size());
  if (cut == ModuleCut::OneChain) {
    return cut_run(network, 0, length, pp * chunks, work);
  }
  const int positions = encoder_positions(network);
  if (cut == ModuleCut::Cascaded) {
    return chunks == 2 ? cut_backbones(network, pp, work) : std::vector<int>();
  }
  if (cut == ModuleCut::FrozenApart) {
    std::vector<int> stages = cut_run(network, positions, length - positions, pp * chunks, work);
    if (!stages.empty()) {
      stages.front() += positions;
    }
    return stages;
  }
  const int segments =
      segments_for_encoder(run_of(network, 0, positions),
                           run_of(network, positions, length - positions), sequence, pp, chunks);
  std::vector<int> stages = cut_run(network, 0, positions, pp * segments, work);
  const std::vector<int> others =
      chunks > segments
          ? cut_run(network, positions, length - positions, pp * (chunks - segments), work)
          : std::vector<int>();
  if (stages.empty() || others.empty()) {
    return {};
  }
  stages.insert(stages.end(), others.begin(), others.end());
  return stages;
}

}  // namespace orrery::plan
