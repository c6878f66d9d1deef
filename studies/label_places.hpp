// SPDX-License-Identifier: Apache-2.0
// Where the labels of a picture's dots go: beside their dot, or further away with a line to it
// where the dots are crowded; none over another, a dot or a line. In pixels, y downwards.
// Deterministic.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orrery::studies {

struct PixelBox {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

class LabelPlaces {
 public:
  // Labels stay inside the area.
  explicit LabelPlaces(const PixelBox& area) : area_(area) {}

  // Keeps labels off what is drawn there.
  void keep_free(const PixelBox& box) { taken_.push_back(box); }

  // The nearest free place of a label of this size beside a dot at (x, y), at most `reach` pixels
  // away from it; nothing where all is taken.
  std::optional<PixelBox> place(double x, double y, double width, double height, double reach);

 private:
  bool is_free(const PixelBox& box) const;

  PixelBox area_;
  std::vector<PixelBox> taken_;
};

// The line from a dot to its label, "" where they touch.
std::string label_line(double x, double y, const PixelBox& label);

}  // namespace orrery::studies
