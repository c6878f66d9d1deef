// SPDX-License-Identifier: Apache-2.0
// The small network of the plan fixture in a pipeline, for the tests of schedules in plans.
#pragma once

#include <string>

#include "plan/stages.hpp"
#include "tests/unit/models/specs.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {

struct PipelineShape {
  int pp = 4;
  int dp = 2;
  int tp = 2;
  int micro_batches = 16;  // of one sequence each
  int chunks = 1;
};

inline models::NetworkSpec with_encoder(bool frozen) {
  return models::behind_encoder(small_spec(), 8, 4, frozen);
}

inline models::NetworkSpec with_cascade() { return models::cascaded(small_spec(), 8, 4); }

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

// Tensor ranks that cut the tokens between products, and as many that do not.
struct TokenLayouts {
  BlockPlan cut;
  BlockPlan whole;
};

inline TokenLayouts token_layouts(int tp) {
  TokenLayouts layouts;
  layouts.cut.tp = layouts.whole.tp = tp;
  layouts.cut.sequence_parallel = true;
  return layouts;
}

}  // namespace orrery::plan
