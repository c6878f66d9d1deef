// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/value_labels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace orrery::studies {
namespace {

constexpr std::size_t kShort = 6;  // characters that fit under a tick

struct LabelQuantity {
  double number = 0;
  std::string_view unit;
};

std::optional<LabelQuantity> quantity_of(std::string_view text) {
  LabelQuantity quantity;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), quantity.number);
  quantity.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const bool is_name = !quantity.unit.empty() && quantity.unit.front() != ' ';
  return error != std::errc() || is_name ? std::nullopt : std::optional(quantity);
}

}  // namespace

std::string short_label(const std::string& value) {
  const auto quantity = quantity_of(value);
  return quantity && value.size() > kShort
             ? fmt::format("{:.3g}{}", quantity->number, quantity->unit)
             : value;
}

std::pair<double, std::string_view> number_and_unit(std::string_view value) {
  const auto quantity = quantity_of(value);
  return quantity ? std::pair(quantity->number, quantity->unit) : std::pair(0.0, value);
}

void sort_by_number(std::vector<std::string>& values) {
  const auto unit = [](const std::string& value) {
    const auto quantity = quantity_of(value);
    return quantity ? std::optional(quantity->unit) : std::nullopt;
  };
  if (values.empty() || !unit(values[0]) ||
      !std::all_of(values.begin(), values.end(),
                   [&](const std::string& value) { return unit(value) == unit(values[0]); })) {
    return;
  }
  std::stable_sort(values.begin(), values.end(), [](const std::string& a, const std::string& b) {
    return quantity_of(a)->number < quantity_of(b)->number;
  });
}

}  // namespace orrery::studies
