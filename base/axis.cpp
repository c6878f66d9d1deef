// SPDX-License-Identifier: Apache-2.0
#include "base/axis.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace orrery {
namespace {

constexpr double kLinearBelow = 2;  // ratio of the ends of a logarithmic axis
constexpr double kDigitsFrom = 10;  // the same, of one that has ticks at digits of decades anyway
constexpr std::size_t kFewTicks = 3;
constexpr double kWideGap = 0.4;    // of the axis, without a tick
constexpr int kMostDigits = 12;     // of labels, beyond the usual ones
constexpr int kMostDecades = 640;   // between the smallest and the largest double
constexpr double kRounding = 1e-9;  // of a step: an end that rounding put outside is inside

bool drawable(double low, double high) {
  return low <= high && std::isfinite(low) && std::isfinite(high) && std::isfinite(high - low);
}

bool crowded(const std::vector<double>& ticks, double low, double high, double spacing) {
  const double least = spacing * std::log(high / low);
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    if (std::log(ticks[i] / ticks[i - 1]) < least) {
      return true;
    }
  }
  return false;
}

// Every `stride`-th decade, at 1 to 9 times its power of ten where `digits` says so.
std::vector<double> decade_ticks(double low, double high, const std::array<bool, 9>& digits,
                                 int stride) {
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::floor(std::log10(high)));
  for (int decade = first; decade <= last; ++decade) {
    if (decade % stride != 0) {
      continue;
    }
    for (std::size_t digit = 1; digit <= digits.size(); ++digit) {
      const double value = static_cast<double>(digit) * std::pow(10.0, decade);
      if (digits[digit - 1] && value >= low && value <= high) {
        ticks.push_back(value);
      }
    }
  }
  return ticks;
}

// The largest part of the axis without a tick.
double widest_gap(const std::vector<double>& ticks, double low, double high) {
  double widest = 1;
  double before = low;
  for (const double tick : ticks) {
    widest = std::max(widest, tick / before);
    before = tick;
  }
  return std::log(std::max(widest, high / before)) / std::log(high / low);
}

std::vector<double> linear_ticks_with_room(double low, double high, double spacing) {
  for (int most = std::max(1, static_cast<int>(1 / spacing)); most > 1; --most) {
    std::vector<double> ticks = linear_ticks(low, high, most);
    if (!crowded(ticks, low, high, spacing)) {
      return ticks;
    }
  }
  return linear_ticks(low, high, 1);
}

// Of an axis of a factor of two at least.
std::vector<double> decade_ticks_with_room(double low, double high, double spacing) {
  constexpr std::array<std::array<bool, 9>, 4> kDigits = {{
      {true, true, true, true, true, true, true, true, true},
      {true, true, true, true, false, true, false, false, false},
      {true, true, false, false, true, false, false, false, false},
      {true, false, false, false, false, false, false, false, false},
  }};
  for (const auto& digits : kDigits) {
    std::vector<double> ticks = decade_ticks(low, high, digits, 1);
    if (!crowded(ticks, low, high, spacing)) {
      return ticks;
    }
  }
  for (int stride = 2; stride < kMostDecades; ++stride) {
    std::vector<double> ticks = decade_ticks(low, high, kDigits.back(), stride);
    if (!crowded(ticks, low, high, spacing)) {
      return ticks;
    }
  }
  return {};
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int most) {
  if (!drawable(low, high) || most < 1) {
    return {};
  }
  if (low == high) {
    return {low};
  }
  double power = std::pow(10.0, std::floor(std::log10((high - low) / most)));
  for (;; power *= 10) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double step = digit * power;
      const double first = std::ceil(low / step - kRounding);
      const double last = std::floor(high / step + kRounding);
      if (last - first + 1 > most) {
        continue;
      }
      std::vector<double> ticks;
      for (double at = first; at <= last; ++at) {
        ticks.push_back(at * step + 0.0);  // no negative zero
      }
      return ticks;
    }
  }
}

std::vector<double> logarithmic_ticks(double low, double high, double spacing) {
  if (!drawable(low, high) || low <= 0) {
    return {};
  }
  if (high < kLinearBelow * low) {
    return linear_ticks_with_room(low, high, spacing);
  }
  std::vector<double> ticks = decade_ticks_with_room(low, high, spacing);
  const double gap = widest_gap(ticks, low, high);
  if (high < kDigitsFrom * low && (ticks.size() < kFewTicks || gap > kWideGap)) {
    std::vector<double> linear = linear_ticks_with_room(low, high, spacing);
    if (widest_gap(linear, low, high) < gap) {
      return linear;
    }
  }
  return ticks;
}

std::vector<std::string> texts_apart(std::size_t count,
                                     const std::function<std::string(std::size_t, int)>& text) {
  std::vector<std::string> texts(count);
  for (int more = 0; more <= kMostDigits; ++more) {
    for (std::size_t i = 0; i < count; ++i) {
      texts[i] = text(i, more);
    }
    if (std::set<std::string>(texts.begin(), texts.end()).size() == count) {
      break;
    }
  }
  return texts;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks,
                                     const std::function<std::string(double, int)>& text) {
  // What lies half way between two ticks has a text of its own, too.
  std::vector<double> halves;
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    if (i > 0) {
      halves.push_back((ticks[i - 1] + ticks[i]) / 2);
    }
    halves.push_back(ticks[i]);
  }
  const std::vector<std::string> texts =
      texts_apart(halves.size(), [&](std::size_t i, int more) { return text(halves[i], more); });
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < texts.size(); i += 2) {
    labels.push_back(texts[i]);
  }
  return labels;
}

}  // namespace orrery
