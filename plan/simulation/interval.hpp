// SPDX-License-Identifier: Apache-2.0
// The 80 % interval of an iteration time: the iteration is evaluated again for seeded draws of the
// errors of its parts (cost_factors.hpp), and 10 % of the times lie below the interval, 10 % above.
// The spreads are those of the profile and of the tables below; none is chosen by looking at
// measured iterations (docs/fidelity.md). Deterministic; draws x one evaluation.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "costmodel/profile.hpp"
#include "costmodel/site_spread.hpp"
#include "plan/block/cost_factors.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

struct TimeInterval {
  Seconds low;
  Seconds high;
};

// Of a class's variance, the part that all its operations share: the mean shift between two
// measurements of the same operations against the scatter about it. GEMM: three software stacks on
// A100 and H100 (shift 0.041, scatter 0.057); collectives: pairs of nccl-tests logs of one node
// (0.095 and 0.102); the others have no repeated table and take half.
inline constexpr double kSharedVarianceGemm = 0.34;
inline constexpr double kSharedVarianceOther = 0.5;
using costmodel::kSiteSpreadAttention;
using costmodel::kSiteSpreadGemm;
// Time of the host to launch a kernel: public figures lie between 5.5 and 10.8 us.
inline constexpr double kHostSpread = 0.25;
// A run is slowed by what no kernel table holds (stragglers, clocks, other jobs): repeats of one
// configuration differ by 0 to 8 % in published logs. Half-normal, to the slow side alone.
inline constexpr double kRunSpread = 0.04;

// Spreads of the profile for plans in a precision: those of products as wide as the left-out errors
// of the format imply, or wider where it was not measured, and so are those of experts.
costmodel::Spreads spreads_of(const costmodel::Profile& profile, DType precision);
inline costmodel::Spreads spreads_of(const Plan& plan) {
  return spreads_of(plan.profile, plan.precision);
}

// Of one operation of a class alone: the standard deviation of the logarithm of its time that the
// draws below have, and the interval that follows from it.
double deviation_of(const costmodel::Spreads& spreads, CostClass kind);
TimeInterval interval_of(const costmodel::Spreads& spreads, CostClass kind, Seconds nominal);

// `draws` samples, an even number; the second half negates the first.
std::vector<CostFactors> draw_factors(const costmodel::Spreads& spreads, int draws,
                                      std::uint64_t seed);

inline constexpr std::uint64_t kIntervalSeed = 0x0AAE21;

struct Draw {
  CostFactors factors;
  double slowdown = 1;  // of the run
};

// The same for every plan of one profile, so that times of two plans may be compared draw by draw.
std::vector<Draw> draw_errors(const costmodel::Spreads& spreads, int draws, std::uint64_t seed);

using TimeUnder = std::function<Seconds(const CostFactors&)>;

// Gives the time under a draw, on one thread or on several that have one each.
struct Timer {
  template <std::invocable<const CostFactors&> Alone>
  Timer(Alone alone) : own([alone = TimeUnder(std::move(alone))] { return alone; }) {}
  Timer(std::function<TimeUnder()> of_thread, int threads)
      : own(std::move(of_thread)), jobs(threads) {}

  std::function<TimeUnder()> own;
  int jobs = 1;  // 0: all cores
};

// The time under each draw, in their order; fewer where `stop`, asked before each, ended them, or
// one is beyond simulated time.
std::vector<Seconds> sampled_times(std::span<const Draw> draws, const Timer& timer,
                                   const std::function<bool()>& stop = {});

// `nominal` lies inside. Nothing where there are fewer.
std::optional<TimeInterval> sampled_interval(const costmodel::Spreads& spreads, Seconds nominal,
                                             int draws, const Timer& timer,
                                             const std::function<bool()>& stop = {});

}  // namespace orrery::plan
