// SPDX-License-Identifier: Apache-2.0
#include "search/per_block_draft.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "plan/relayout.hpp"
#include "plan/stage_memory.hpp"
#include "search/pareto_chain.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kMostCandidates = 8;  // strategies that the dynamic program chooses from
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

// The strategies that the fractions use most, most used first.
std::vector<std::uint16_t> most_used(const MeshCosts& costs, const Shares& shares) {
  std::vector<std::pair<double, std::uint16_t>> used;
  for (const std::uint16_t strategy : costs.shared) {
    double sum = 0;
    for (const auto& of_stage : shares.blocks) {
      for (std::size_t block = 0; block < of_stage.size(); ++block) {
        for (std::size_t index = 0; index < of_stage[block].size(); ++index) {
          sum += costs.choices[block][index].strategy == strategy ? of_stage[block][index] : 0.0;
        }
      }
    }
    used.push_back({-sum, strategy});
  }
  std::stable_sort(used.begin(), used.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::uint16_t> result;
  for (const auto& [sum, strategy] : used) {
    if (result.size() < kMostCandidates) {
      result.push_back(strategy);
    }
  }
  return result;
}

}  // namespace

Drafter::Drafter(const PerBlockSpace& space, plan::Simulator& simulator, plan::BlockCosts& costs)
    : space_(space), simulator_(simulator), costs_(costs), plan_(space.homogeneous().base()) {}

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

// The least time of a device's blocks within its memory, for every level of what one block needs
// while it runs.
void Drafter::fit_device(const plan::LiveCounts& live, const MeshCosts& costs,
                         const std::vector<std::uint16_t>& candidates,
                         const std::vector<double>& switches, Lists& lists) {
  const std::size_t stages = lists.size();
  const std::size_t chunks = live.stages.size();
  const double batches = static_cast<double>(plan_.num_micro_batches());
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve -
                             plan::communicator_bytes(plan_) - plan::context_bytes();
  std::vector<std::vector<double>> overheads;  // by layer and candidate
  std::vector<LayerChoices> layers;
  std::vector<std::uint16_t*> places;
  std::set<double> levels;
  for (std::size_t slot = 0; slot < chunks; ++slot) {
    const auto stage = static_cast<std::size_t>(live.stages[slot]);
    if (stage >= stages) {
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
      const auto block = static_cast<std::size_t>(plan_.network.chain[position++]);
      LayerChoices layer;
      std::vector<double> overhead;
      const double size = static_cast<double>(lists[stage].size());
      for (const std::uint16_t candidate : candidates) {
        const BlockChoice& one = *find(costs.choices[block], candidate);
        layer.time.push_back(batches * (beside(one.forward, one.gather, size) +
                                        beside(one.backward, one.traffic, size)));
        const double gathered = one.gathered * std::min(1.0, costs.in_flight / size);
        layer.memory.push_back(static_cast<std::int64_t>(
            one.states + one.saved * held + one.kept * parts + gathered + one.unreduced / size));
        overhead.push_back(one.working);
        levels.insert(one.working);
      }
      layers.push_back(std::move(layer));
      overheads.push_back(std::move(overhead));
      places.push_back(&place);
    }
  }
  if (layers.empty()) {
    return;
  }
  std::optional<ChainPlan> best;
  for (const double level : levels) {
    std::vector<LayerChoices> allowed = layers;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      for (std::size_t index = 0; index < candidates.size(); ++index) {
        if (overheads[layer][index] > level) {
          allowed[layer].time[index] = kUnavailable;
        }
      }
    }
    const auto budget = capacity.value() - static_cast<std::int64_t>(level);
    const auto chain = budget > 0 ? best_chain_plan(allowed, switches, budget) : std::nullopt;
    if (chain && chain->time < kUnavailable && (!best || chain->time < best->time)) {
      best = chain;
    }
  }
  for (std::size_t layer = 0; best && layer < layers.size(); ++layer) {
    *places[layer] = candidates[static_cast<std::size_t>(best->strategies[layer])];
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
    consider(fitted(mesh, pipeline, costs, candidates, cut));
    for (const std::uint16_t candidate : candidates) {
      consider({cut, std::vector<std::uint16_t>(static_cast<std::size_t>(positions), candidate)});
    }
  }
  return best;
}

