// SPDX-License-Identifier: Apache-2.0
// Plans whose micro-batches travel in slices.
#pragma once

#include <initializer_list>
#include <string>

#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {

// Four stages, tp 2, dp 2, four micro-batches of one sequence.
inline Plan sliced(const std::string& schedule, int slices, int chunks = 1,
                   const models::NetworkSpec& spec = small_spec()) {
  Plan plan = in_pipeline(small_plan(spec), schedule, {.micro_batches = 4, .chunks = chunks});
  plan.sequence = spec.sequence;
  plan.slices = slices;
  return plan;
}

inline Plan long_sequence(const std::string& schedule, int slices) {
  models::NetworkSpec spec = small_spec();
  spec.sequence = 65536;
  spec.position = models::PositionKind::None;  // no table of them
  return sliced(schedule, slices, 1, spec);
}

inline OperatorSet groups(std::initializer_list<OperatorGroup> list) {
  OperatorSet set;
  for (const OperatorGroup group : list) {
    set.add(group);
  }
  return set;
}

inline Offload& offload_of(Plan& plan) { return plan.blocks.front().layout.offload; }

}  // namespace orrery::plan
