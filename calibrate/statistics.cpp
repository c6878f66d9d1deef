// SPDX-License-Identifier: Apache-2.0
#include "calibrate/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/quantile.hpp"

namespace orrery::calibrate {
double rounded(double value, double per_unit) { return std::round(value * per_unit) / per_unit; }

Summary summarise(std::span<const double> values) {
  ORRERY_CHECK(!values.empty(), "statistics of no values");
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  Summary summary;
  summary.median = quantile(sorted, 0.5);
  summary.p25 = quantile(sorted, 0.25);
  summary.p75 = quantile(sorted, 0.75);
  summary.count = static_cast<std::int64_t>(sorted.size());
  const double half =
      1.57 * (summary.p75 - summary.p25) / std::sqrt(static_cast<double>(sorted.size()));
  summary.relative_interval = summary.median > 0 ? half / summary.median : 0;
  return summary;
}

void StopRule::add(double seconds) {
  values_.push_back(seconds);
  // Quartiles of many values change slowly; sorting them every time would cost more than it tells.
  if (values_.size() < 64 || values_.size() % 16 == 0) {
    interval_ = summarise(values_).relative_interval;
  }
}

bool StopRule::settled() const {
  return std::ssize(values_) >= settings_.min_repetitions && interval_ <= settings_.target;
}

bool StopRule::finished(double wall) const {
  if (std::ssize(values_) >= settings_.max_repetitions) {
    return true;
  }
  if (wall >= settings_.budget_seconds) {
    return !values_.empty();
  }
  return settled() && wall >= settings_.min_seconds;
}

ThrottleGuard::ThrottleGuard(double max_clock_mhz, double fraction, int max_discards)
    : floor_(max_clock_mhz * fraction), discards_left_(max_discards) {}

ThrottleGuard::Verdict ThrottleGuard::judge(double clock_mhz, bool slowed) {
  const bool slow = slowed || (clock_mhz > 0 && clock_mhz < floor_);
  if (!slow) {
    return Verdict::Keep;
  }
  if (discards_left_ == 0) {
    throttled_ = true;
    return Verdict::Keep;
  }
  --discards_left_;
  return Verdict::Discard;
}

TimeBudget::TimeBudget(double total_seconds, double total_weight, double longest_case)
    : total_(total_seconds), weight_left_(total_weight), longest_(longest_case) {}

double TimeBudget::next(double spent, double weight) {
  const double share = weight_left_ > weight ? weight / weight_left_ : 1.0;
  weight_left_ = std::max(0.0, weight_left_ - weight);
  return std::clamp((total_ - spent) * share, 0.0, longest_);
}

}  // namespace orrery::calibrate
