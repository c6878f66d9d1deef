// SPDX-License-Identifier: Apache-2.0
// What a row calls its recomputation.
#pragma once

#include <string>
#include <string_view>

namespace orrery::studies {

// Which recomputation a cell means: none, selective, full or custom; what else it says stands
// before the detail.
struct RecomputeWords {
  std::string name;
  std::string detail;
  std::string
      read_as;  // what a misspelt word or a bare fraction was taken as; "" where it was clear
};
RecomputeWords recompute_words(std::string_view cell, std::string_view detail);

}  // namespace orrery::studies
