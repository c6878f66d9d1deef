// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

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

// Three significant digits, or four just below the next scale; no trailing zeros.
std::string significant(double number) {
  const int decimals = number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", number, decimals);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    text.erase(text.find_last_not_of('.') + 1);
  }
  return text;
}

// Scales ascend; the largest one that leaves a number of at least one is taken.
std::string format(double value, std::span<const Scale> scales) {
  const double magnitude = std::abs(value);
  if (!std::isfinite(value)) {
    return fmt::format("{}", value);
  }
  Scale chosen = scales.front();
  for (const Scale& scale : scales) {
    // What would print as 1000 of a smaller unit is 1 of this one.
    if (magnitude >= scale.size * scale.begin * 0.9995) {
      chosen = scale;
    }
  }
  const double number = magnitude / chosen.size;
  const bool is_tiny = number > 0.0 && number < 0.995;
  const std::string text = is_tiny ? fmt::format("{:.3g}", number) : significant(number);
  return (value < 0.0 ? "-" : "") + text + (chosen.unit.empty() ? "" : " ") +
         std::string(chosen.unit);
}

}  // namespace

std::string format_bytes(Bytes bytes) {
  static constexpr Scale kScales[] = {{"B", 1.0},      {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                      {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50}};
  return format(bytes.value(), kScales);
}

std::string format_bandwidth(BytesPerSecond rate) {
  static constexpr Scale kScales[] = {{"B/s", 1.0},  {"kB/s", 1e3},  {"MB/s", 1e6},
                                      {"GB/s", 1e9}, {"TB/s", 1e12}, {"PB/s", 1e15}};
  return format(rate.value(), kScales);
}

std::string format_duration(Seconds seconds) {
  static constexpr Scale kScales[] = {{"ps", 1e-12},
                                      {"ns", 1e-9},
                                      {"us", 1e-6},
                                      {"ms", 1e-3},
                                      {"s", 1.0},
                                      {"min", 60.0, 2.0},
                                      {"h", kHour.value(), 2.0},
                                      {"d", 86400.0, 2.0}};
  return seconds.value() == 0 ? "0 s" : format(seconds.value(), kScales);
}

std::string format_flop_rate(FlopsPerSecond rate) {
  static constexpr Scale kScales[] = {{"FLOP/s", 1.0},  {"kFLOP/s", 1e3},  {"MFLOP/s", 1e6},
                                      {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
                                      {"EFLOP/s", 1e18}};
  return format(rate.value(), kScales);
}

std::string format_count(double count) {
  static constexpr Scale kScales[] = {{"", 1.0}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
  return format(count, kScales);
}

}  // namespace orrery
