// SPDX-License-Identifier: Apache-2.0
#include "plan/document/untold.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/document/execution_json.hpp"
#include "plan/document/layout_json.hpp"
#include "plan/importer.hpp"

namespace orrery::plan {

namespace {

// Whether the export stays the same, so that it does not tell what was changed.
bool same_export(const Exporter& exporter, const Plan& changed, const std::string& text) {
  try {
    return export_plan(exporter, changed) == text;
  } catch (const Error&) {
    return false;
  }
}

// A field as it is, and as the framework has it by itself (null: left out).
struct Field {
  std::string name;
  Json value;
  Json usual;
};

std::vector<Field> differing_fields(const Json& stated, const Json& usual) {
  std::vector<Field> fields;
  for (const auto& [name, value] : stated.as_object()) {
    const Json* other = usual.find(name);
    if (other == nullptr || *other != value) {
      fields.push_back({name, value, other == nullptr ? Json() : *other});
    }
  }
  for (const auto& [name, value] : usual.as_object()) {
    if (stated.find(name) == nullptr) {
      fields.push_back({name, Json(), value});
    }
  }
  return fields;
}

BlockRun with_usual(const BlockRun& run, const Field& field) {
  Json document = to_json(run);
  document.set(field.name, field.usual);
  return read_block_run(JsonReader(document, "blocks"));
}

// Fields of the execution that our own reader of the format takes otherwise than the plan has them:
// what the framework does by default, or ties to another option.
std::vector<Field> read_back_otherwise(const Exporter& exporter, const Plan& plan,
                                       const std::string& text) {
  const auto importers = importer_table();
  const auto found = std::find_if(importers.begin(), importers.end(),
                                  [&](const Importer* one) { return one->name == exporter.name; });
  if (found == importers.end()) {
    return {};
  }
  try {
    const Plan read = (*found)->read(text, "export", plan.cluster, &plan.network);
    return differing_fields(to_json(plan.execution), to_json(read.execution));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::vector<std::string> untold(const Exporter& exporter, const Plan& plan) {
  const std::string text = export_plan(exporter, plan);
  std::vector<std::string> fields;
  const auto add = [&](const Field& field) {
    std::string line = field.value.is_null()
                           ? field.name + " (left out)"
                           : fmt::format("{} = {}", field.name, field.value.dump());
    if (std::find(fields.begin(), fields.end(), line) == fields.end()) {
      fields.push_back(std::move(line));
    }
  };
  const auto add_untold = [&](const Field& field, const Plan& changed) {
    if (same_export(exporter, changed, text)) {
      add(field);
    }
  };
  const Json execution = to_json(plan.execution);
  const Execution usual = exporter.usual != nullptr ? exporter.usual(plan) : Execution();
  for (const Field& field : differing_fields(execution, to_json(usual))) {
    Json document = execution;
    document.set(field.name, field.usual);
    Plan changed = plan;
    changed.execution = read_execution(JsonReader(document, "execution"));
    add_untold(field, changed);
  }
  for (const BlockRun& stated : plan.blocks) {
    for (const Field& field :
         differing_fields(to_json(stated), to_json(BlockRun{stated.count, {}}))) {
      Plan changed = plan;
      for (BlockRun& run : changed.blocks) {
        run = with_usual(run, field);
      }
      add_untold(field, changed);
    }
  }
  for (const Field& field : read_back_otherwise(exporter, plan, text)) {
    add(field);
  }
  return fields;
}

}  // namespace orrery::plan
