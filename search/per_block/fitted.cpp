// SPDX-License-Identifier: Apache-2.0
// Drafts of a cut by the dynamic program over the blocks of each device (per_block/draft.hpp).
#include <algorithm>
#include <set>

#include "plan/block/relayout.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/memory.hpp"
#include "search/per_block/draft.hpp"
#include "search/problems/pareto_chain.hpp"

namespace orrery::search {

namespace {

constexpr double kUnavailable = 1e18;  // seconds

const BlockChoice* find(const std::vector<BlockChoice>& choices, std::uint16_t strategy) {
  const auto found = std::find_if(choices.begin(), choices.end(), [&](const BlockChoice& choice) {
    return choice.strategy == strategy;
  });
  return found == choices.end() ? nullptr : &*found;
}

// Blocks of a stage and their traffic beside them: the first block's hides under none of them.
double beside(double block, double traffic, double blocks) {
  return std::max(block, traffic) + std::min(block, traffic) / blocks;
}

}  // namespace

// Seconds per iteration that one change of strategy costs.
Drafter::Switches Drafter::switch_costs(const StageMesh& mesh, const MeshCosts& costs,
                                        const std::vector<std::uint16_t>& candidates) {
  const std::size_t n = candidates.size();
  Switches switches(n * n, 0.0);
  const models::Network& network = plan_.network;
  const int layer = network.chain[network.chain.size() / 2];
  const double batches = static_cast<double>(space_.micro_batches(mesh));
  const auto boundary = [&](std::uint16_t strategy) {
    const BlockChoice* choice = find(costs.choices[static_cast<std::size_t>(layer)], strategy);
    return ByteCount(static_cast<std::int64_t>(choice->boundary));
  };
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      if (from != to) {
        const plan::Relayout change =
            plan::relayout(plan_, costs.strategies[candidates[from]], boundary(candidates[from]),
                           costs.strategies[candidates[to]], boundary(candidates[to]), costs_);
        switches[from * n + to] = (change.forward + change.backward).value() * batches;
      }
    }
  }
  return switches;
}

namespace {

// What the blocks of a device may be.
struct DeviceChoices {
  std::vector<LayerChoices> layers;          // by block: time and memory of every candidate
  std::vector<std::vector<double>> working;  // bytes of a block while it runs, the same
  std::vector<std::uint16_t*> places;        // of the blocks in the lists
  std::set<double> levels;                   // that `working` takes

  // A block of a stage of `size` and of `sharing` ones that have their buffers one after another.
  void add(const std::vector<BlockChoice>& choices, const std::vector<std::uint16_t>& candidates,
           const MeshCosts& costs, double batches, double size, double sharing, double held,
           double parts) {
    LayerChoices layer;
    std::vector<double> own;
    for (const std::uint16_t candidate : candidates) {
      const BlockChoice& one = *find(choices, candidate);
      layer.time.push_back(batches * (beside(one.forward, one.gather, size) +
                                      beside(one.backward, one.traffic, size)));
      const double gathered = one.gathered * std::min(1.0, costs.in_flight / sharing);
      layer.memory.push_back(static_cast<std::int64_t>(
          one.states + one.saved * held + one.kept * parts + gathered + one.unreduced / sharing));
      own.push_back(one.working);
      levels.insert(one.working);
    }
    layers.push_back(std::move(layer));
    working.push_back(std::move(own));
  }

  // All that the best strategies of the blocks depend on, beside what changes of strategy cost.
  std::vector<double> key() const {
    std::vector<double> key;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      key.insert(key.end(), layers[layer].time.begin(), layers[layer].time.end());
      key.insert(key.end(), layers[layer].memory.begin(), layers[layer].memory.end());
      key.insert(key.end(), working[layer].begin(), working[layer].end());
    }
    return key;
  }

  // With blocks alone that need no more while they run.
  std::vector<LayerChoices> within(double level) const {
    std::vector<LayerChoices> allowed = layers;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      for (std::size_t index = 0; index < working[layer].size(); ++index) {
        if (working[layer][index] > level) {
          allowed[layer].time[index] = kUnavailable;
        }
      }
    }
    return allowed;
  }
};

