// SPDX-License-Identifier: Apache-2.0
#include "studies/label_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::studies {
namespace {

constexpr double kNearest = 5;  // pixels between a dot's middle and its label
constexpr double kRing = 4;     // between two distances that are tried
constexpr double kBeside = 8;   // a label up to so far away needs no line

// Around the dot, the diagonals first: falling and rising curves leave them free.
constexpr std::pair<double, double> kDirections[] = {
    {0.7, -0.7},  {-0.7, 0.7}, {0, -1},      {1, 0},      {0, 1},      {-1, 0},
    {-0.7, -0.7}, {0.7, 0.7},  {0.4, -0.9},  {0.9, -0.4}, {-0.4, 0.9}, {-0.9, 0.4},
    {-0.4, -0.9}, {0.4, 0.9},  {-0.9, -0.4}, {0.9, 0.4}};

bool overlap(const PixelBox& a, const PixelBox& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

}  // namespace

bool LabelPlaces::is_free(const PixelBox& box) const {
  return box.left >= area_.left && box.right <= area_.right && box.top >= area_.top &&
         box.bottom <= area_.bottom &&
         std::none_of(taken_.begin(), taken_.end(),
                      [&](const PixelBox& taken) { return overlap(box, taken); });
}

std::optional<PixelBox> LabelPlaces::place(double x, double y, double width, double height,
                                           double reach) {
  for (double distance = kNearest; distance <= reach; distance += kRing) {
    for (const auto& [right, down] : kDirections) {
      const double middle_x = x + right * distance + std::clamp(right * 2, -1.0, 1.0) * width / 2;
      const double middle_y = y + down * distance + std::clamp(down * 2, -1.0, 1.0) * height / 2;
      const PixelBox box{middle_x - width / 2, middle_y - height / 2, middle_x + width / 2,
                         middle_y + height / 2};
      if (is_free(box)) {
        taken_.push_back(box);
        return box;
      }
    }
  }
  return std::nullopt;
}

std::string label_line(double x, double y, const PixelBox& label) {
  const double end_x = std::clamp(x, label.left, label.right);
  const double end_y = std::clamp(y, label.top, label.bottom);
  return std::hypot(end_x - x, end_y - y) <= kBeside
             ? std::string()
             : fmt::format(
                   "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"#666\" "
                   "stroke-width=\"0.7\"/>\n",
                   x, y, end_x, end_y);
}

}  // namespace orrery::studies
