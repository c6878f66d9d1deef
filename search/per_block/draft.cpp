// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/draft.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "plan/block/relayout.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/slices.hpp"
#include "plan/stage/memory.hpp"
#include "search/per_block/cuts.hpp"
#include "search/problems/pareto_chain.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kMostCandidates = 8;  // strategies that the dynamic program chooses from
constexpr std::size_t kMostUsual = 2;       // of them, that whole plans are made of
constexpr double kLeastUse = 0.5;           // blocks of a strategy that is used
constexpr double kUnavailable = 1e18;       // seconds

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

// Positions per stage: borders where the sums of fractions are nearest, none empty.
std::vector<int> rounded_cut(const Shares& shares, int positions) {
  const std::size_t stages = shares.blocks.size();
  std::vector<int> cut(stages);
  double sum = 0;
  int begin = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    for (const auto& of_block : shares.blocks[stage]) {
      sum = std::accumulate(of_block.begin(), of_block.end(), sum);
    }
    const int left = static_cast<int>(stages - stage) - 1;
    const int border = stage + 1 == stages ? positions : static_cast<int>(std::lround(sum));
    const int end = std::clamp(border, begin + 1, positions - left);
    cut[stage] = end - begin;
    begin = end;
  }
  return cut;
}

struct Use {
  double blocks = 0;  // in all stages
  std::uint16_t strategy = 0;
};

// Of strategies that every block may take, most used first.
std::vector<Use> uses_of(const MeshCosts& costs, const Shares& shares) {
  std::vector<Use> uses;
  for (const std::uint16_t strategy : costs.shared) {
    double sum = 0;
    for (const auto& of_stage : shares.blocks) {
      for (std::size_t block = 0; block < of_stage.size(); ++block) {
        for (std::size_t index = 0; index < of_stage[block].size(); ++index) {
          sum += costs.choices[block][index].strategy == strategy ? of_stage[block][index] : 0.0;
        }
      }
    }
    uses.push_back({sum, strategy});
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const Use& a, const Use& b) { return a.blocks > b.blocks; });
  return uses;
}

std::vector<std::uint16_t> most_used(const MeshCosts& costs, const Shares& shares) {
  std::vector<std::uint16_t> result;
  for (const Use& use : uses_of(costs, shares)) {
    if (result.size() < kMostCandidates) {
      result.push_back(use.strategy);
    }
  }
  return result;
}

}  // namespace

Drafter::Drafter(const PerBlockSpace& space, plan::Simulator& simulator, plan::BlockCosts& costs)
    : space_(space), simulator_(simulator), costs_(costs), plan_(space.homogeneous().base()) {}

std::vector<std::uint16_t> Drafter::used(const MeshCosts& costs, const Shares& shares) {
  std::vector<std::uint16_t> result;
  for (const Use& use : uses_of(costs, shares)) {
    if (use.blocks >= kLeastUse) {
      result.push_back(use.strategy);
    }
  }
  return result;
}

void Drafter::leave_free(ByteCount margin) {
  plan_.memory_reserve = space_.homogeneous().base().memory_reserve + margin;
}

bool Drafter::Score::operator<(const Score& other) const {
  if (fits != other.fits) {
    return fits;
  }
  return fits ? time < other.time : excess < other.excess;
}

