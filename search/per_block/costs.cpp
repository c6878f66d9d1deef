// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/costs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "plan/block/states.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/offload_time.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/token_table.hpp"

namespace orrery::search {

namespace {

using Coefficient = double BlockChoice::*;

constexpr std::array<Coefficient, 20> kCoefficients = {
    &BlockChoice::forward,     &BlockChoice::backward,   &BlockChoice::input_grad,
    &BlockChoice::weight_grad, &BlockChoice::gather,     &BlockChoice::traffic,
    &BlockChoice::states,      &BlockChoice::saved,      &BlockChoice::kept,
    &BlockChoice::working,     &BlockChoice::gathered,   &BlockChoice::unreduced,
    &BlockChoice::boundary,    &BlockChoice::reduce,     &BlockChoice::step_gather,
    &BlockChoice::tied,        &BlockChoice::update,     &BlockChoice::reduce_all,
    &BlockChoice::gather_all,  &BlockChoice::pass_reduce};

constexpr double kPicoseconds = 3e-12;

bool beats(const BlockChoice& a, const BlockChoice& b) {
  return std::all_of(kCoefficients.begin(), kCoefficients.end(),
                     [&](Coefficient part) { return a.*part <= b.*part; });
}

double work(const BlockChoice& choice) { return choice.forward + choice.backward; }

// Fastest first, without those that are beaten; of equals the first stays.
std::vector<BlockChoice> undominated(std::vector<BlockChoice> choices) {
  std::stable_sort(choices.begin(), choices.end(), [](const BlockChoice& a, const BlockChoice& b) {
    return work(a) != work(b) ? work(a) < work(b) : a.states + a.saved < b.states + b.saved;
  });
  std::vector<BlockChoice> kept;
  for (const BlockChoice& choice : choices) {
    const bool beaten = std::any_of(kept.begin(), kept.end(),
                                    [&](const BlockChoice& other) { return beats(other, choice); });
    if (!beaten) {
      kept.push_back(choice);
    }
  }
  return kept;
}

double bytes(ByteCount count) { return static_cast<double>(count.value()); }

}  // namespace

BlockPricer::BlockPricer(const PerBlockSpace& space)
    : space_(space), plan_(space.homogeneous().base()), costs_(plan_) {}

BlockChoice BlockPricer::choice_of(int block, const plan::BlockPlan& layout) {
  const plan::Execution& execution = plan_.execution;
  const plan::BlockCost& cost = costs_.of(block, layout, plan_.micro_batch);
  const plan::StagePiece piece{block, layout, 1};
  const plan::Mesh mesh = plan::mesh_of(layout, plan_.dp);
  const int gpus = plan_.cluster.node.gpus;
  const plan::StateBytes states =
      plan::state_bytes(cost, layout, mesh, execution, plan_.precision, true, gpus);
  const plan::StateTraffic traffic = plan::state_traffic(cost, layout, mesh, costs_, true);
  BlockChoice choice;
  choice.forward = to_seconds(cost.forward.time).value();
  choice.backward = to_seconds(cost.backward.time).value();
  const plan::StageCost alone = plan::add_up_blocks({piece}, plan_, costs_);
  const plan::SplitTimes split = splits_.times({piece}, plan_, costs_, alone);
  const plan::SplitBackwards::Kept kept = splits_.kept({piece}, plan_, costs_);
  // A stage rounds its two parts once, not block by block.
  choice.input_grad = std::max(0.0, to_seconds(split.input_grad).value() - kPicoseconds);
  choice.weight_grad = std::max(0.0, to_seconds(split.weight_grad).value() - kPicoseconds);
  if (layout.zero_stage == 3) {
    choice.gather = traffic.gather.value();
  }
  if (layout.zero_stage == 3 && execution.reshard_after_forward) {
    choice.regather = std::max(0.0, traffic.gather_backward.value() - kPicoseconds);
    choice.traffic += traffic.gather_backward.value();
  }
  if (layout.zero_stage >= 2) {
    choice.traffic += traffic.reduce.value();
    choice.pass_reduce = std::max(0.0, traffic.reduce.value() - kPicoseconds);
  }
  if (layout.zero_stage < 2) {
    choice.reduce = std::max(0.0, traffic.reduce.value() - kPicoseconds);
  }
  if (layout.zero_stage < 3) {
    choice.step_gather = std::max(0.0, traffic.gather.value() - kPicoseconds);
  }
  choice.reduce_all = choice.reduce;
  choice.gather_all = choice.step_gather;
  choice.updated = static_cast<double>(states.local_parameters);
  choice.update = update_time(states);
  choice.states = bytes(states.held_parameters() + states.gradients + states.optimizer);
  choice.saved = bytes(cost.saved - plan::away_bytes(piece, cost, costs_.network()));
  choice.kept = bytes(kept.layers + kept.ends - kept.carried);  // that of all blocks together
  choice.working = bytes(cost.working);
  choice.gathered = bytes(states.gathered);
  choice.unreduced = bytes(states.of_one_block());
  choice.boundary = bytes(cost.boundary);
  return choice;
}

// The optimizer takes so much more where a device has these states once more.
double BlockPricer::update_time(const plan::StateBytes& states) const {
  const auto time_of = [&](int times) {
    plan::StageCost stage;
    stage.states.local_parameters = times * states.local_parameters;
    stage.states.gradients = ByteCount(times * states.gradients.value());
    const std::vector<plan::StageCost> stages(1, stage);
    return plan::optimizer_time(plan_, stages, {0}, costs_).value();
  };
  return std::max(0.0, (time_of(2) - time_of(1)) * (1.0 - 1e-9));
}

namespace {

// What only the first block of the chain says by its strategy, others by the least of all.
void keep_ends_of_first(std::vector<BlockChoice>& choices, bool is_first) {
  double reduce = std::numeric_limits<double>::infinity();
  for (const BlockChoice& choice : choices) {
    reduce = choice.reduce > 0 ? std::min(reduce, choice.reduce) : reduce;
  }
  for (BlockChoice& choice : choices) {
    if (!is_first) {
      choice.reduce = choice.reduce > 0 ? reduce : 0.0;
      choice.step_gather = 0;
      choice.tied = 0;
    }
  }
}

}  // namespace

// The fullest has the mean of all devices.
double BlockPricer::least_updated(const std::vector<double>& parameters,
                                  const MeshCosts& costs) const {
  double sum = 0;
  for (std::size_t block = 0; block < parameters.size(); ++block) {
    const bool layer = plan_.network.blocks[block].kind == models::BlockKind::Layer;
    sum += layer ? parameters[block] * costs.count[block] : 0.0;
  }
  return std::floor(sum / plan_.pp);
}

double BlockPricer::optimizer_of(double parameters) const {
  plan::StageCost stage;
  stage.states.local_parameters = static_cast<std::int64_t>(parameters);
  std::vector<plan::StageCost> stages(1, stage);
  return plan::optimizer_time(plan_, stages, {0}, costs_).value();
}

namespace {

// What is good for a layer may be used by all blocks, so that no conversion is forced.
void share_with_layers(const models::Network& network,
                       const std::vector<std::vector<BlockChoice>>& choices, MeshCosts& result) {
  std::set<std::uint16_t> shared;
  for (std::size_t block = 0; block < choices.size(); ++block) {
    if (network.blocks[block].kind == models::BlockKind::Layer) {
      for (const BlockChoice& choice : result.choices[block]) {
        shared.insert(choice.strategy);
      }
    }
  }
  result.shared.assign(shared.begin(), shared.end());
  for (std::size_t block = 0; block < choices.size(); ++block) {
    std::vector<BlockChoice>& kept = result.choices[block];
    for (const BlockChoice& choice : choices[block]) {
      const bool known = std::any_of(kept.begin(), kept.end(), [&](const BlockChoice& other) {
        return other.strategy == choice.strategy;
      });
      if (!known && shared.contains(choice.strategy)) {
        kept.push_back(choice);
      }
    }
  }
}

}  // namespace

MeshCosts BlockPricer::price(const StageMesh& mesh) {
  const models::Network& network = plan_.network;
  MeshCosts result;
  result.strategies = space_.strategies(mesh);
  result.count.assign(network.blocks.size(), 0);
  for (const int block : network.chain) {
    ++result.count[static_cast<std::size_t>(block)];
  }
  result.context = bytes(plan::context_bytes());
  result.beside = plan::collective_demand(costs_.device());
  const std::size_t in_flight = plan::gathers_in_flight(plan_.execution);
  result.in_flight = plan_.execution.reshard_after_forward
                         ? static_cast<double>(in_flight)
                         : std::numeric_limits<double>::infinity();
  result.communicators = std::numeric_limits<double>::infinity();
  std::vector<std::vector<BlockChoice>> choices(network.blocks.size());
  // The devices that add up a table's gradients where the first and the last stage are apart
  // (ends.cpp); where layers use it, too, they come with the cut.
  const bool at_ends = mesh.pp > 1 && !plan::layers_use_table(network);
  const std::vector<int> ends = at_ends ? std::vector<int>{0, mesh.pp - 1} : std::vector<int>();
  for (std::size_t index = 0; index < result.strategies.size(); ++index) {
    const plan::BlockPlan& layout = result.strategies[index];
    space_.configure(mesh, layout, plan_);
    result.communicators = std::min(result.communicators, bytes(plan::communicator_bytes(plan_)));
    const double tied =
        std::max(0.0, plan::tied_embedding_time(plan_, ends, costs_).value() - kPicoseconds);
    for (std::size_t block = 0; block < network.blocks.size(); ++block) {
      if (result.count[block] > 0) {
        choices[block].push_back(choice_of(static_cast<int>(block), layout));
        choices[block].back().strategy = static_cast<std::uint16_t>(index);
        choices[block].back().tied = static_cast<int>(block) == network.chain.front() ? tied : 0.0;
      }
    }
  }
  std::vector<double> updated(choices.size(), 0.0);
  for (std::size_t block = 0; block < choices.size(); ++block) {
    std::vector<BlockChoice>& of_block = choices[block];
    const bool only = static_cast<int>(block) == network.chain.front() && result.count[block] == 1;
    keep_ends_of_first(of_block, only);
    for (const BlockChoice& choice : of_block) {
      const bool first = &choice == &of_block.front();
      updated[block] = first ? choice.updated : std::min(updated[block], choice.updated);
    }
    result.choices.push_back(undominated(of_block));
  }
  const double least = least_updated(updated, result);
  result.optimizer = optimizer_of(least);
  // A time of one part more than it is in proportion.
  result.launches = std::max(0.0, 2 * result.optimizer - optimizer_of(2 * least)) * (1.0 - 1e-9);
  // A device of such a schedule has two stages of every copy.
  result.copies = mesh.pp > 1 ? plan::copies_time(plan_, 2 * least, costs_).value() : 0.0;
  share_with_layers(network, choices, result);
  return result;
}

double BlockPricer::least_work(const StageMesh& mesh) {
  const models::Network& network = plan_.network;
  std::vector<double> least(network.blocks.size(), std::numeric_limits<double>::infinity());
  for (plan::BlockPlan layout : space_.strategies(mesh)) {
    layout.recompute = plan::Recompute::None;  // it only adds work
    space_.configure(mesh, layout, plan_);
    for (std::size_t block = 0; block < least.size(); ++block) {
      const plan::BlockCost& cost = costs_.of(static_cast<int>(block), layout, plan_.micro_batch);
      least[block] =
          std::min(least[block], to_seconds(cost.forward.time + cost.backward.time).value());
    }
  }
  double sum = 0;
  for (const int block : network.chain) {
    sum += least[static_cast<std::size_t>(block)];
  }
  return sum;
}

}  // namespace orrery::search
