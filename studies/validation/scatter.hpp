// SPDX-License-Identifier: Apache-2.0
// Predicted against measured as pictures: one SVG per source and quantity, and one HTML page that
// holds them all and needs no other file. Both axes are logarithmic with the same limits; the
// diagonal is a perfect prediction, the band +-10 %. Deterministic; O(rows).
#pragma once

#include <string>
#include <vector>

#include "studies/validation/validation.hpp"

namespace orrery::studies {

struct Scatter {
  std::string name;  // of the file: "vtrain_multinode_a100-time"
  std::string title;
  std::string svg;
};

// One for each source with simulated rows, and one of all training runs by GPU when there are
// several sources. Rows of memory are apart from those of time.
std::vector<Scatter> scatters(const Validation& validation);

std::string scatter_page(const Validation& validation);

}  // namespace orrery::studies
