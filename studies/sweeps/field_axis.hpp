// SPDX-License-Identifier: Apache-2.0
// Where the values of one field of a sweep lie along an axis of its picture, and their labels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "studies/picture_scale.hpp"
#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {

inline constexpr double kAxisFont = 10;  // of labels
inline constexpr double kNameLine = 15;  // pixels between names one above the other, or slanted

struct AxisLabel {
  double place = 0;  // 0 to 1 along the axis
  std::string text;
};

struct AxisLabels {
  std::vector<AxisLabel> labels;
  bool slanted = false;  // below the axis: too wide to stand side by side
};

class FieldAxis {
 public:
  // Listed values lie side by side in the order of their first point, those of a random design by
  // size; others by their numbers.
  FieldAxis(const Sweep& sweep, std::size_t field);

  bool is_listed() const { return scale_ == FieldScale::Listed; }
  // Whether there are values that no neighbours stand for: each has a label where lines have room.
  bool has_names() const { return has_names_; }
  // Without repetition, along the axis.
  const std::vector<std::string>& values() const { return values_; }
  std::size_t index(const std::string& value) const { return indices_.at(value); }
  // Of the middle of a value, 0 to 1.
  double place(const std::string& value) const;
  // As many as have room on an axis of so many pixels, beside each other or one above the other.
  AxisLabels labels_across(double pixels) const;
  std::vector<AxisLabel> labels_up(double pixels) const;

 private:
  // Of values, those that are so far apart, in pixels, where an axis gives each so many.
  std::vector<AxisLabel> listed(double apart, double pixels_each) const;
  std::vector<AxisLabel> numbered(double spacing) const;

  FieldScale scale_;
  std::vector<std::string> values_;
  std::vector<std::string> texts_;  // of the values
  bool has_names_ = false;
  std::map<std::string, std::size_t> indices_;
  PictureScale numbers_;
  std::string unit_;
};

}  // namespace orrery::studies
