// SPDX-License-Identifier: Apache-2.0
#include "search/planner.hpp"

#include <fmt/core.h>

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

Json run_planner(const Planner& planner, const Json& problem, const std::string& name) {
  ObjectReader reader = JsonReader(problem, name).object();
  reader.expect_schema("orrery-problem", 1);
  Json answer = planner.plan(reader);
  reader.finish();
  return answer;
}

Json infeasible(std::string reason) {
  Json answer = Json::object();
  answer.set("feasible", false);
  answer.set("reason", std::move(reason));
  return answer;
}

}  // namespace orrery::search
