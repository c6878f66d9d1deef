// SPDX-License-Identifier: Apache-2.0
#include "search/planner.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::search {

const Planner& find_planner(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Planner* planner : planner_table()) {
    if (planner->name == name) {
      return *planner;
    }
    names.emplace_back(planner->name);
  }
  bad_input(where, fmt::format("unknown planner \"{}\"", printable(name)),
            nearest_hint(name, names));
}

namespace {

// Times and sizes too far apart have ratios that are no numbers.
void check_finite(const Json& value, std::string_view path) {
  if (value.is_array()) {
    for (const Json& element : value.as_array()) {
      check_finite(element, path);
    }
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) {
      check_finite(member, key);
    }
  } else if (value.is_number() && !std::isfinite(value.as_number())) {
    bad_input("", fmt::format("\"{}\" of the answer is beyond all numbers", path),
              "a time, rate or size of the problem is too small or too large");
  }
}

}  // namespace

Json run_planner(const Planner& planner, const Json& problem, const std::string& name) {
  ObjectReader reader = JsonReader(problem, name).object();
  reader.expect_schema("orrery-problem", 1);
  return in_file(name, [&] {
    Json answer = planner.plan(reader);
    check_finite(answer, "");
    return answer;
  });
}

Json infeasible(std::string reason) {
  Json answer = Json::object();
  answer.set("feasible", false);
  answer.set("reason", std::move(reason));
  return answer;
}

}  // namespace orrery::search
