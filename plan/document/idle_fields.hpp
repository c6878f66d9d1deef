// SPDX-License-Identifier: Apache-2.0
// Choices that a plan states and that change nothing in it: a flag of a mechanism that the plan
// does not use. A person who edits a plan by hand must not take them for honoured, so commands that
// simulate a plan name them. Only what differs from its default counts as stated. That the list is
// right is tested field by field: what it does not name changes the simulation.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::plan {

struct PlanUses;  // plan/document/plan_uses.hpp

struct IdleField {
  std::string field;  // "execution.stream_tp", "blocks.zigzag"
  std::string needs;  // what the plan would have to have: "tp > 1 with sequence_parallel"
  bool operator==(const IdleField&) const = default;
};

std::vector<IdleField> idle_fields(const Plan& plan);
// Those of the layouts of blocks alone, of what serves, and of the hardware that --set changed.
std::vector<IdleField> idle_layout_fields(const Plan& plan);
std::vector<IdleField> idle_serving_fields(const PlanUses& uses);
std::vector<IdleField> idle_hardware_fields(const Plan& plan);
// "execution.eager_ring (needs ...), ..."; empty when there are none.
std::string idle_text(const std::vector<IdleField>& fields);

}  // namespace orrery::plan