DeviceChoices device_choices(const plan::Plan& plan, const plan::LiveCounts& live,
                             const MeshCosts& costs, const std::vector<std::uint16_t>& candidates,
                             std::vector<std::vector<std::uint16_t>>& lists) {
  const std::size_t chunks = live.stages.size();
  const double batches = static_cast<double>(plan.num_micro_batches());
  const bool joins = plan::schedule_traits(plan).joins_passes;
  std::size_t on_device = 0;
  for (const int stage : live.stages) {
    const auto index = static_cast<std::size_t>(stage);
    on_device += index < lists.size() ? lists[index].size() : 0;
  }
  DeviceChoices device;
  for (std::size_t slot = 0; slot < chunks; ++slot) {
    const auto stage = static_cast<std::size_t>(live.stages[slot]);
    if (stage >= lists.size()) {
      continue;  // the other direction, or shards of the output layer
    }
    double held = 0;
    double parts = 0;
    for (const std::vector<int>& counts : live.maxima) {
      held = std::max(held, static_cast<double>(counts[slot]));
      parts = live.splits ? std::max(parts, static_cast<double>(counts[chunks + slot])) : 0.0;
    }
    std::size_t position = 0;
    for (std::size_t before = 0; before < stage; ++before) {
      position += lists[before].size();
    }
    for (std::uint16_t& place : lists[stage]) {
      const auto block = static_cast<std::size_t>(plan.network.chain[position++]);
      device.add(costs.choices[block], candidates, costs, batches,
                 static_cast<double>(lists[stage].size()),
                 static_cast<double>(joins ? lists[stage].size() : on_device), held, parts);
      device.places.push_back(&place);
    }
  }
  return device;
}

}  // namespace

// The least time of a device's blocks within its memory, for every level of what one block needs
// while it runs. Many cuts have the same device.
void Drafter::fit_device(const plan::LiveCounts& live, const MeshCosts& costs,
                         const std::vector<std::uint16_t>& candidates, const Switches& switches,
                         Lists& lists, FittedDevices& known) {
  const DeviceChoices device = device_choices(plan_, live, costs, candidates, lists);
  const auto [slot, is_new] = known.try_emplace({&switches, device.key()});
  std::vector<std::uint16_t>& strategies = slot->second;
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve -
                             plan::communicator_bytes(plan_) - plan::context_bytes();
  std::optional<ChainPlan> best;
  for (auto level = device.levels.begin(); is_new && level != device.levels.end(); ++level) {
    const auto budget = capacity.value() - static_cast<std::int64_t>(*level);
    const auto chain =
        budget > 0 ? best_chain_plan(device.within(*level), switches, budget) : std::nullopt;
    if (chain && chain->time < kUnavailable && (!best || chain->time < best->time)) {
      best = chain;
    }
  }
  for (std::size_t layer = 0; best && layer < device.places.size(); ++layer) {
    strategies.push_back(candidates[static_cast<std::size_t>(best->strategies[layer])]);
  }
  for (std::size_t layer = 0; layer < strategies.size(); ++layer) {
    *device.places[layer] = strategies[layer];
  }
}

// Of a cut, by the dynamic program on every device.
Draft Drafter::fitted(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
                      const std::vector<std::uint16_t>& candidates, const std::vector<int>& cut,
                      const Switches& switches, FittedDevices& known) {
  const auto positions = plan_.network.chain.size();
  Draft draft;
  draft.stages = cut;
  draft.strategies.assign(positions, candidates.front());
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  const std::vector<plan::LiveCounts> live = plan::live_counts(simulator_.order(plan_));
  Lists lists;
  for (const int count : draft.stages) {
    lists.emplace_back(static_cast<std::size_t>(count), candidates.front());
  }
  for (const plan::LiveCounts& device : live) {
    fit_device(device, costs, candidates, switches, lists, known);
  }
  draft.strategies.clear();
  for (const auto& list : lists) {
    draft.strategies.insert(draft.strategies.end(), list.begin(), list.end());
  }
  return draft;
}

}  // namespace orrery::search
