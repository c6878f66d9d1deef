// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "plan/layout.hpp"

namespace orrery::plan {

// Variables of the axes that do not take the usual ones.
Json variables_to_json(const BlockPlan& layout) {
  Json document = Json::object();
  for (const Axis axis : kAxes) {
    const VarList& list = layout.variables[static_cast<std::size_t>(axis)];
    if (!list.empty()) {
      Json names = Json::array();
      for (const models::Var var : list.vars()) {
        names.push(to_text(var));
      }
      document.set(to_text(axis), std::move(names));
    }
  }
  return document;
}

// {"tp": ["head", "ffn"], "dp": ["seq"]}: what these axes split instead of the usual.
void read_variables(const JsonReader& value, BlockPlan& layout) {
  ObjectReader object = value.object();
  for (const Axis axis : kAxes) {
    const auto list = object.optional(to_text(axis));
    if (!list) {
      continue;
    }
    std::vector<models::Var> vars;
    for (const JsonReader& name : list->array(VarList::kMax)) {
      const models::Var var = parse_var(name.string(), name.where());
      if (std::find(vars.begin(), vars.end(), var) != vars.end()) {
        name.fail(fmt::format("axis {} names {} twice", to_text(axis), to_text(var)));
      }
      vars.push_back(var);
    }
    if (vars.empty()) {
      list->fail(fmt::format("axis {} has no variable", to_text(axis)));
    }
    layout.variables[static_cast<std::size_t>(axis)] = VarList(vars);
  }
  object.finish();
}

}  // namespace orrery::plan
