// SPDX-License-Identifier: Apache-2.0
// Drafts that are simulated with their neighbours (per_block/draft.hpp).
#include <algorithm>
#include <numeric>
#include <set>

#include "search/per_block/draft.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kMostFast = 4;  // strategies that runs of stages are given

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

// All blocks of a run of stages.
Lists replaced(Lists lists, std::size_t first, std::size_t count, std::uint16_t to) {
  for (std::size_t stage = first; stage < first + count; ++stage) {
    std::fill(lists[stage].begin(), lists[stage].end(), to);
  }
  return lists;
}

// The fastest strategies of a layer with the ZeRO stage of the draft's middle, fastest first.
std::vector<std::uint16_t> fast_candidates(const models::Network& network, const MeshCosts& costs,
                                           const Draft& draft) {
  const std::size_t middle = draft.strategies.size() / 2;
  const auto block = static_cast<std::size_t>(network.chain[middle]);
  const int zero_stage = costs.strategies[draft.strategies[middle]].zero_stage;
  std::vector<std::uint16_t> candidates;
  for (const BlockChoice& choice : costs.choices[block]) {
    const bool known = costs.strategies[choice.strategy].zero_stage == zero_stage;
    if (known && candidates.size() < kMostFast) {
      candidates.push_back(choice.strategy);
    }
  }
  return candidates;
}

// Every block of `from` in the stages of a chunk takes another strategy.
Lists exchanged_in_chunk(Lists lists, std::size_t first, std::size_t count, std::uint16_t from,
                         std::uint16_t to) {
  for (std::size_t stage = first; stage < first + count; ++stage) {
    std::replace(lists[stage].begin(), lists[stage].end(), from, to);
  }
  return lists;
}

// Whether a block of one of these kinds gains by the exchange: time, or bytes of plans that do not
// fit.
bool gains(const MeshCosts& costs, const std::set<std::size_t>& kinds, std::uint16_t from,
           std::uint16_t to, bool fits) {
  return std::any_of(kinds.begin(), kinds.end(), [&](std::size_t kind) {
    const auto of = [&](std::uint16_t strategy) {
      const std::vector<BlockChoice>& choices = costs.choices[kind];
      return std::find_if(choices.begin(), choices.end(),
                          [&](const BlockChoice& one) { return one.strategy == strategy; });
    };
    const auto before = of(from);
    const auto after = of(to);
    if (after == costs.choices[kind].end() || before == costs.choices[kind].end()) {
      return false;
    }
    const auto value = [&](const BlockChoice& one) {
      return fits ? std::max(one.forward + one.backward, one.gather + one.traffic)
                  : one.states + one.saved + one.overhead();
    };
    return value(*after) < value(*before);
  });
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
  const auto kinds_of = [&](std::size_t begin, std::size_t end) {
    std::set<std::size_t> kinds;
    std::size_t position = 0;
    for (std::size_t stage = 0; stage < end; ++stage) {
      for (std::size_t index = 0; index < lists[stage].size(); ++index, ++position) {
        if (stage >= begin) {
          kinds.insert(static_cast<std::size_t>(plan_.network.chain[position]));
        }
      }
    }
    return kinds;
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
        const std::set<std::size_t> kinds = kinds_of(stage, stage + 1);
        for (const std::uint16_t from : used) {
          for (const std::uint16_t to : costs.shared) {
            for (const bool all : {true, false}) {
              if (gains(costs, kinds, from, to, best.fits) &&
                  try_out(exchanged(lists, stage, from, to, all))) {
                return true;
              }
            }
          }
        }
      }
    }
    return false;
  };
  // Devices go through a chunk side by side: what one of them gains alone is lost to the others.
  const auto step_of_chunk = [&] {
    const auto devices = static_cast<std::size_t>(mesh.pp);
    for (std::size_t first = stages; first >= devices; first -= devices) {
      const std::size_t begin = first - devices;
      std::set<std::uint16_t> used;
      for (std::size_t stage = begin; stage < first; ++stage) {
        used.insert(lists[stage].begin(), lists[stage].end());
      }
      const std::set<std::size_t> kinds = kinds_of(begin, first);
      for (const std::uint16_t from : used) {
        for (const std::uint16_t to : costs.shared) {
          if (gains(costs, kinds, from, to, best.fits) &&
              try_out(exchanged_in_chunk(lists, begin, devices, from, to))) {
            return true;
          }
        }
      }
    }
    return false;
  };
  // Runs of neighbouring stages, long ones first: which strategy is best differs between stages
  // that fill and drain the pipeline and those that are busy all the time.
  const auto sweep_of_runs = [&] {
    bool gained = false;
    const std::vector<std::uint16_t> candidates = fast_candidates(plan_.network, costs, draft);
    for (std::size_t length = stages / 2; length > 0 && best.fits; length /= 2) {
      for (std::size_t first = 0; first + length <= stages; first += (length + 1) / 2) {
        for (const std::uint16_t to : candidates) {
          gained = try_out(replaced(lists, first, length, to)) || gained;
        }
      }
    }
    return gained;
  };
  while (budget > 0 && (step() || step_of_chunk() || sweep_of_runs())) {
  }
  result.draft = draft;
  result.fits = best.fits;
  result.time = best.time;
  result.excess = best.excess;
  result.simulated = simulated_;
  return result;
}

}  // namespace orrery::search
