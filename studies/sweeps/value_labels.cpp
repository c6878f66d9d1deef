// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/value_labels.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "base/axis.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::studies {
namespace {

constexpr std::size_t kShort = 6;  // characters that fit under a tick
constexpr int kDigits = 3;         // of a number that is longer
constexpr std::string_view kCut = "...";
constexpr int kMostName = 32;  // characters of a name
constexpr int kMoreName = 8;   // the same, with each digit more of numbers

struct LabelQuantity {
  double number = 0;
  std::string_view unit;
};

std::optional<LabelQuantity> quantity_of(std::string_view text) {
  LabelQuantity quantity;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), quantity.number);
  quantity.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const bool goes_on = !quantity.unit.empty() && quantity.unit.front() != ' ';
  return error != std::errc() || goes_on ? std::nullopt : std::optional(quantity);
}

// printable(), but cut in the middle: names often differ at their ends.
std::string printable_ends(std::string_view text, int max_characters) {
  const std::string whole = printable(text, std::numeric_limits<int>::max());
  const auto limit = static_cast<std::size_t>(std::max(max_characters, 0));
  if (whole.size() <= limit) {
    return whole;
  }
  const std::size_t kept = limit - std::min(limit, kCut.size());
  const auto is_inside = [&](std::size_t at) {  // a character, so that a cut would break it
    return at < whole.size() && (static_cast<unsigned char>(whole[at]) & 0xC0U) == 0x80U;
  };
  std::size_t head = (kept + 1) / 2;
  while (is_inside(head)) {
    --head;
  }
  std::size_t tail = whole.size() - kept / 2;
  while (is_inside(tail)) {
    ++tail;
  }
  return whole.substr(0, head) + std::string(kCut) + whole.substr(tail);
}

std::string short_label(const std::string& value, int more) {
  const auto quantity = quantity_of(value);
  if (!quantity) {
    return printable_ends(value, kMostName + kMoreName * more);
  }
  return value.size() <= kShort
             ? value
             : format_number(quantity->number, kDigits + more) + printable(quantity->unit);
}

}  // namespace

std::vector<std::string> short_labels(const std::vector<std::string>& values) {
  return texts_apart(values.size(),
                     [&](std::size_t i, int more) { return short_label(values[i], more); });
}

bool is_name(std::string_view value) { return !quantity_of(value); }

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
