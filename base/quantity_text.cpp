// SPDX-License-Identifier: Apache-2.0
#include "base/quantity_text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

// value in base units = number * multiplier / divisor: both are exact doubles, so that "3.4 us" is
// rounded once more at most.
struct Unit {
  std::string_view name;
  double multiplier;
  double divisor;
  bool is_output;  // quantity_text may choose it; the first of a list is the base unit

  double scaled(double number) const { return number * multiplier / divisor; }
};

constexpr std::array<Unit, 12> kByteUnits = {{{"B", 1, 1, true},
                                              {"kB", 1e3, 1, true},
                                              {"KB", 1e3, 1, false},
                                              {"MB", 1e6, 1, true},
                                              {"GB", 1e9, 1, true},
                                              {"TB", 1e12, 1, true},
                                              {"PB", 1e15, 1, true},
                                              {"KiB", 0x1p10, 1, true},
                                              {"MiB", 0x1p20, 1, true},
                                              {"GiB", 0x1p30, 1, true},
                                              {"TiB", 0x1p40, 1, true},
                                              {"PiB", 0x1p50, 1, true}}};

constexpr std::array<Unit, 22> kBandwidthUnits = {
    {{"B/s", 1, 1, true},         {"kB/s", 1e3, 1, true},      {"KB/s", 1e3, 1, false},
     {"MB/s", 1e6, 1, true},      {"GB/s", 1e9, 1, true},      {"TB/s", 1e12, 1, true},
     {"PB/s", 1e15, 1, true},     {"KiB/s", 0x1p10, 1, false}, {"MiB/s", 0x1p20, 1, false},
     {"GiB/s", 0x1p30, 1, false}, {"TiB/s", 0x1p40, 1, false}, {"PiB/s", 0x1p50, 1, false},
     {"bit/s", 1, 8, false},      {"b/s", 1, 8, false},        {"kbit/s", 1e3, 8, false},
     {"kb/s", 1e3, 8, false},     {"Mbit/s", 1e6, 8, false},   {"Mb/s", 1e6, 8, false},
     {"Gbit/s", 1e9, 8, false},   {"Gb/s", 1e9, 8, false},     {"Tbit/s", 1e12, 8, false},
     {"Tb/s", 1e12, 8, false}}};

constexpr std::array<Unit, 7> kDurationUnits = {{{"s", 1, 1, true},
                                                 {"ms", 1, 1e3, true},
                                                 {"us", 1, 1e6, true},
                                                 {"ns", 1, 1e9, true},
                                                 {"ps", 1, 1e12, true},
                                                 {"min", 60, 1, false},
                                                 {"h", kHour.value(), 1, false}}};

constexpr std::array<Unit, 7> kFlopRateUnits = {{{"FLOP/s", 1, 1, true},
                                                 {"kFLOP/s", 1e3, 1, true},
                                                 {"MFLOP/s", 1e6, 1, true},
                                                 {"GFLOP/s", 1e9, 1, true},
                                                 {"TFLOP/s", 1e12, 1, true},
                                                 {"PFLOP/s", 1e15, 1, true},
                                                 {"EFLOP/s", 1e18, 1, true}}};

constexpr std::array<Unit, 4> kFrequencyUnits = {
    {{"Hz", 1, 1, true}, {"kHz", 1e3, 1, true}, {"MHz", 1e6, 1, true}, {"GHz", 1e9, 1, true}}};

constexpr std::array<Unit, 2> kPriceUnits = {
    {{"USD/s", 1, 1, true}, {"USD/h", 1, kHour.value(), true}}};

// The two meanings that a number without a unit most often has.
struct Meanings {
  std::string_view first;
  std::string_view second;
};

// Reads a number at the beginning of the text and removes it.
std::optional<double> take_number(std::string_view& text) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !std::isfinite(value)) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

double parse(std::string_view text, std::string_view where, std::span<const Unit> units,
             Meanings meanings) {
  std::string_view rest = trim(text);
  const std::optional<double> number = take_number(rest);
  const std::string shown = printable(text, 80);
  if (!number) {
    bad_input(where, fmt::format("\"{}\" does not begin with a number in range", shown),
              fmt::format("a quantity such as \"10 {}\"", meanings.first));
  }
  rest = trim(rest);
  if (rest.empty()) {
    bad_input(
        where, fmt::format("\"{}\" has no unit", shown),
        fmt::format("write \"{0} {1}\" or \"{0} {2}\"", shown, meanings.first, meanings.second));
  }
  for (const Unit& unit : units) {
    if (unit.name != rest) {
      continue;
    }
    const double value = unit.scaled(*number);
    if (!(value >= 0.0 && value <= limits::kMaxQuantity)) {
      bad_input(where, fmt::format("\"{}\" is out of range", shown),
                fmt::format("0 to {:g} {}", limits::kMaxQuantity, units.front().name));
    }
    return value;
  }
  std::vector<std::string> names;
  for (const Unit& unit : units) {
    names.emplace_back(unit.name);
  }
  bad_input(where, fmt::format("\"{}\" is not a unit here", printable(rest, 80)),
            nearest_hint(rest, names));
}

