// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/field_axis.hpp"

#include <algorithm>
#include <cmath>

#include "base/axis.hpp"
#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "studies/sweeps/value_labels.hpp"

namespace orrery::studies {
namespace {

constexpr double kNumberLine = 22;    // between two numbers one above the other, in pixels
constexpr double kNumberAcross = 80;  // between two numbers below an axis
constexpr double kBlank = 8;          // between two values below an axis

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
  texts_ = short_labels(values_);
  has_names_ = is_listed() && std::any_of(values_.begin(), values_.end(), is_name);
}

double FieldAxis::place(const std::string& value) const {
  return is_listed()
             ? (static_cast<double>(index(value)) + 0.5) / static_cast<double>(values_.size())
             : numbers_.place(number_and_unit(value).first);
}

AxisLabels FieldAxis::labels_across(double pixels) const {
  if (!is_listed()) {
    return {numbered(kNumberAcross / pixels)};
  }
  const double each = pixels / static_cast<double>(values_.size());
  double widest = 0;
  for (const std::string& text : texts_) {
    widest = std::max(widest, text_width(text, kAxisFont) + kBlank);
  }
  const bool slanted = has_names_ && widest > each;
  return {listed(slanted ? kNameLine : widest, each), slanted};
}

std::vector<AxisLabel> FieldAxis::labels_up(double pixels) const {
  return is_listed() ? listed(has_names_ ? kNameLine : kNumberLine,
                              pixels / static_cast<double>(values_.size()))
                     : numbered(kNumberLine / pixels);
}

std::vector<AxisLabel> FieldAxis::listed(double apart, double pixels_each) const {
  const auto stride =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(apart / pixels_each)));
  std::vector<AxisLabel> labels;
  for (std::size_t i = 0; i < values_.size(); i += stride) {
    labels.push_back({place(values_[i]), texts_[i]});
  }
  return labels;
}

std::vector<AxisLabel> FieldAxis::numbered(double spacing) const {
  const std::vector<double> ticks = numbers_.ticks(spacing);
  const std::vector<std::string> texts = tick_labels(
      ticks, [this](double tick, int more) { return format_number(tick, 3 + more) + unit_; });
  std::vector<AxisLabel> labels;
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    labels.push_back({numbers_.place(ticks[i]), texts[i]});
  }
  return labels;
}

}  // namespace orrery::studies
