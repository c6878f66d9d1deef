// SPDX-License-Identifier: Apache-2.0
// Where the values of one field of a sweep lie along an axis of its picture, and their labels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "studies/picture_scale.hpp"
#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {

struct AxisLabel {
  double place = 0;  // 0 to 1 along the axis
  std::string text;
};

class FieldAxis {
 public:
  // Listed values lie side by side in the order of their first point, those of a random design by
  // size; others by their numbers.
  FieldAxis(const Sweep& sweep, std::size_t field);

  bool is_listed() const { return scale_ == FieldScale::Listed; }
  // Without repetition, along the axis.
  const std::vector<std::string>& values() const { return values_; }
  std::size_t index(const std::string& value) const { return indices_.at(value); }
  // Of the middle of a value, 0 to 1.
  double place(const std::string& value) const;
  // As many as have room on an axis of so many pixels, beside each other or one above the other.
  std::vector<AxisLabel> labels_across(double pixels) const;
  std::vector<AxisLabel> labels_up(double pixels) const;

 private:
  // Every `stride`-th value, cut to `characters`.
  std::vector<AxisLabel> listed(std::size_t stride, std::size_t characters) const;
  std::vector<AxisLabel> numbered(double spacing) const;

  FieldScale scale_;
  std::vector<std::string> values_;
  std::map<std::string, std::size_t> indices_;
  PictureScale numbers_;
  std::string unit_;
};

}  // namespace orrery::studies
