// SPDX-License-Identifier: Apache-2.0
// Planners asked as `orrery plan` asks them, and numbers of their answers.
#pragma once

#include <string>
#include <string_view>

#include "search/planner.hpp"

namespace orrery::search {

inline Json solve(std::string_view name, const std::string& text) {
  return run_planner(find_planner(name, "test"), parse_json(text, "problem"), "problem");
}

inline double number(const Json& answer, std::string_view key) {
  return answer.find(key)->as_number();
}

}  // namespace orrery::search
