// SPDX-License-Identifier: Apache-2.0
// Random neighbours of a draft, also slower ones at first (per_block/draft.hpp).
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/random.hpp"
#include "search/per_block/draft.hpp"

namespace orrery::search {

namespace {

constexpr std::int64_t kPerPosition = 80;  // neighbours that are tried
constexpr std::int64_t kMostMoves = 10'000;
constexpr std::int64_t kMostSwept = 130'000'000;  // passes of them together
constexpr int kAskedEvery = 50;                   // neighbours, whether to stop
// How much slower than the last plan the next one may be: so much of its time at first, at the end
// nothing.
constexpr double kHeat = 2e-5;
constexpr std::size_t kLongestRun = 8;  // positions that are changed together

// Neighbours of a draft, drawn alike on every machine.
class RandomMoves {
 public:
  RandomMoves(std::vector<std::uint16_t> candidates, bool moves_blocks, std::uint64_t seed)
      : candidates_(std::move(candidates)), first_kind_(moves_blocks ? 0 : 1), random_(seed) {}

  Draft neighbour(Draft draft) {
    switch (first_kind_ + below(kKinds - first_kind_)) {
      case 0:
        move_block(draft);
        break;
      case 1:
        change_position(draft);
        break;
      case 2:
        exchange(draft);
        break;
      case 3:
        change_stage(draft);
        break;
      default:
        change_run(draft);
    }
    return draft;
  }

 private:
  static constexpr std::size_t kKinds = 5;

  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_.below(count)); }
  std::uint16_t candidate() { return candidates_[below(candidates_.size())]; }

  static std::ptrdiff_t begin_of(const Draft& draft, std::size_t stage) {
    std::ptrdiff_t begin = 0;
    for (std::size_t before = 0; before < stage; ++before) {
      begin += draft.stages[before];
    }
    return begin;
  }

  void change_position(Draft& draft) {
    const std::uint16_t strategy = candidate();
    draft.strategies[below(draft.strategies.size())] = strategy;
  }

  void exchange(Draft& draft) {
    const std::size_t one = below(draft.strategies.size());
    const std::size_t other = below(draft.strategies.size());
    std::swap(draft.strategies[one], draft.strategies[other]);
  }

  // It keeps its strategy, or takes one that is there.
  void move_block(Draft& draft) {
    const std::size_t from = below(draft.stages.size());
    const std::size_t to = below(draft.stages.size());
    if (from == to || draft.stages[from] < 2) {
      return;
    }
    const auto count = [&](std::size_t stage) {
      return static_cast<std::size_t>(draft.stages[stage]);
    };
    const auto taken = draft.strategies.begin() + begin_of(draft, from) +
                       static_cast<std::ptrdiff_t>(below(count(from)));
    const auto there = draft.strategies.begin() + begin_of(draft, to) +
                       static_cast<std::ptrdiff_t>(below(count(to)));
    const std::uint16_t strategy = below(2) == 0 ? *taken : *there;
    draft.strategies.erase(taken);
    --draft.stages[from];
    const auto place = begin_of(draft, to) + static_cast<std::ptrdiff_t>(below(count(to) + 1));
    draft.strategies.insert(draft.strategies.begin() + place, strategy);
    ++draft.stages[to];
  }

  void change_stage(Draft& draft) {
    const std::size_t stage = below(draft.stages.size());
    const auto begin = draft.strategies.begin() + begin_of(draft, stage);
    std::fill(begin, begin + draft.stages[stage], candidate());
  }

  // Neighbouring positions, or every other one: stages of two blocks may have two strategies.
  void change_run(Draft& draft) {
    const std::size_t step = 1 + below(2);
    std::size_t position = below(draft.strategies.size());
    const std::uint16_t strategy = candidate();
    for (std::size_t left = 1 + below(kLongestRun); left > 0 && position < draft.strategies.size();
         --left, position += step) {
      draft.strategies[position] = strategy;
    }
  }

  std::vector<std::uint16_t> candidates_;
  std::size_t first_kind_;
  Random random_;
};

}  // namespace

DraftResult Drafter::anneal(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
                            Draft draft, std::vector<std::uint16_t> candidates, std::uint64_t seed,
                            const std::function<bool()>& stop) {
  simulated_ = 0;
  Score now = score(mesh, pipeline, costs, draft);
  DraftResult best{draft, now.fits, now.time, now.excess, simulated_};
  const std::int64_t passes =
      3 * plan_.num_micro_batches() * static_cast<std::int64_t>(draft.stages.size());
  const auto positions = static_cast<std::int64_t>(draft.strategies.size());
  const std::int64_t most = std::min({kPerPosition * positions, kMostMoves, kMostSwept / passes});
  RandomMoves moves(std::move(candidates), !space_.has_fixed_cut(), seed);
  for (std::int64_t tried = 0; tried < most; ++tried) {
    if (tried % kAskedEvery == 0 && stop()) {
      break;
    }
    Draft next = moves.neighbour(draft);
    if (next == draft) {
      continue;
    }
    const double left = 1.0 - static_cast<double>(tried) / static_cast<double>(most);
    const double longest = now.time.value() * (1.0 + kHeat * left);
    const auto limit = now.fits ? std::optional(Seconds(longest)) : std::nullopt;
    const Score changed = score(mesh, pipeline, costs, next, limit);
    const bool stays = changed.fits && now.fits ? changed.time.value() > longest : now < changed;
    if (stays) {
      continue;
    }
    now = changed;
    draft = std::move(next);
    if (now.fits && (!best.fits || now.time < best.time)) {
      best = {draft, true, now.time, ByteCount(), 0};
    }
  }
  best.simulated = simulated_;
  return best;
}

}  // namespace orrery::search
