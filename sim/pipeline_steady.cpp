// SPDX-License-Identifier: Apache-2.0
// The steady-state shortcut. A periodic list makes the times a max-plus linear recurrence: what
// happens from a cut on depends only on the device free times and on the ends still to be read. When
// these are the same at two cuts but for one constant, everything between the later cut and the end
// of the periodic stretch is a shifted copy of what lies between the two, and is skipped.
#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/random.hpp"
#include "sim/pipeline_sweep.hpp"

namespace orrery::sim::detail {
namespace {

bool is_shifted(const Pass& a, const Pass& b, std::uint32_t micro_batches) {
  return a.kind == b.kind && a.virtual_stage == b.virtual_stage &&
         b.micro_batch - a.micro_batch == micro_batches;
}

// The longest periodic run around list[anchor] with the given shift, at least four periods long.
std::optional<PeriodicRun> run_around(const std::vector<Pass>& list, std::size_t anchor,
                                      std::uint32_t micro_batches, std::size_t max_period) {
  const std::size_t limit = std::min(list.size(), anchor + max_period + 1);
  std::size_t next = anchor + 1;
  while (next < limit && !is_shifted(list[anchor], list[next], micro_batches)) {
    ++next;
  }
  if (next >= limit) {
    return std::nullopt;
  }
  const std::size_t period = next - anchor;
  std::size_t end = next + 1;
  while (end < list.size() && is_shifted(list[end - period], list[end], micro_batches)) {
    ++end;
  }
  std::size_t begin = anchor;
  while (begin > 0 && is_shifted(list[begin - 1], list[begin - 1 + period], micro_batches)) {
    --begin;
  }
  constexpr std::size_t kMinPeriods = 4;
  if (end - begin < kMinPeriods * period) {
    return std::nullopt;
  }
  return PeriodicRun{begin, end, period, micro_batches};
}

// The periodic runs of one list. Lists that keep all their chunks going repeat over most of their
// length; lists that finish one kind of pass after the other have one run for each kind.
std::vector<PeriodicRun> runs_of(const std::vector<Pass>& list, std::uint32_t stages,
                                 std::size_t passes_per_micro_batch) {
  const auto find = [&](std::size_t anchor) {
    auto run = run_around(list, anchor, 1, passes_per_micro_batch);
    return run || stages == 1 ? run
                              : run_around(list, anchor, stages, passes_per_micro_batch * stages);
  };
  const auto middle = find(list.size() / 2);
  if (middle && middle->end - middle->begin > list.size() / 2) {
    return {*middle};
  }
  std::vector<PeriodicRun> runs;
  for (std::size_t k = 0; k < passes_per_micro_batch; ++k) {
    const std::size_t anchor = (2 * k + 1) * list.size() / (2 * passes_per_micro_batch);
    if (!runs.empty() && anchor < runs.back().end) {
      continue;
    }
    if (auto run = find(anchor)) {
      run->begin = runs.empty() ? run->begin : std::max(run->begin, runs.back().end);
      runs.push_back(*run);
    }
  }
  return runs;
}

// What decides the future at a cut: relative to the first device's free time.
struct Cut {
  std::int64_t base = 0;
  std::vector<std::int64_t> key;
  std::vector<std::int64_t> waiting;  // per device
};

class SteadyPhase {
 public:
  SteadyPhase(PipelineSweep& sweep, const std::vector<PeriodicRun>& runs)
      : sweep_(sweep), runs_(runs), in_block_(sweep.num_lanes(), false) {}

  bool run();

 private:
  bool find_block();
  // The smallest set of passes closed under dependencies in which every device has begun its run
  // and finished `round` periods: lists that repeat make these sets repeat, too.
  bool advance_to(std::size_t round);
  std::int64_t rounds_left() const;
  Cut cut_at(std::size_t round) const;
  std::int64_t windows_to_skip(const Cut& earlier, std::int64_t rounds) const;

