// SPDX-License-Identifier: Apache-2.0
// The small network of the plan fixture in a pipeline, for the tests of schedules in plans.
#pragma once

#include <string>

#include "base/error.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {

struct PipelineShape {
  int pp = 4;
  int dp = 2;
  int tp = 2;
  int micro_batches = 16;  // of one sequence each
  int chunks = 1;
};

// Stages of equal numbers of blocks.
inline Plan in_pipeline(Plan plan, const std::string& schedule, const PipelineShape& shape = {}) {
  plan.pp = shape.pp;
  plan.dp = shape.dp;
  plan.blocks.front().layout.tp = shape.tp;
  plan.micro_batch = 1;
  plan.batch = std::int64_t{shape.dp} * shape.micro_batches;
  plan.schedule = schedule;
  plan.chunks = shape.chunks;
  plan.stage_blocks = even_stages(plan.network, shape.pp * shape.chunks);
  return plan;
}

// What check_plan says against the plan, "" when it has nothing to say.
inline std::string problem(const Plan& plan) {
  try {
    check_plan(plan, "test");
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "not bad input";
  }
  return "";
}

}  // namespace orrery::plan
