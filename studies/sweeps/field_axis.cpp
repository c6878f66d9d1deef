// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/field_axis.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "studies/sweeps/value_labels.hpp"

namespace orrery::studies {
namespace {

constexpr double kLabelCharacter = 6.4;  // width of a character, in pixels
constexpr double kLabelLine = 22;        // between two labels one above the other
constexpr std::size_t kMostAcross = 24;  // characters of a label below an axis
constexpr std::size_t kMostBeside = 12;  // characters of a label beside an axis
constexpr double kNumberAcross = 80;     // pixels between two numbers below an axis

}  // namespace

FieldAxis::FieldAxis(const Sweep& sweep, std::size_t field)
    : scale_(sweep.scales[field]), numbers_(scale_ == FieldScale::Logarithmic) {
  for (const std::vector<std::string>& point : sweep.points) {
    if (indices_.emplace(point[field], 0).second) {
      values_.push_back(point[field]);
    }
  }
  if (sweep.document.find("random") != nullptr) {
    sort_by_number(values_);
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    indices_[values_[i]] = i;
    if (!is_listed()) {
      const auto [number, unit] = number_and_unit(values_[i]);
      numbers_.add(number);
      unit_ = unit;
    }
  }
}

double FieldAxis::place(const std::string& value) const {
  return is_listed()
             ? (static_cast<double>(index(value)) + 0.5) / static_cast<double>(values_.size())
             : numbers_.place(number_and_unit(value).first);
}

std::vector<AxisLabel> FieldAxis::labels_across(double pixels) const {
  if (!is_listed()) {
    return numbered(kNumberAcross / pixels);
  }
  const double width = pixels / static_cast<double>(values_.size());
  std::size_t longest = 1;
  for (const std::string& value : values_) {
    longest = std::max(longest, std::min(short_label(value).size(), kMostAcross));
  }
  const auto stride =
      static_cast<std::size_t>(kLabelCharacter * static_cast<double>(longest + 1) / width) + 1;
  return listed(stride,
                static_cast<std::size_t>(width * static_cast<double>(stride) / kLabelCharacter));
}

std::vector<AxisLabel> FieldAxis::labels_up(double pixels) const {
  const double height = pixels / static_cast<double>(values_.size());
  return is_listed() ? listed(static_cast<std::size_t>(kLabelLine / height) + 1, kMostBeside)
                     : numbered(kLabelLine / pixels);
}

std::vector<AxisLabel> FieldAxis::listed(std::size_t stride, std::size_t characters) const {
  std::vector<AxisLabel> labels;
  for (std::size_t i = 0; i < values_.size(); i += stride) {
    labels.push_back({place(values_[i]), printable(short_label(values_[i]),
                                                   std::max(static_cast<int>(characters), 3))});
  }
  return labels;
}

std::vector<AxisLabel> FieldAxis::numbered(double spacing) const {
  std::vector<AxisLabel> labels;
  for (const double tick : numbers_.ticks(spacing)) {
    labels.push_back({numbers_.place(tick), fmt::format("{:.4g}{}", tick, unit_)});
  }
  return labels;
}

}  // namespace orrery::studies