// Seconds per iteration that one change of strategy costs.
std::vector<double> Drafter::switch_costs(const StageMesh& mesh, const MeshCosts& costs,
                                          const std::vector<std::uint16_t>& candidates) {
  const std::size_t n = candidates.size();
  std::vector<double> switches(n * n, 0.0);
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
// while it runs.
void Drafter::fit_device(const plan::LiveCounts& live, const MeshCosts& costs,
                         const std::vector<std::uint16_t>& candidates,
                         const std::vector<double>& switches, Lists& lists) {
  const DeviceChoices device = device_choices(plan_, live, costs, candidates, lists);
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve -
                             plan::communicator_bytes(plan_) - plan::context_bytes();
  std::optional<ChainPlan> best;
  for (const double level : device.levels) {
    const auto budget = capacity.value() - static_cast<std::int64_t>(level);
    const auto chain =
        budget > 0 ? best_chain_plan(device.within(level), switches, budget) : std::nullopt;
    if (chain && chain->time < kUnavailable && (!best || chain->time < best->time)) {
      best = chain;
    }
  }
  for (std::size_t layer = 0; best && layer < device.places.size(); ++layer) {
    *device.places[layer] = candidates[static_cast<std::size_t>(best->strategies[layer])];
  }
}

std::optional<Draft> Drafter::round(const StageMesh& mesh, const Pipeline& pipeline,
                                    const MeshCosts& costs, const Shares& shares) {
  const int positions = static_cast<int>(plan_.network.chain.size());
  const std::vector<std::uint16_t> candidates = most_used(costs, shares);
  if (candidates.empty()) {
    return std::nullopt;
  }
  std::vector<std::vector<int>> cuts = {space_.first_cut(mesh, pipeline)};
  if (!space_.has_fixed_cut()) {
    cuts.push_back(rounded_cut(shares, positions));
    for (std::vector<int>& cut : likely_cuts(positions, mesh.pp, pipeline.chunks)) {
      cuts.push_back(std::move(cut));
    }
  }
  std::optional<Draft> best;
  Score least;
  const auto consider = [&](Draft draft) {
    const Score now = score(mesh, pipeline, costs, draft);
    if (!best || now < least) {
      least = now;
      best = std::move(draft);
    }
  };
  for (const std::vector<int>& cut : cuts) {
    for (const bool switches : {true, false}) {
      consider(fitted(mesh, pipeline, costs, candidates, cut, switches));
    }
    for (const std::uint16_t candidate : candidates) {
      consider({cut, std::vector<std::uint16_t>(static_cast<std::size_t>(positions), candidate)});
    }
  }
  for (std::size_t usual = 0; usual < std::min(kMostUsual, candidates.size()); ++usual) {
    for (const std::uint16_t smaller : candidates) {
      for (int chunk = 0; smaller != candidates[usual] && chunk < pipeline.chunks; ++chunk) {
        const auto draft =
            relieved(mesh, pipeline, costs, cuts.front(), candidates[usual], smaller, chunk);
        if (draft) {
          consider(*draft);
        }
      }
    }
  }
  return best;
}

std::optional<Draft> Drafter::relieved(const StageMesh& mesh, const Pipeline& pipeline,
                                       const MeshCosts& costs, const std::vector<int>& cut,
                                       std::uint16_t usual, std::uint16_t smaller, int chunk) {
  const auto devices = static_cast<std::size_t>(mesh.pp);
  Lists lists;
  for (const int count : cut) {
    lists.emplace_back(static_cast<std::size_t>(count), usual);
  }
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve;
  for (int step = 0; step <= pipeline.chunks; ++step) {
    Draft draft{cut, {}};
    for (const auto& list : lists) {
      draft.strategies.insert(draft.strategies.end(), list.begin(), list.end());
    }
    space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
    const std::vector<plan::StageMemory> memory = simulator_.memory(plan_);
    const auto begin = static_cast<std::size_t>((chunk + step) % pipeline.chunks) * devices;
    bool fits = true;
    for (std::size_t stage = begin; stage < begin + devices; ++stage) {
      const std::size_t device = pipeline.placement.device_of[stage];
      if (memory[device].total() > capacity) {
        fits = false;
        std::fill(lists[stage].begin(), lists[stage].end(), smaller);
      }
    }
    if (fits) {
      return step > 0 ? std::optional(draft) : std::nullopt;
    }
  }
  return std::nullopt;
}

// Of a cut, by the dynamic program on every device.
Draft Drafter::fitted(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
                      const std::vector<std::uint16_t>& candidates, const std::vector<int>& cut,
                      bool with_switches) {
  const auto positions = plan_.network.chain.size();
  Draft draft;
  draft.stages = cut;
  draft.strategies.assign(positions, candidates.front());
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  const std::vector<plan::LiveCounts> live = plan::live_counts(simulator_.order(plan_));
  // Stages of one block change their layout for nothing.
  const std::vector<double> switches =
      with_switches ? switch_costs(mesh, costs, candidates)
                    : std::vector<double>(candidates.size() * candidates.size(), 0.0);
  Lists lists;
  for (const int count : draft.stages) {
    lists.emplace_back(static_cast<std::size_t>(count), candidates.front());
  }
  for (const plan::LiveCounts& device : live) {
    fit_device(device, costs, candidates, switches, lists);
  }
  draft.strategies.clear();
  for (const auto& list : lists) {
    draft.strategies.insert(draft.strategies.end(), list.begin(), list.end());
  }
  return draft;
}

Draft draft_of(const plan::Plan& plan, const MeshCosts& costs) {
  const std::vector<plan::BlockPlan>& all = costs.strategies;
  const auto strategy = std::find(all.begin(), all.end(), plan.blocks.front().layout);
  return {plan.stage_blocks, std::vector(plan.network.chain.size(),
                                         static_cast<std::uint16_t>(strategy - all.begin()))};
}

// Of plan_.
plan::MemoryVerdict Drafter::memory_verdict() {
  if (free_.empty()) {
    return simulator_.fits(plan_);
  }
  const std::vector<plan::StageMemory> memory = simulator_.memory(plan_);
  plan::MemoryVerdict verdict = plan::memory_verdict(plan_, memory);
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve;
  for (std::size_t device = 0; device < std::min(free_.size(), memory.size()); ++device) {
    const ByteCount excess = memory[device].total() + free_[device] - capacity;
    verdict.excess = std::max(verdict.excess, excess);
    verdict.fits = verdict.fits && excess <= ByteCount();
  }
  return verdict;
}

Drafter::Score Drafter::score(const StageMesh& mesh, const Pipeline& pipeline,
                              const MeshCosts& costs, const Draft& draft) {
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  Score score;
  if (pipeline.slices > 1 && !plan::slices_problem(plan_).empty()) {
    score.excess = plan_.cluster.gpu.memory;
    return score;
  }
  const plan::MemoryVerdict verdict = memory_verdict();
  score.fits = verdict.fits;
  score.excess = verdict.excess;
  if (verdict.fits) {
    ++simulated_;
    last_ = simulator_.run(plan_);
    score.time = last_.iteration_time;
  }
  return score;
}

}  // namespace orrery::search
