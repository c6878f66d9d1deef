// SPDX-License-Identifier: Apache-2.0
// Options that do not go together, or not alone: refused by name, never ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace orrery::cli {

struct Given {
  std::string_view option;
  bool given = false;
};

// Error when `option` is given beside any of the others.
inline void refuse_together(const Given& option, const std::vector<Given>& others) {
  for (const Given& other : others) {
    if (option.given && other.given) {
      bad_input(option.option, std::string(other.option) + " does not go with it",
                "leave one of them out");
    }
  }
}

// Error when an option is given without the one that it belongs to.
inline void refuse_alone(const std::vector<Given>& options, const Given& owner) {
  for (const Given& option : options) {
    if (option.given && !owner.given) {
      bad_input(option.option, "it has no effect without " + std::string(owner.option),
                "add that or leave this out");
    }
  }
}

}  // namespace orrery::cli
