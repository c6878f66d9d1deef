// SPDX-License-Identifier: Apache-2.0
#include "studies/picture_scale.hpp"

#include <algorithm>
#include <cmath>

#include "base/axis.hpp"

namespace orrery::studies {
namespace {

constexpr double kRoom = 0.05;  // of the axis, free at either end

}  // namespace

void PictureScale::add(double value) {
  low_ = empty_ ? value : std::min(low_, value);
  high_ = empty_ ? value : std::max(high_, value);
  empty_ = false;
}

double PictureScale::place(double value) const {
  if (is_point()) {
    return 0.5;
  }
  const double share = logarithmic_ ? std::log(value / low_) / std::log(high_ / low_)
                                    : (value - low_) / (high_ - low_);
  return kRoom + (1 - 2 * kRoom) * share;
}

double PictureScale::at(double place) const {
  if (is_point()) {
    return low_;
  }
  const double share = (place - kRoom) / (1 - 2 * kRoom);
  return logarithmic_ ? low_ * std::pow(high_ / low_, share) : low_ + (high_ - low_) * share;
}

std::vector<double> PictureScale::ticks(double spacing, double unit) const {
  if (empty_) {
    return {};
  }
  std::vector<double> ticks =
      logarithmic_ ? logarithmic_ticks(at(0) / unit, at(1) / unit, spacing)
                   : linear_ticks(at(0) / unit, at(1) / unit, static_cast<int>(1 / spacing));
  for (double& tick : ticks) {
    tick *= unit;
  }
  return ticks;
}

}  // namespace orrery::studies
