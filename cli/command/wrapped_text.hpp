// SPDX-License-Identifier: Apache-2.0
// Sentences in lines of a width.
#pragma once

#include <string>
#include <vector>

namespace orrery::cli {

// Lines of at most so many characters, between words where they can be.
inline std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (text.size() - begin > width) {
    const std::size_t space = text.rfind(' ', begin + width);
    const std::size_t end = space == std::string::npos || space <= begin ? begin + width : space;
    lines.push_back(text.substr(begin, end - begin));
    begin = end + (end == space ? 1 : 0);
  }
  lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace orrery::cli
