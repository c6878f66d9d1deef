// SPDX-License-Identifier: Apache-2.0
// Launch flags of other frameworks from a Plan: one file a framework in plan/exporters/, each one
// constant `exporter_<file name>`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::plan {

struct Exporter {
  std::string_view name;  // "megatron"
  std::string_view description;
  // Error when the plan holds a choice the framework cannot express.
  std::string (*write)(const Plan& plan);
  // What the training script must do beside reading what is written; null: nothing for any plan.
  std::vector<std::string> (*script)(const Plan& plan) = nullptr;
  // What the framework does where what is written does not say; null: what an empty plan has.
  Execution (*usual)(const Plan& plan) = nullptr;
};

std::span<const Exporter* const> exporter_table();  // generated
// Error with the nearest name where none is called so.
const Exporter& find_exporter(std::string_view name);
// What the exporter writes; Error for what no framework here expresses (slices of sequences).
std::string export_plan(const Exporter& exporter, const Plan& plan);

}  // namespace orrery::plan
