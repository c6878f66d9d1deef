// SPDX-License-Identifier: Apache-2.0
// The order in which a device of HelixPipe (PPoPP 2026, arXiv 2507.00394, section 4) meets its
// items: parameter parts l of the micro-batch with offset d and the attention after them. Groups of
// p offsets follow each other; the first device runs the loss of one group between the first parts
// of the next.
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// Lists the items of one device in forward order: part(l, d, group) and attention(l, d, group).
template <typename Part, typename Attention>
void visit_forward(int p, int layers, int groups, int r, Part part, Attention attention) {
  if (r == 0) {
    part(0, 0, 0);
  }
  for (int g = 0; g < groups; ++g) {
    for (int d = r - 1; d >= 0; --d) {
      attention(r - 1 - d, d, g);
    }
    if (r > 0) {
      part(r, 0, g);
    }
    for (int d = 1; d < p; ++d) {
      if (r == 0 && g > 0) {
        part(layers, d, g - 1);  // the loss of the group before
      }
      part(r, d, g);
    }
    attention(r, p - 1, g);
    for (int first = p; first < layers; first += p) {
      for (int d = p - 2; d >= 0; --d) {
        attention(first + r - 1 - d, d, g);
      }
      for (int d = 0; d < p; ++d) {
        part(first + r, d, g);
      }
      attention(first + r, p - 1, g);
    }
    for (int d = p - 2; d >= r; --d) {
      attention(layers + r - 1 - d, d, g);
    }
    if (r == 0) {
      part(layers, 0, g);
      if (g + 1 < groups) {
        part(0, 0, g + 1);
      }
    }
  }
  for (int d = 1; r == 0 && d < p; ++d) {
    part(layers, d, groups - 1);
  }
}

// "" where parts and attentions, virtual stages, are not too many.
Refusal check_helix_parts(const ScheduleParams& params);

}  // namespace orrery::sim
