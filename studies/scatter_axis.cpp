// SPDX-License-Identifier: Apache-2.0
#include "studies/scatter_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"

namespace orrery::studies {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double kMargin = 1.12;
constexpr double kLeastSpacing = 0.09;  // of the axis, between labels

bool crowded(const LogAxis& axis, const std::vector<Tick>& ticks) {
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    if (axis.place(ticks[i].value) - axis.place(ticks[i - 1].value) < kLeastSpacing) {
      return true;
    }
  }
  return false;
}

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
  constexpr std::array<std::array<bool, 9>, 4> kSteps = {{
      {true, true, true, true, true, true, true, true, true},
      {true, true, true, true, false, true, false, false, false},
      {true, true, false, false, true, false, false, false, false},
      {true, false, false, false, false, false, false, false, false},
  }};
  const int first = static_cast<int>(std::floor(std::log10(low_ / unit)));
  const int last = static_cast<int>(std::floor(std::log10(high_ / unit)));
  std::vector<Tick> ticks;  // the densest that leave room for their labels
  for (const auto& steps : kSteps) {
    ticks.clear();
    for (int decade = first; decade <= last; ++decade) {
      for (std::size_t digit = 1; digit <= steps.size(); ++digit) {
        const double value = static_cast<double>(digit) * std::pow(10.0, decade) * unit;
        if (steps[digit - 1] && value >= low_ && value <= high_) {
          ticks.push_back(
              {value, memory ? fmt::format("{:.3g}", value / unit) : quantity_label(value, false)});
        }
      }
    }
    if (!crowded(*this, ticks)) {
      break;
    }
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