  static constexpr std::size_t kHistory = 1024;  // cuts kept for comparison
  PipelineSweep& sweep_;
  const std::vector<PeriodicRun>& runs_;
  std::vector<bool> in_block_;  // lanes that advance in this phase
};

// False when a period does not hold as many passes of a lane as micro-batches lie between periods.
bool SteadyPhase::find_block() {
  std::vector<std::uint32_t> passes(in_block_.size(), 0);
  for (std::size_t d = 0; d < runs_.size(); ++d) {
    if (runs_[d].begin + runs_[d].period > runs_[d].end) {
      return false;
    }
    for (std::size_t k = 0; k < runs_[d].period; ++k) {
      const Pass& pass = sweep_.device(d).list[runs_[d].begin + k];
      ++passes[static_cast<std::size_t>(sweep_.pass_class(pass).lane)];
    }
  }
  for (std::size_t lane = 0; lane < passes.size(); ++lane) {
    in_block_[lane] = passes[lane] > 0;
    if (in_block_[lane] && passes[lane] != runs_[0].micro_batches) {
      return false;
    }
  }
  return true;
}

bool SteadyPhase::advance_to(std::size_t round) {
  for (std::size_t d = 0; d < runs_.size(); ++d) {
    if (!sweep_.run_to(d, runs_[d].begin + round * runs_[d].period)) {
      return false;
    }
  }
  return true;
}

// Whole periods that every device can run before the last one of its run. The last one is never
// skipped: it holds the last pass of each virtual stage and, if memory grows, its peak.
std::int64_t SteadyPhase::rounds_left() const {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  for (std::size_t d = 0; d < runs_.size(); ++d) {
    const auto end = static_cast<std::int64_t>(runs_[d].end);
    const auto position = static_cast<std::int64_t>(sweep_.device(d).position);
    const auto period = static_cast<std::int64_t>(runs_[d].period);
    left = std::min(left, end < position ? -1 : (end - position) / period - 1);
  }
  return left;
}

Cut SteadyPhase::cut_at(std::size_t round) const {
  Cut cut;
  cut.base = sweep_.device(0).free;
  cut.key.reserve(4 * runs_.size());
  for (std::size_t d = 0; d < runs_.size(); ++d) {
    const DeviceState& device = sweep_.device(d);
    const std::size_t offset = device.position - runs_[d].begin - round * runs_[d].period;
    cut.key.push_back(device.free - cut.base);
    cut.key.push_back(static_cast<std::int64_t>(offset * 4) +
                      static_cast<std::int64_t>(device.phase));
    cut.waiting.push_back(device.waiting);
  }
  for (std::size_t lane = 0; lane < in_block_.size(); ++lane) {
    const std::int32_t consumer = sweep_.consumer_of(lane);
    if (consumer == kNoLane || !in_block_[lane] ||
        !in_block_[static_cast<std::size_t>(consumer)]) {
      continue;
    }
    cut.key.push_back(sweep_.done(lane) - sweep_.done(static_cast<std::size_t>(consumer)));
    for (std::uint32_t j = sweep_.done(static_cast<std::size_t>(consumer));
         j < sweep_.done(lane); ++j) {
      cut.key.push_back(sweep_.end_of(lane, j) - cut.base);
    }
  }
  return cut;
}

// Windows of `rounds` rounds that can be skipped. Inputs of which the producer is at rest in this
// phase must have arrived before the first of the two equal cuts, so that they decide nothing.
std::int64_t SteadyPhase::windows_to_skip(const Cut& earlier, std::int64_t rounds) const {
  std::int64_t left = rounds_left();
  const std::int64_t step = runs_[0].micro_batches;
  for (std::size_t lane = 0; lane < in_block_.size(); ++lane) {
    const std::int32_t consumer = sweep_.consumer_of(lane);
    if (consumer == kNoLane || in_block_[lane] || !in_block_[static_cast<std::size_t>(consumer)]) {
      continue;
    }
    const auto c = static_cast<std::size_t>(consumer);
    const std::int64_t waiting = std::int64_t{sweep_.done(lane)} - sweep_.done(c);
    left = std::min(left, waiting / step);
    const std::int64_t free = earlier.base + earlier.key[2 * sweep_.device_of_lane(c)];
    if (waiting > 0 &&
        sweep_.end_of(lane, sweep_.done(lane) - 1) + sweep_.latency_of(lane) > free) {
      return 0;
    }
  }
  return std::max<std::int64_t>(left, 0) / rounds;
}

bool SteadyPhase::run() {
  if (!find_block()) {
    return true;
  }
  std::vector<Cut> history(kHistory);
  std::unordered_map<std::uint64_t, std::size_t> last_seen;  // hash of a key to its round
  for (std::size_t round = 0;; ++round) {
    if (!advance_to(round)) {
      return false;
    }
    if (rounds_left() < 1) {
      return true;
    }
    Cut cut = cut_at(round);
    std::uint64_t hash = cut.key.size();
    for (const std::int64_t value : cut.key) {
      hash = mix64(hash ^ static_cast<std::uint64_t>(value));
    }
    const auto [seen, is_new] = last_seen.try_emplace(hash, round);
    if (!is_new && round - seen->second < kHistory &&
        history[seen->second % kHistory].key == cut.key) {
      const Cut& earlier = history[seen->second % kHistory];
      const auto rounds = static_cast<std::int64_t>(round - seen->second);
      const std::int64_t windows = windows_to_skip(earlier, rounds);
      if (windows > 0) {
        PipelineSweep::Skip skip{.windows = windows,
                                 .periods = rounds,
                                 .shift = cut.base - earlier.base,
                                 .micro_batches = static_cast<std::uint32_t>(rounds) *
                                                  runs_[0].micro_batches,
                                 .period = {},
                                 .waiting = {}};
        for (std::size_t d = 0; d < runs_.size(); ++d) {
          skip.period.push_back(runs_[d].period);
          skip.waiting.push_back(cut.waiting[d] - earlier.waiting[d]);
        }
        sweep_.skip(skip);
        return true;
      }
    }
    seen->second = round;
    history[round % kHistory] = std::move(cut);
  }
}

}  // namespace

std::vector<std::vector<PeriodicRun>> periodic_phases(const PipelineOrder& order) {
  std::vector<std::vector<PeriodicRun>> phases;
  const auto stages = static_cast<std::uint32_t>(order.passes.size());
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    const std::vector<Pass>& list = order.passes[d];
    const auto micro_batches = static_cast<std::size_t>(order.micro_batches);
    const std::vector<PeriodicRun> runs =
        list.size() < micro_batches ? std::vector<PeriodicRun>{}
                                    : runs_of(list, stages, list.size() / micro_batches);
    if (runs.empty() || (d > 0 && runs.size() != phases.size())) {
      return {};
    }
    phases.resize(runs.size());
    for (std::size_t k = 0; k < runs.size(); ++k) {
      phases[k].push_back(runs[k]);
    }
  }
  for (std::vector<PeriodicRun>& runs : phases) {
    std::uint32_t common = 1;
    for (const PeriodicRun& run : runs) {
      common = std::max(common, run.micro_batches);
    }
    for (PeriodicRun& run : runs) {
      run.period *= common / run.micro_batches;  // each is 1 or the number of stages
      run.micro_batches = common;
    }
  }
  return phases;
}

bool run_phase(PipelineSweep& sweep, const std::vector<PeriodicRun>& runs) {
  return SteadyPhase(sweep, runs).run();
}

}  // namespace orrery::sim::detail
