// SPDX-License-Identifier: Apache-2.0
// Robust statistics of repeated timings and the rule that ends a measurement: median and quartiles,
// the half-width of the median's 95 % confidence interval (1.57 x interquartile range / sqrt(n),
// McGill, Tukey and Larsen 1978), so that single outliers move nothing. Seconds, O(n log n).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace orrery::calibrate {

struct Summary {
  double median = 0;
  double p25 = 0;
  double p75 = 0;
  double relative_interval = 0;  // half-width of the median's 95 % interval over the median
  std::int64_t count = 0;
};

// Quantiles interpolate linearly between order statistics. `values` must not be empty.
Summary summarise(std::span<const double> values);

inline constexpr double kDeviationOfMedian = 1.4826;  // standard over median absolute deviation

// The nearest multiple of 1 / `per_unit`: what profiles state, for people to read.
double rounded(double value, double per_unit);

struct StopSettings {
  int min_repetitions = 5;
  int max_repetitions = 400;
  double target = 0.005;        // relative interval that is small enough
  double min_seconds = 0.02;    // of wall time, so that the clock has settled under load
  double budget_seconds = 0.2;  // wall time of the whole measurement
};

// Fed after each repetition; ends when the median is known well enough or the budget is spent.
class StopRule {
 public:
  explicit StopRule(const StopSettings& settings) : settings_(settings) {}
  void add(double seconds);
  // `wall` is the time since the measurement began, discarded repetitions included.
  bool finished(double wall) const;
  bool settled() const;  // the target was reached
  std::span<const double> values() const { return values_; }

 private:
  StopSettings settings_;
  std::vector<double> values_;
  double interval_ = 1;
};

// Whether a repetition counts, by the SM clock read right after it: throttled ones are repeated,
// and when too many are, the measurement is kept and marked.
class ThrottleGuard {
 public:
  enum class Verdict { Keep, Discard };
  // Clocks below `fraction` of the largest mean that the chip cools down or saves power.
  explicit ThrottleGuard(double max_clock_mhz, double fraction = 0.5, int max_discards = 20);
  // clock 0: unknown, always kept. `slowed`: the driver reports a thermal or power-brake slowdown.
  Verdict judge(double clock_mhz, bool slowed);
  bool throttled() const { return throttled_; }  // the allowance was used up

 private:
  double floor_;
  int discards_left_;
  bool throttled_ = false;
};

// Splits a time budget over cases by weight: each gets its share of what is left, so what one saves
// the others use, and none starves.
class TimeBudget {
 public:
  TimeBudget(double total_seconds, double total_weight, double longest_case);
  // Seconds for the next case, given the seconds spent so far; 0 when there are none left.
  double next(double spent, double weight);

 private:
  double total_;
  double weight_left_;
  double longest_;
};

}  // namespace orrery::calibrate
