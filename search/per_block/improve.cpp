// SPDX-License-Identifier: Apache-2.0
// Drafts that are simulated with their neighbours (per_block/draft.hpp).
#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <set>
#include <utility>

#include "plan/modules.hpp"
#include "search/per_block/draft.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kMostFast = 4;  // strategies that runs of stages are given
constexpr std::size_t kLightest = 4;  // devices that may take a block
// Exchanges of single blocks, no more than neighbours of a draft (worker.cpp): else none is tried.
constexpr std::size_t kMostSingle = 800;

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
  lists[from].erase(lists[from].begin() + static_cast<std::ptrdiff_t>(lists[from].size() / 2));
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

// Of a stage: what it hands on is as large as its last block makes it.
enum class Blocks : std::uint8_t { All, ButLast, Last };

// Of every stage of a run.
Lists replaced(Lists lists, std::size_t first, std::size_t count, Blocks blocks, std::uint16_t to) {
  for (std::size_t stage = first; stage < first + count; ++stage) {
    auto& list = lists[stage];
    std::fill(blocks == Blocks::Last ? list.end() - 1 : list.begin(),
              blocks == Blocks::ButLast ? list.end() - 1 : list.end(), to);
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

// One local search: the best draft so far, its neighbours, and how many more may be simulated.
class Drafter::Climb {
 public:
  Climb(Drafter& drafter, const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
        Draft draft, int budget, Moves moves)
      : drafter_(drafter),
        mesh_(mesh),
        pipeline_(pipeline),
        costs_(costs),
        draft_(std::move(draft)),
        lists_(lists_of(draft_)),
        best_(drafter.score(mesh, pipeline, costs, draft_)),
        budget_(budget),
        moves_(moves),
        devices_(drafter.last_.pipeline.devices) {}

  DraftResult run() {
    while (budget_ > 0 &&
           ((moves_ == Moves::Any &&
             (sweep_runs({Blocks::ButLast, Blocks::Last}) || move_anywhere())) ||
            relieve_devices() || leave_frozen_alone() || exchange_in_chunks() ||
            sweep_runs({Blocks::All}) || sweep_runs({Blocks::ButLast, Blocks::Last}) ||
            exchange_ends() || exchange_single_blocks())) {
    }
    return {draft_, best_.fits, best_.time, best_.excess, drafter_.simulated_};
  }

 private:
  bool try_out(const Lists& next) {
    Draft candidate = draft_of(next);
    std::vector<std::uint16_t> key = candidate.strategies;
    key.insert(key.end(), candidate.stages.begin(), candidate.stages.end());
    if (budget_ <= 0 || !seen_.insert(std::move(key)).second) {
      return false;
    }
    --budget_;
    const Score now = drafter_.score(mesh_, pipeline_, costs_, candidate, best_.limit());
    if (now < best_) {
      best_ = now;
      lists_ = next;
      draft_ = std::move(candidate);
      devices_ = drafter_.last_.pipeline.devices;
      return true;
    }
    return false;
  }

  // Of the blocks of stages [begin, end).
  std::set<std::size_t> kinds_of(std::size_t begin, std::size_t end) const {
    std::set<std::size_t> kinds;
    std::size_t position = 0;
    for (std::size_t stage = 0; stage < end; ++stage) {
      for (std::size_t index = 0; index < lists_[stage].size(); ++index, ++position) {
        if (stage >= begin) {
          kinds.insert(static_cast<std::size_t>(drafter_.plan_.network.chain[position]));
        }
      }
    }
    return kinds;
  }

  // How long each device is busy; of a plan that does not fit, how full it is.
  std::vector<double> loads() {
    std::vector<double> load(static_cast<std::size_t>(mesh_.pp), 0.0);
    if (best_.fits) {
      for (std::size_t device = 0; device < load.size(); ++device) {
        load[device] = static_cast<double>(devices_[device].busy.ps);
      }
      return load;
    }
    drafter_.space_.configure(mesh_, pipeline_, costs_.strategies, draft_, drafter_.plan_);
    const std::vector<plan::StageMemory> memory = drafter_.simulator_.memory(drafter_.plan_);
    for (std::size_t device = 0; device < load.size() && device < memory.size(); ++device) {
      load[device] = static_cast<double>(memory[device].total().value());
    }
    return load;
  }

  std::vector<std::size_t> stages_on(std::size_t device) const {
    std::vector<std::size_t> held;
    for (std::size_t stage = 0; stage < lists_.size(); ++stage) {
      if (pipeline_.placement.device_of[stage] == device) {
        held.push_back(stage);
      }
    }
    return held;
  }

  // The two devices with the most to do give a block away or take other strategies.
  bool relieve_devices() {
    const std::vector<double> load = loads();
    const auto order = ranked(load.size(), [&](std::size_t device) { return load[device]; });
    for (std::size_t rank = 0; rank < std::min<std::size_t>(order.size(), 2); ++rank) {
      for (const std::size_t stage : stages_on(order[rank])) {
        if (move_block(stage, order, rank) || exchange_in_stage(stage)) {
          return true;
        }
      }
    }
    return false;
  }

  // To a stage of one of the kLightest devices with less to do than that of place `rank`.
  bool move_block(std::size_t stage, const std::vector<std::size_t>& order, std::size_t rank) {
    if (drafter_.space_.has_fixed_cut() || lists_[stage].size() < 2) {
      return false;
    }
    const std::size_t last = order.size() > kLightest ? order.size() - kLightest : 0;
    for (std::size_t light = order.size(); light-- > std::max(last, rank + 1);) {
      for (const std::size_t other : stages_on(order[light])) {
        if (other != stage && try_out(moved(lists_, stage, other))) {
          return true;
        }
      }
    }
    return false;
  }

  // A block from any stage to any other; what is faster is kept at once.
  bool move_anywhere() {
    if (drafter_.space_.has_fixed_cut() || !best_.fits) {
      return false;
    }
    bool gained = false;
    for (std::size_t from = 0; from < lists_.size() && budget_ > 0; ++from) {
      for (std::size_t to = 0; to < lists_.size(); ++to) {
        const bool can_give = from != to && lists_[from].size() > 1;
        gained = (can_give && try_out(moved(lists_, from, to))) || gained;
      }
    }
    return gained;
  }

  // A stage that ends with the last frozen block takes no gradient, whatever its neighbour gains.
  bool leave_frozen_alone() {
    auto frozen = static_cast<std::size_t>(plan::frozen_positions(drafter_.plan_.network));
    std::size_t stage = 0;
    while (stage < lists_.size() && frozen >= lists_[stage].size()) {
      frozen -= lists_[stage++].size();
    }
    if (drafter_.space_.has_fixed_cut() || frozen == 0 || stage + 1 >= lists_.size()) {
      return false;
    }
    Lists next = lists_;
    const auto trained = next[stage].begin() + static_cast<std::ptrdiff_t>(frozen);
    next[stage + 1].insert(next[stage + 1].begin(), trained, next[stage].end());
    next[stage].erase(trained, next[stage].end());
    return try_out(next);
  }

  bool exchange_in_stage(std::size_t stage) {
    const std::set<std::uint16_t> used(lists_[stage].begin(), lists_[stage].end());
    const std::set<std::size_t> kinds = kinds_of(stage, stage + 1);
    for (const std::uint16_t from : used) {
      for (const std::uint16_t to : costs_.shared) {
        for (const bool all : {true, false}) {
          if (gains(costs_, kinds, from, to, best_.fits) &&
              try_out(exchanged(lists_, stage, from, to, all))) {
            return true;
          }
        }
      }
    }
    return false;
  }

  // Devices go through a chunk side by side: what one of them gains alone is lost to the others.
  bool exchange_in_chunks() {
    const auto devices = static_cast<std::size_t>(mesh_.pp);
    for (std::size_t end = lists_.size(); end >= devices; end -= devices) {
      const std::size_t begin = end - devices;
      std::set<std::uint16_t> used;
      for (std::size_t stage = begin; stage < end; ++stage) {
        used.insert(lists_[stage].begin(), lists_[stage].end());
      }
      const std::set<std::size_t> kinds = kinds_of(begin, end);
      for (const std::uint16_t from : used) {
        for (const std::uint16_t to : costs_.shared) {
          if (gains(costs_, kinds, from, to, best_.fits) &&
              try_out(exchanged_in_chunk(lists_, begin, devices, from, to))) {
            return true;
          }
        }
      }
    }
    return false;
  }

  // Runs of neighbouring stages, long ones first: which strategy is best differs between stages
  // that fill and drain the pipeline and those that are busy all the time; and of one stage, where
  // the last block says how much is handed on.
  bool sweep_runs(std::initializer_list<Blocks> parts) {
    bool gained = false;
    const std::size_t stages = lists_.size();
    const std::vector<std::uint16_t> candidates =
        fast_candidates(drafter_.plan_.network, costs_, draft_);
    for (std::size_t length = stages / 2; length > 0 && best_.fits; length /= 2) {
      for (std::size_t first = 0; first + length <= stages; first += (length + 1) / 2) {
        for (const std::uint16_t to : candidates) {
          for (const Blocks blocks : parts) {
            gained = try_out(replaced(lists_, first, length, blocks, to)) || gained;
          }
        }
      }
    }
    return gained;
  }

  // The first block of all, and the last: embedding and head are unlike the layers beside them.
  bool exchange_ends() {
    for (const std::uint16_t to : costs_.shared) {
      Lists first = lists_;
      first.front().front() = to;
      Lists last = lists_;
      last.back().back() = to;
      if (try_out(first) || try_out(last)) {
        return true;
      }
    }
    return false;
  }

  // Any block alone, in networks of few: there one is much of the whole.
  bool exchange_single_blocks() {
    const std::vector<int>& chain = drafter_.plan_.network.chain;
    std::size_t exchanges = 0;
    for (const int block : chain) {
      exchanges += costs_.choices[static_cast<std::size_t>(block)].size();
    }
    bool gained = false;
    std::size_t position = 0;
    for (std::size_t stage = 0; stage < lists_.size() && exchanges <= kMostSingle; ++stage) {
      for (std::size_t index = 0; index < lists_[stage].size(); ++index, ++position) {
        for (const BlockChoice& choice :
             costs_.choices[static_cast<std::size_t>(chain[position])]) {
          Lists next = lists_;
          next[stage][index] = choice.strategy;
          gained = try_out(next) || gained;
        }
      }
    }
    return gained;
  }

  Drafter& drafter_;
  const StageMesh& mesh_;
  const Pipeline& pipeline_;
  const MeshCosts& costs_;
  Draft draft_;
  Lists lists_;  // of draft_
  Score best_;   // of draft_
  int budget_;
  Moves moves_;
  std::vector<sim::DeviceUse> devices_;  // of draft_, where it fits
  std::set<std::vector<std::uint16_t>> seen_;
};

DraftResult Drafter::improve(const StageMesh& mesh, const Pipeline& pipeline,
                             const MeshCosts& costs, Draft draft, int budget, Moves moves) {
  simulated_ = 0;
  return Climb(*this, mesh, pipeline, costs, std::move(draft), budget, moves).run();
}

}  // namespace orrery::search
