// SPDX-License-Identifier: Apache-2.0
// The sum of the gradients of two copies of the model, whoever updates the parameters.
#include <gtest/gtest.h>

#include "plan/simulation/layout_report.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/step_end.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

Plan in_two_directions(Tier optimizer, DType precision = DType::Bf16) {
  Plan plan = in_pipeline(small_plan(), "chimera", {.pp = 4, .dp = 2, .tp = 2, .micro_batches = 8});
  plan.blocks.front().layout.offload.optimizer = optimizer;
  plan.precision = precision;
  return plan;
}

Seconds sum_of_copies(const Plan& plan) {
  BlockCosts costs(plan);
  const std::vector<std::uint16_t> devices = schedule_devices(plan);
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan, devices)) {
    stages.push_back(add_up_stage(content, plan, costs));
  }
  return copies_time(plan, stages, devices, costs);
}

double reported_copies(const Plan& plan) {
  double bytes = 0;
  for (const BlockReport& block : report_layouts(plan)) {
    for (const ReportedCollective& one : block.states) {
      bytes += one.axes == "copies" ? one.count * block.count * one.bytes.value() : 0;
    }
  }
  return bytes;
}

TEST(Copies, AreSummedWhereTheHostUpdatesThem) {
  const Plan device = in_two_directions(Tier::Device);
  const Plan host = in_two_directions(Tier::Host);
  ASSERT_GT(sum_of_copies(device), Seconds());
  EXPECT_EQ(sum_of_copies(host), sum_of_copies(device));
  ASSERT_GT(reported_copies(device), 0);
  EXPECT_EQ(reported_copies(host), reported_copies(device));
}

// Gradients of parameters in fp32 are in fp32, whatever is said of narrower ones.
TEST(Copies, AreOfGradientsAsTheyAre) {
  Plan plan = in_two_directions(Tier::Device, DType::Fp32);
  plan.execution.fp32_gradients = false;
  EXPECT_EQ(gradients_of_copy(plan, 100), Bytes(400));
  plan.precision = DType::Bf16;
  EXPECT_EQ(gradients_of_copy(plan, 100), Bytes(200));
  plan.execution.fp32_gradients = true;
  EXPECT_EQ(gradients_of_copy(plan, 100), Bytes(400));
}

}  // namespace
}  // namespace orrery::plan
