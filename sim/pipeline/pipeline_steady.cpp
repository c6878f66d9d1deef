// SPDX-License-Identifier: Apache-2.0
// The steady-state shortcut. A periodic list makes the times a max-plus linear recurrence: what
// happens from a cut on depends only on the device free times and on the ends still to be read.
// When these are the same at two cuts but for a constant (one for all devices, or one for each as
// long as no device depends on a slower one), everything between the later cut and the end of the
// periodic stretch is a shifted copy of what lies between the two, and is skipped.
#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/random.hpp"
#include "sim/pipeline/pipeline_sweep.hpp"

namespace orrery::sim::detail {
namespace {

// One comparison instead of three branches: this runs over whole lists.
bool is_shifted(const Pass& a, const Pass& b, std::uint32_t micro_batches) {
  const auto kind = static_cast<std::uint32_t>(a.kind) ^ static_cast<std::uint32_t>(b.kind);
  const auto stage = static_cast<std::uint32_t>(a.virtual_stage ^ b.virtual_stage);
  return (kind | stage | ((b.micro_batch - a.micro_batch) ^ micro_batches)) == 0;
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
  const auto length = [](const std::optional<PeriodicRun>& run) {
    return run ? run->end - run->begin : 0;
  };
  const auto find = [&](std::size_t anchor) {
    const auto single = run_around(list, anchor, 1, passes_per_micro_batch);
    if (stages == 1 || length(single) > list.size() / 2) {
      return single;
    }
    const auto group = run_around(list, anchor, stages, passes_per_micro_batch * stages);
    return length(group) > length(single) ? group : single;
  };
  const auto middle = find(list.size() / 2);
  if (length(middle) > list.size() / 2) {
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

// What decides the future at a cut.
struct Cut {
  std::vector<std::int64_t> free;     // per device
  std::vector<std::int64_t> waiting;  // per device, so far
  // Offsets in the lists, and the ends still to be read relative to the producer's free time.
  std::vector<std::int64_t> key;
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
  void take_cut(std::size_t round);
  std::uint64_t hash_of(const Cut& cut) const;
  bool try_skip(std::size_t earlier_round, std::size_t round);
  bool is_steady(const Cut& earlier, const Cut& cut, std::int64_t rounds) const;
  std::int64_t windows_to_skip(const Cut& earlier, std::int64_t rounds) const;

  static constexpr std::size_t kHistory = 256;  // cuts kept for comparison
  PipelineSweep& sweep_;
  const std::vector<PeriodicRun>& runs_;
  std::vector<bool> in_block_;            // lanes that advance in this phase
  std::vector<std::size_t> block_lanes_;  // of those, the ones whose consumers advance, too
  std::vector<std::size_t> idle_inputs_;  // lanes at rest whose consumers advance
  std::vector<Cut> history_;
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
  for (std::size_t lane = 0; lane < passes.size(); ++lane) {
    if (sweep_.is_read_by(lane, in_block_)) {
      (in_block_[lane] ? block_lanes_ : idle_inputs_).push_back(lane);
    }
  }
  return sweep_.is_plain() || idle_inputs_.empty();
}

bool SteadyPhase::advance_to(std::size_t round) {
  for (std::size_t d = 0; d < runs_.size(); ++d) {
    const std::size_t goal = runs_[d].begin + round * runs_[d].period;
    if (sweep_.device(d).position < goal && !sweep_.run_to(d, goal)) {
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

void SteadyPhase::take_cut(std::size_t round) {
  if (history_.size() < kHistory && round % kHistory == history_.size()) {
    history_.emplace_back();
  }
  Cut& cut = history_[round % kHistory];
  cut.free.clear();
  cut.free.reserve(runs_.size());
  cut.waiting.clear();
  cut.waiting.reserve(runs_.size());
  cut.key.clear();
  cut.key.reserve(history_[round > 0 ? (round - 1) % kHistory : 0].key.size());
  for (std::size_t d = 0; d < runs_.size(); ++d) {
    const DeviceState& device = sweep_.device(d);
    const std::size_t offset = device.position - runs_[d].begin - round * runs_[d].period;
    cut.free.push_back(device.free);
    cut.waiting.push_back(device.waiting);
    cut.key.push_back(static_cast<std::int64_t>(offset * 4) +
                      static_cast<std::int64_t>(device.phase));
  }
  for (const std::size_t lane : block_lanes_) {
    const std::int64_t free = cut.free[sweep_.device_of_lane(lane)];
    const std::uint32_t read = sweep_.first_unread(lane);
    cut.key.push_back(sweep_.done(lane) - read);
    for (std::uint32_t j = read; j < sweep_.done(lane); ++j) {
      cut.key.push_back(sweep_.end_of(lane, j) - free);
    }
  }
}

// Equal for cuts that differ by one constant in time.
std::uint64_t SteadyPhase::hash_of(const Cut& cut) const {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t hash = 0;
  std::uint64_t factor = kOdd;
  for (const std::int64_t value : cut.key) {
    hash += static_cast<std::uint64_t>(value) * factor;
    factor += 2 * kOdd;
  }
  for (const std::int64_t value : cut.free) {
    hash += static_cast<std::uint64_t>(value - cut.free[0]) * factor;
    factor += 2 * kOdd;
  }
  return mix64(hash);
}

// Whether the future after `cut` is the one after `earlier`, with every time of a device shifted by
// what its free time has moved. By induction over the passes: own free time and inputs shift alike,
// or the input comes from a device that moves by less and already did not matter in between.
bool SteadyPhase::is_steady(const Cut& earlier, const Cut& cut, std::int64_t rounds) const {
  if (earlier.key != cut.key) {
    return false;
  }
  const auto shift = [&](std::size_t lane) {
    const std::size_t d = sweep_.device_of_lane(lane);
    return cut.free[d] - earlier.free[d];
  };
  for (std::size_t lane = 0; lane < in_block_.size(); ++lane) {
    if (in_block_[lane] && sweep_.done(lane) <= rounds * runs_[0].micro_batches) {
      return false;  // the first pass of a virtual stage can take longer
    }
  }
  if (!sweep_.is_plain()) {  // one constant for all
    const std::int64_t first = cut.free[0] - earlier.free[0];
    for (std::size_t d = 1; d < cut.free.size(); ++d) {
      if (cut.free[d] - earlier.free[d] != first) {
        return false;
      }
    }
    return true;
  }
  for (const std::size_t lane : block_lanes_) {
    const auto consumer = static_cast<std::size_t>(sweep_.consumer_of(lane));
    const std::int64_t done_before = sweep_.done(consumer) - rounds * runs_[0].micro_batches;
    const bool mattered = sweep_.waited_until(consumer) > done_before;
    if (shift(lane) > shift(consumer) || (mattered && shift(lane) < shift(consumer))) {
      return false;
    }
  }
  return true;
}

// Windows of `rounds` rounds that can be skipped. Inputs of which the producer is at rest in this
// phase must have arrived before the first of the two cuts, so that they decide nothing.
std::int64_t SteadyPhase::windows_to_skip(const Cut& earlier, std::int64_t rounds) const {
  std::int64_t left = rounds_left();
  for (const std::size_t lane : idle_inputs_) {
    const auto consumer = static_cast<std::size_t>(sweep_.consumer_of(lane));
    const std::int64_t unread = std::int64_t{sweep_.done(lane)} - sweep_.done(consumer);
    left = std::min(left, unread / runs_[0].micro_batches);
    if (unread > 0 && sweep_.end_of(lane, sweep_.done(lane) - 1) + sweep_.latency_of(lane) >
                          earlier.free[sweep_.device_of_lane(consumer)]) {
      return 0;
    }
  }
  return std::max<std::int64_t>(left, 0) / rounds;
}

bool SteadyPhase::try_skip(std::size_t earlier_round, std::size_t round) {
  const Cut& earlier = history_[earlier_round % kHistory];
  const Cut& cut = history_[round % kHistory];
  const auto rounds = static_cast<std::int64_t>(round - earlier_round);
  const std::int64_t windows = windows_to_skip(earlier, rounds);
  if (windows == 0 || !is_steady(earlier, cut, rounds)) {
    return false;
  }
  PipelineSweep::Skip skip{
      .windows = windows,
      .periods = rounds,
      .micro_batches = static_cast<std::uint32_t>(rounds) * runs_[0].micro_batches,
      .shift = {},
      .waiting = {},
      .period = {}};
  for (std::size_t d = 0; d < runs_.size(); ++d) {
    skip.shift.push_back(cut.free[d] - earlier.free[d]);
    skip.waiting.push_back(cut.waiting[d] - earlier.waiting[d]);
    skip.period.push_back(runs_[d].period);
  }
  sweep_.skip(skip);
  return true;
}

bool SteadyPhase::run() {
  if (!find_block()) {
    return true;
  }
  std::unordered_map<std::uint64_t, std::size_t> last_seen;  // hash of a cut to its round
  for (std::size_t round = 0;; ++round) {
    if (!advance_to(round)) {
      return false;
    }
    if (rounds_left() < 1) {
      return true;
    }
    take_cut(round);
    const auto [seen, is_new] = last_seen.try_emplace(hash_of(history_[round % kHistory]), round);
    const bool recent = !is_new && round - seen->second < kHistory;
    if ((recent && try_skip(seen->second, round)) || (round > 0 && try_skip(round - 1, round))) {
      return true;
    }
    seen->second = round;
  }
}

}  // namespace

std::vector<std::vector<PeriodicRun>> periodic_phases(const PipelineOrder& order) {
  std::vector<std::vector<PeriodicRun>> phases;
  const auto stages = static_cast<std::uint32_t>(order.passes.size());
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    const std::vector<Pass>& list = order.passes[d];
    const auto micro_batches = static_cast<std::size_t>(order.micro_batches);
    const std::vector<PeriodicRun> runs = list.size() < micro_batches
                                              ? std::vector<PeriodicRun>{}
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
