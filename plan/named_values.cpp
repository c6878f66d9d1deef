// SPDX-License-Identifier: Apache-2.0
#include "plan/named_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::plan {

std::size_t index_of_name(std::span<const std::string_view> names, std::string_view text,
                          std::string_view where, std::string_view what) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    bad_input(where, fmt::format("unknown {} \"{}\"", what, printable(text)),
              nearest_hint(text, std::vector<std::string>(names.begin(), names.end())));
  }
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace orrery::plan
