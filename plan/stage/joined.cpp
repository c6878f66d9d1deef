// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/joined.hpp"

#include <algorithm>

#include "plan/schedule_traits.hpp"
#include "plan/stage/plan_schedule.hpp"

namespace orrery::plan {

bool has_like_layers(const Plan& plan) {
  if (plan.network.spec.moe.experts == 0) {
    return true;
  }
  int first = -1;
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const int block = plan.network.chain[position];
    if (plan.network.blocks[static_cast<std::size_t>(block)].kind != models::BlockKind::Layer) {
      continue;
    }
    const int here = static_cast<int>(position);
    first = first < 0 ? here : first;
    if (block != plan.network.chain[static_cast<std::size_t>(first)] ||
        !(plan.layout_of(here) == plan.layout_of(first))) {
      return false;
    }
  }
  return true;
}

SimTime most_hidden(const BlockCost& block, bool like_layers) {
  return like_layers ? block.most_hidden() : block.most_hidden_beside_any();
}

std::vector<BlockCosts::LayerRun> joined_layers(const StageContent& content, const Plan& plan,
                                                const BlockCosts& costs) {
  std::vector<BlockCosts::LayerRun> layers;
  if (!schedule_traits(plan).joins_passes) {
    return layers;
  }
  for (const StagePiece& piece : content) {
    if (is_layer(piece, costs.network())) {
      layers.push_back({piece.block, piece.layout, micro_batch_of(piece, plan), piece.count});
    }
  }
  return layers;
}

namespace {

// What of a pass is neither kernels nor anything that kernels of the pass run beside.
SimTime without_kernels(const PassCost& pass) {
  const Seconds alone = pass.exposed[static_cast<std::size_t>(Axis::Expert)];
  return std::max(SimTime{}, pass.time - to_sim_time(pass.device - alone));
}

// Of stages that were added up: exact where layers are alike, else no less than is hidden.
SimTime most_hidden(const StageCost& forward, const StageCost& backward, bool like_layers) {
  if (like_layers) {
    return std::min(forward.most_hidden, backward.most_hidden);
  }
  const SimTime of_pair =
      std::min({forward.forward, backward.backward,
                without_kernels(forward.forward_cost) + without_kernels(backward.backward_cost)});
  // Embedding and head are never joined: of one stage its layers alone count.
  return &forward == &backward ? std::min(of_pair, forward.most_hidden) : of_pair;
}

bool are_alike(const StageCost& a, const StageCost& b, bool simulated) {
  if (simulated) {
    return a.joined_layers == b.joined_layers;
  }
  return a.most_hidden == b.most_hidden && a.forward == b.forward && a.backward == b.backward &&
         without_kernels(a.forward_cost) == without_kernels(b.forward_cost);
}

// By pair of kinds, whether some device has a stage of either: no others are joined.
std::vector<bool> kinds_on_one_device(const sim::PipelineCosts& passes,
                                      const std::vector<std::uint16_t>& device_of) {
  const std::size_t kinds = passes.kinds;
  std::vector<bool> meet(kinds * kinds, false);
  for (std::size_t forward = 0; forward < passes.kind_of.size(); ++forward) {
    for (std::size_t backward = 0; backward < passes.kind_of.size(); ++backward) {
      if (device_of[forward] == device_of[backward]) {
        meet[passes.kind_of[forward] * kinds + passes.kind_of[backward]] = true;
      }
    }
  }
  return meet;
}

}  // namespace

bool lists_joined_layers(const std::vector<StageCost>& stages) {
  return std::any_of(stages.begin(), stages.end(),
                     [](const StageCost& stage) { return !stage.joined_layers.empty(); });
}

SimTime hidden_by(const StageCost& forward, const StageCost& backward, bool listed,
                  bool like_layers, BlockCosts& costs) {
  return listed ? costs.joined_stages(forward.joined_layers, backward.joined_layers).hidden
                : most_hidden(forward, backward, like_layers);
}

void add_hidden(const std::vector<StageCost>& stages, const Plan& plan, BlockCosts& costs,
                sim::PipelineCosts& passes) {
  const bool like_layers = has_like_layers(plan);
  const bool simulated = lists_joined_layers(stages);
  std::vector<const StageCost*> kinds;
  for (const StageCost& stage : stages) {
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const StageCost* kind) {
      return are_alike(*kind, stage, simulated);
    });
    passes.kind_of.push_back(static_cast<std::uint16_t>(known - kinds.begin()));
    if (known == kinds.end()) {
      kinds.push_back(&stage);
    }
  }
  passes.kinds = static_cast<std::uint16_t>(kinds.size());
  std::vector<bool> meet(kinds.size() * kinds.size(), true);
  if (simulated && !like_layers) {
    meet = kinds_on_one_device(passes, schedule_devices(plan));
  }
  for (std::size_t pair = 0; pair < meet.size(); ++pair) {
    const StageCost& forward = *kinds[pair / kinds.size()];
    const StageCost& backward = *kinds[pair % kinds.size()];
    passes.hidden.push_back(meet[pair] ? hidden_by(forward, backward, simulated, like_layers, costs)
                                       : SimTime{});
  }
}

}  // namespace orrery::plan
