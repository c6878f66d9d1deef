// SPDX-License-Identifier: Apache-2.0
// Options of `orrery plan` that do not go together: refused by name, never ignored.
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

}  // namespace orrery::cli
