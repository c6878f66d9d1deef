// SPDX-License-Identifier: Apache-2.0
// For tests of pictures.
#pragma once

#include <string>

namespace orrery::studies {

// How often the part occurs.
inline std::size_t count_in(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

}  // namespace orrery::studies
