// SPDX-License-Identifier: Apache-2.0
// The axis of a picture over the values that it has to show, with a little room at both ends.
#pragma once

#include <vector>

namespace orrery::studies {

class PictureScale {
 public:
  explicit PictureScale(bool logarithmic = true) : logarithmic_(logarithmic) {}

  void add(double value);  // positive where the axis is logarithmic
  // Whether there is nothing to tell apart: no value, or one.
  bool is_point() const { return !(high_ > low_); }
  // 0 to 1 along the axis; the middle where there is one value.
  double place(double value) const;
  // Round multiples of `unit`, neighbours about `spacing` of the axis apart or more; none without
  // values.
  std::vector<double> ticks(double spacing, double unit = 1) const;

 private:
  double at(double place) const;

  bool logarithmic_;
  bool empty_ = true;
  double low_ = 0;
  double high_ = 0;
};

}  // namespace orrery::studies
