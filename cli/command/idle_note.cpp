// SPDX-License-Identifier: Apache-2.0
#include "cli/command/idle_note.hpp"

#include <string>

#include "base/error.hpp"
#include "plan/document/idle_fields.hpp"

namespace orrery::cli {

namespace {

void note_idle(const std::vector<plan::IdleField>& fields, const OutputOptions& output) {
  if (!fields.empty() && !output.quiet) {
    note("orrery: without effect in this plan: " + plan::idle_text(fields));
  }
}

}  // namespace

void note_idle_fields(const plan::Plan& plan, const OutputOptions& output) {
  note_idle(plan::idle_fields(plan), output);
}

void note_idle_settings(const plan::Plan& plan, const OutputOptions& output) {
  note_idle(plan::idle_hardware_fields(plan), output);
}

Json idle_json(const plan::Plan& plan) {
  Json list = Json::array();
  for (const plan::IdleField& idle : plan::idle_fields(plan)) {
    list.push(Json::Object{{"field", idle.field}, {"needs", idle.needs}});
  }
  return list;
}

void note_idle_fixes(plan::Plan plan, const search::Constraints& constraints,
                     const OutputOptions& output) {
  for (plan::BlockRun& run : plan.blocks) {
    constraints.apply(run.layout);
  }
  try {
    plan::check_plan(plan, "");
    note_idle_fields(plan, output);
  } catch (const Error& error) {  // degrees of meshes that the plan does not have
    if (!output.quiet) {
      note(std::string("orrery: not all of --fix has an effect in this plan: ") + error.what());
    }
  }
}

}  // namespace orrery::cli
