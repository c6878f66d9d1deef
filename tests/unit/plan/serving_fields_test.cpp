// SPDX-License-Identifier: Apache-2.0
// What choices of execution do for plans that serve, or that they do nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/document/idle_fields.hpp"
#include "tests/unit/plan/plan_fields_fixture.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

// Of the experts' plan, an iteration of two prompts beside decoding requests.
IterationCost mixed_iteration(const Plan& plan) {
  Iteration iteration = decoding(32, 500);
  iteration.prompts = {{0, 1500}, {700, 548}};
  const std::vector<Iteration> all(2, iteration);
  return ServingModel(plan).cost(0, all);
}

TEST(ServingFields, PromptsAttendInFp8) {
  Plan plan = serving_experts_plan(DType::Fp8);
  plan.profile.attention.fp8_forward_rate = 1.5;
  const IterationCost wide = mixed_iteration(plan);
  plan.execution.fp8_attention = true;
  const IterationCost narrow = mixed_iteration(plan);
  EXPECT_LT(narrow.of(ServingPart::Prompt), 0.9 * wide.of(ServingPart::Prompt));
  EXPECT_EQ(narrow.of(ServingPart::Gemm), wide.of(ServingPart::Gemm));
  EXPECT_EQ(idle_text(idle_fields(plan)), "");
  plan.execution.fused_attention = false;
  EXPECT_THAT(idle_text(idle_fields(plan)), Not(HasSubstr("fp8_attention")));
  plan.precision = DType::Bf16;
  EXPECT_THAT(idle_text(idle_fields(plan)), HasSubstr("fp8_attention"));
}

TEST(ServingFields, SharedExpertsRunBesideNoExchange) {
  Plan plan = serving_experts_plan(DType::Bf16);
  const IterationCost without = mixed_iteration(plan);
  plan.execution.overlap_shared_experts = true;
  EXPECT_EQ(mixed_iteration(plan).time, without.time);
  EXPECT_EQ(idle_text(idle_fields(plan)),
            "execution.overlap_shared_experts (needs a training plan with shared experts and ep > "
            "1)");
}

// Experts on the tensor ranks of a replica, which have all tokens: no dispatcher has work.
TEST(ServingFields, NoTokensTravelInsideAReplica) {
  BlockPlan layout;
  layout.tp = layout.ep = 8;
  layout.expert_tp = 1;
  Plan plan = replicas_of("deepseek-v2-lite", "hgx-h100:1", layout, 1, DType::Fp8);
  serve(plan, some_requests(8));
  plan.execution.routing_imbalance = 2;
  const Iteration iteration = decoding(256, 500);
  const Seconds without = ServingModel(plan).cost(0, iteration).time;
  plan.execution.deduplicated_dispatch = plan.execution.fused_permutation = true;
  plan.execution.quantised_dispatch = plan.execution.fused_router = true;
  EXPECT_EQ(ServingModel(plan).cost(0, iteration).time, without);
  const std::string idle = idle_text(idle_fields(plan));
  for (const char* field :
       {"deduplicated_dispatch", "fused_permutation", "quantised_dispatch", "fused_router"}) {
    EXPECT_THAT(idle, HasSubstr(field));
  }
}

// Launches bound nothing where graphs are replayed; casts of every expert by itself take time.
TEST(ServingFields, KernelsOfExpertsCountWhereTheyCast) {
  for (const auto& [precision, scaling] :
       {std::pair(DType::Bf16, Fp8Scaling::Delayed), std::pair(DType::Fp8, Fp8Scaling::Delayed),
        std::pair(DType::Fp8, Fp8Scaling::Current)}) {
    Plan plan = serving_experts_plan(precision);
    plan.execution.fp8_scaling = scaling;
    const Seconds without = mixed_iteration(plan).time;
    plan.execution.expert_kernels = true;
    const bool matters = mixed_iteration(plan).time != without;
    EXPECT_EQ(matters, scaling == Fp8Scaling::Current);
    EXPECT_EQ(idle_text(idle_fields(plan)).find("expert_kernels") == std::string::npos, matters);
  }
}

// What finds the scales of casts takes its time in serving, too.
TEST(ServingFields, ScalingsAreNamedWhereTheyDoNothing) {
  Plan plan = serving_experts_plan(DType::Fp8);
  const Seconds delayed = mixed_iteration(plan).time;
  for (const Fp8Scaling scaling : {Fp8Scaling::Current, Fp8Scaling::Blocks}) {
    plan.execution.fp8_scaling = scaling;
    const bool matters = mixed_iteration(plan).time != delayed;
    EXPECT_EQ(idle_text(idle_fields(plan)).find("fp8_scaling") == std::string::npos, matters)
        << static_cast<int>(scaling);
  }
}

}  // namespace
}  // namespace orrery::plan
