// SPDX-License-Identifier: Apache-2.0
// The colours of a schedule's picture and the line that says what they and the numbers mean.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "sim/schedule.hpp"

namespace orrery::sim {

struct Paint {
  const char* color;
  const char* dark;  // of odd chunks and the second direction
  const char* name;
};

// Colours that colour-blind readers tell apart (after Okabe and Ito), lighter and darker.
inline constexpr std::array<Paint, 9> kPaints = {{{"#8ecae6", "#3f8fc0", "forward"},
                                                  {"#7bcfa9", "#2f9e77", "backward"},
                                                  {"#f5dd72", "#d9b31c", "weight gradient"},
                                                  {"#d7a9d1", "#b270a8", "output layer"},
                                                  {"#cfcfcf", "#a5a5a5", "recompute"},
                                                  {"#f2a65a", "#d5752a", "optimizer"},
                                                  {"#dcc7a1", "#b39661", "frozen layers"},
                                                  {"#c4b7e0", "#8f7cc0", "service"},
                                                  {"#e8b4bc", "#c9818d", "input layer"}}};

inline constexpr const char* kIdle = "#f0f0f0";
inline constexpr double kLabelFont = 11;  // pixels

// Of a pass on a virtual stage of this role.
std::size_t paint_of(const Pass& pass, Role role);

// Light and dark, by paint.
using UsedPaints = std::array<std::array<bool, 2>, kPaints.size()>;

// What the numbers in boxes count.
struct BoxNumbers {
  bool whole = false;  // micro-batches
  bool slices = false;
  bool apart = false;  // updates and services, where these are not one for a micro-batch
  void add(const BoxNumbers& other) {
    whole |= other.whole;
    slices |= other.slices;
    apart |= other.apart;
  }
  std::string text() const;
};

// A line of text from (x, y) on, made safe; `style`: further attributes, a blank before each.
std::string text_at(double x, double y, std::string_view content, std::string_view style);

// What the colours of the pictures mean, from (x, y) on, and what their numbers count, "" where
// none are drawn.
std::string legend_text(double x, double y, const UsedPaints& used, std::string_view numbers);

}  // namespace orrery::sim
