// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/quantity_text.hpp"

namespace orrery {
namespace {

struct Scale {
  std::string_view unit;
  double size;
  double begin = 1.0;  // the least number shown in this unit
};

std::string without_trailing_zeros(std::string text) {
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    text.erase(text.find_last_not_of('.') + 1);
  }
  return text;
}

// Three significant digits and `more`, one more just below the next scale; no trailing zeros.
std::string significant(double number, int more) {
  const int decimals = more + (number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2);
  return without_trailing_zeros(fmt::format("{:.{}f}", number, decimals));
}

// Scales ascend; the largest one that leaves a number of at least one is taken.
std::string format(double value, std::span<const Scale> scales, int more = 0) {
  const double magnitude = std::abs(value);
  if (!std::isfinite(value)) {
    return fmt::format("{}", value);
  }
  // What would print as 1000 of a smaller unit is 1 of the next.
  const double rounded_up = 1 - 0.0005 * std::pow(10.0, -more);
  Scale chosen = scales.front();
  for (const Scale& scale : scales) {
    if (magnitude >= scale.size * scale.begin * rounded_up) {
      chosen = scale;
    }
  }
  const double number = magnitude / chosen.size;
  const bool is_tiny = number > 0.0 && number < 0.995;
  const std::string text =
      is_tiny ? fmt::format("{:.{}g}", number, 3 + more) : significant(number, more);
  return (value < 0.0 ? "-" : "") + text + (chosen.unit.empty() ? "" : " ") +
         std::string(chosen.unit);
}

}  // namespace

std::string format_bytes(Bytes bytes, int more) {
  static constexpr Scale kScales[] = {{"B", 1.0},      {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                      {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50}};
  return format(bytes.value(), kScales, more);
}

std::string format_bandwidth(BytesPerSecond rate) {
  static constexpr Scale kScales[] = {{"B/s", 1.0},  {"kB/s", 1e3},  {"MB/s", 1e6},
                                      {"GB/s", 1e9}, {"TB/s", 1e12}, {"PB/s", 1e15}};
  return format(rate.value(), kScales);
}

std::string format_duration(Seconds seconds, int more) {
  static constexpr Scale kScales[] = {{"ps", 1e-12},
                                      {"ns", 1e-9},
                                      {"us", 1e-6},
                                      {"ms", 1e-3},
                                      {"s", 1.0},
                                      {"min", 60.0, 2.0},
                                      {"h", kHour.value(), 2.0},
                                      {"d", 86400.0, 2.0}};
  return seconds.value() == 0 ? "0 s" : format(seconds.value(), kScales, more);
}

std::string format_flop_rate(FlopsPerSecond rate) {
  static constexpr Scale kScales[] = {{"FLOP/s", 1.0},  {"kFLOP/s", 1e3},  {"MFLOP/s", 1e6},
                                      {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
                                      {"EFLOP/s", 1e18}};
  return format(rate.value(), kScales);
}

std::string format_number(double number, int digits) {
  constexpr double kLargest = 1e17;  // of which a double holds all digits
  const double size = std::abs(number);
  if (!(size >= 1 && size < kLargest)) {
    return fmt::format("{:.{}g}", number, digits);
  }
  const int whole = static_cast<int>(std::floor(std::log10(size))) + 1;
  return without_trailing_zeros(fmt::format("{:.{}f}", number, std::max(0, digits - whole)));
}

std::string format_count(double count, int more) {
  static constexpr Scale kScales[] = {{"", 1.0}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
  return format(count, kScales, more);
}

}  // namespace orrery