// Of a cut, by the dynamic program on every device.
Draft Drafter::fitted(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
                      const std::vector<std::uint16_t>& candidates, const std::vector<int>& cut) {
  const auto positions = plan_.network.chain.size();
  Draft draft;
  draft.stages = cut;
  draft.strategies.assign(positions, candidates.front());
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  const std::vector<plan::LiveCounts> live = plan::live_counts(simulator_.order(plan_));
  const std::vector<double> switches = switch_costs(mesh, costs, candidates);
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

Drafter::Score Drafter::score(const StageMesh& mesh, const Pipeline& pipeline,
                              const MeshCosts& costs, const Draft& draft) {
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  const plan::MemoryVerdict verdict = simulator_.fits(plan_);
  Score score;
  score.fits = verdict.fits;
  score.excess = verdict.excess;
  if (verdict.fits) {
    ++simulated_;
    last_ = simulator_.run(plan_);
    score.time = last_.iteration_time;
  }
  return score;
}

namespace {

using Lists = std::vector<std::vector<std::uint16_t>>;

Draft draft_of(const Lists& lists) {
  Draft draft;
  for (const auto& list : lists) {
    draft.stages.push_back(static_cast<int>(list.size()));
    draft.strategies.insert(draft.strategies.end(), list.begin(), list.end());
  }
  return draft;
}

Lists lists_of(const Draft& draft) {
  Lists lists;
  auto next = draft.strategies.begin();
  for (const int count : draft.stages) {
    lists.emplace_back(next, next + count);
    next += count;
  }
  return lists;
}

// One block fewer in stage `from` and one more in `to`, of the strategy that is there.
Lists moved(Lists lists, std::size_t from, std::size_t to) {
  const std::size_t middle = lists[from].size() / 2;
  lists[from].erase(lists[from].begin() + static_cast<std::ptrdiff_t>(middle));
  const std::size_t place = lists[to].size() / 2;
  lists[to].insert(lists[to].begin() + static_cast<std::ptrdiff_t>(place), lists[to][place]);
  return lists;
}

// Of the run of blocks of one strategy in a stage, `count` from its end take another one.
Lists exchanged(Lists lists, std::size_t stage, std::uint16_t from, std::uint16_t to, bool all) {
  auto& list = lists[stage];
  for (auto place = list.rbegin(); place != list.rend(); ++place) {
    if (*place == from) {
      *place = to;
      if (!all) {
        break;
      }
    }
  }
  return lists;
}

// Devices, busiest first; of a plan that does not fit, fullest first.
template <typename Key>
std::vector<std::size_t> ranked(std::size_t devices, Key key) {
  std::vector<std::size_t> order(devices);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) > key(b); });
  return order;
}

}  // namespace

DraftResult Drafter::improve(const StageMesh& mesh, const Pipeline& pipeline,
                             const MeshCosts& costs, Draft draft, int budget) {
  DraftResult result;
  simulated_ = 0;
  Score best = score(mesh, pipeline, costs, draft);
  const std::size_t stages = draft.stages.size();
  Lists lists = lists_of(draft);
  std::set<std::vector<std::uint16_t>> seen;
  const auto try_out = [&](const Lists& next) {
    Draft candidate = draft_of(next);
    std::vector<std::uint16_t> key = candidate.strategies;
    key.insert(key.end(), candidate.stages.begin(), candidate.stages.end());
    if (budget <= 0 || !seen.insert(std::move(key)).second) {
      return false;
    }
    --budget;
    const plan::Simulation before = last_;
    const Score now = score(mesh, pipeline, costs, candidate);
    if (now < best) {
      best = now;
      lists = next;
      draft = std::move(candidate);
      return true;
    }
    last_ = before;
    return false;
  };
  const auto step = [&] {
    std::vector<double> load(static_cast<std::size_t>(mesh.pp), 0.0);
    if (best.fits) {
      for (std::size_t device = 0; device < load.size(); ++device) {
        load[device] = static_cast<double>(last_.pipeline.devices[device].busy.ps);
      }
    } else {
      space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
      const std::vector<plan::StageMemory> memory = simulator_.memory(plan_);
      for (std::size_t device = 0; device < load.size() && device < memory.size(); ++device) {
        load[device] = static_cast<double>(memory[device].total().value());
      }
    }
    const auto order = ranked(load.size(), [&](std::size_t device) { return load[device]; });
    const auto on = [&](std::size_t device) {
      std::vector<std::size_t> held;
      for (std::size_t stage = 0; stage < stages; ++stage) {
        if (pipeline.placement.device_of[stage] == device) {
          held.push_back(stage);
        }
      }
      return held;
    };
    const std::size_t looked = std::min<std::size_t>(order.size(), 2);
    for (std::size_t rank = 0; rank < looked; ++rank) {
      for (const std::size_t stage : on(order[rank])) {
        for (std::size_t light = order.size(); light-- > 0 && !space_.has_fixed_cut();) {
          for (const std::size_t other : on(order[light])) {
            if (other != stage && lists[stage].size() > 1 && light > rank &&
                try_out(moved(lists, stage, other))) {
              return true;
            }
          }
          if (order.size() - light > 3) {
            break;
          }
        }
        const std::set<std::uint16_t> used(lists[stage].begin(), lists[stage].end());
        for (const std::uint16_t from : used) {
          for (const std::uint16_t to : costs.shared) {
            for (const bool all : {true, false}) {
              if (to != from && try_out(exchanged(lists, stage, from, to, all))) {
                return true;
              }
            }
          }
        }
      }
    }
    return false;
  };
  while (budget > 0 && step()) {
  }
  result.draft = draft;
  result.fits = best.fits;
  result.time = best.time;
  result.excess = best.excess;
  result.simulated = simulated_;
  return result;
}

}  // namespace orrery::search