double rounded_to_digits(double value, int digits) {
  std::array<char, 64> buffer{};
  char* begin = buffer.data();
  const auto [end, error] =
      std::to_chars(begin, begin + buffer.size(), value, std::chars_format::scientific, digits - 1);
  ORRERY_CHECK(error == std::errc(), "a double fits the buffer");
  std::string_view text(begin, static_cast<std::size_t>(end - begin));
  return take_number(text).value_or(value);
}

// The number with the fewest digits that the unit turns into the value, if there is one.
std::optional<std::string> number_for(double value, const Unit& unit) {
  constexpr int kMaxDigits = 17;
  for (int digits = 1; digits <= kMaxDigits; ++digits) {
    const double number = rounded_to_digits(value / unit.multiplier * unit.divisor, digits);
    if (unit.scaled(number) == value) {
      return fmt::format("{}", number);
    }
  }
  return std::nullopt;
}

std::string exact_text(double value, std::span<const Unit> units) {
  ORRERY_CHECK(std::isfinite(value), "a quantity is finite");
  constexpr std::size_t kOutsidePenalty = 3;  // in characters: prefer numbers in [1, 1000)
  std::string best = fmt::format("{} {}", value, units.front().name);
  std::size_t best_score = std::string::npos;
  for (const Unit& unit : units) {
    const std::optional<std::string> number =
        unit.is_output ? number_for(value, unit) : std::nullopt;
    if (!number) {
      continue;
    }
    const double size = std::abs(value / unit.scaled(1.0));
    const bool is_handy = value == 0.0 || (size >= 1.0 && size < 1000.0);
    const std::size_t score = number->size() + (is_handy ? 0 : kOutsidePenalty);
    if (score < best_score) {
      best_score = score;
      best = fmt::format("{} {}", *number, unit.name);
    }
  }
  return best;
}

}  // namespace

Bytes parse_bytes(std::string_view text, std::string_view where) {
  return Bytes(parse(text, where, kByteUnits, {"GB", "GiB"}));
}

BytesPerSecond parse_bandwidth(std::string_view text, std::string_view where) {
  return BytesPerSecond(parse(text, where, kBandwidthUnits, {"GB/s", "Gbit/s"}));
}

Seconds parse_duration(std::string_view text, std::string_view where) {
  return Seconds(parse(text, where, kDurationUnits, {"us", "ms"}));
}

FlopsPerSecond parse_flop_rate(std::string_view text, std::string_view where) {
  return FlopsPerSecond(parse(text, where, kFlopRateUnits, {"TFLOP/s", "GFLOP/s"}));
}

Hertz parse_frequency(std::string_view text, std::string_view where) {
  return Hertz(parse(text, where, kFrequencyUnits, {"GHz", "MHz"}));
}

DollarsPerSecond parse_price(std::string_view text, std::string_view where) {
  return DollarsPerSecond(parse(text, where, kPriceUnits, {"USD/h", "USD/s"}));
}

double parse_number(std::string_view text, std::string_view where, double min, double max) {
  std::string_view rest = trim(text);
  const std::optional<double> value = take_number(rest);
  if (!value || !rest.empty()) {
    bad_input(where, fmt::format("\"{}\" is not a number", printable(text, 80)));
  }
  if (!(*value >= min && *value <= max)) {
    bad_input(where, fmt::format("{} is out of range", *value), fmt::format("{} to {}", min, max));
  }
  return *value;
}

std::int64_t parse_integer(std::string_view text, std::string_view where, std::int64_t min,
                           std::int64_t max) {
  const std::string_view digits = trim(text);
  const char* end = digits.data() + digits.size();
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error == std::errc::invalid_argument || stop != end) {
    bad_input(where, fmt::format("\"{}\" is not an integer", printable(text, 80)));
  }
  if (error != std::errc() || value < min || value > max) {
    bad_input(where, fmt::format("{} is out of range", printable(digits, 80)),
              fmt::format("{} to {}", min, max));
  }
  return value;
}

std::string exact_bytes_text(std::int64_t bytes) { return fmt::format("{} B", bytes); }

std::string quantity_text(Bytes bytes) { return exact_text(bytes.value(), kByteUnits); }

std::string quantity_text(BytesPerSecond rate) { return exact_text(rate.value(), kBandwidthUnits); }

std::string quantity_text(Seconds seconds) { return exact_text(seconds.value(), kDurationUnits); }

std::string quantity_text(FlopsPerSecond rate) { return exact_text(rate.value(), kFlopRateUnits); }

std::string quantity_text(Hertz frequency) {
  return exact_text(frequency.value(), kFrequencyUnits);
}

std::string quantity_text(DollarsPerSecond price) { return exact_text(price.value(), kPriceUnits); }

}  // namespace orrery
