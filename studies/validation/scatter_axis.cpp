// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/scatter_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/axis.hpp"
#include "base/error.hpp"

namespace orrery::studies {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double kMargin = 1.12;
constexpr double kLeastSpacing = 0.09;  // of the axis, between labels

}  // namespace

LogAxis::LogAxis(double low, double high) : low_(low / kMargin), high_(high * kMargin) {
  ORRERY_CHECK(low > 0 && low <= high && std::isfinite(high), "limits of a logarithmic axis");
  if (high_ < 2 * low_) {
    const double middle = std::sqrt(low_ * high_);
    low_ = middle / std::sqrt(2.0);
    high_ = middle * std::sqrt(2.0);
  }
}

double LogAxis::place(double value) const {
  const double at = std::log(std::max(value, low_) / low_) / std::log(high_ / low_);
  return std::clamp(at, 0.0, 1.0);
}

std::vector<Tick> LogAxis::ticks(bool memory) const {
  const double unit = memory ? kGibibyte : 1.0;
  std::vector<Tick> ticks;
  for (const double value : logarithmic_ticks(low_ / unit, high_ / unit, kLeastSpacing)) {
    ticks.push_back(
        {value * unit, memory ? fmt::format("{:.3g}", value) : quantity_label(value, false)});
  }
  return ticks;
}

std::string quantity_label(double value, bool memory) {
  if (memory) {
    return fmt::format("{:.3g} GiB", value / kGibibyte);
  }
  if (value < 1e-3) {
    return fmt::format("{:.3g} us", value * 1e6);
  }
  return value < 1 ? fmt::format("{:.3g} ms", value * 1e3) : fmt::format("{:.4g} s", value);
}

}  // namespace orrery::studies
