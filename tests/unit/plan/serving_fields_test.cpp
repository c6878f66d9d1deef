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
  Serving serving = *plan.serving;
  serving.options.fp8_cache = true;
  plan.serving = std::make_shared<const Serving>(serving);
  EXPECT_THAT(idle_text(idle_fields(plan)), Not(HasSubstr("fp8_attention")));
}

// Of one stage, or of whole prompts, no chunks follow each other.
TEST(ServingFields, ChunksOverlapInPipelinesAlone) {
  BlockPlan layout;
  layout.tp = 4;
  const auto told = [&](int pp, Prefill prefill) {
    Plan plan = replicas_of("llama3-8b", "hgx-h100:1", layout, pp, DType::Bf16);
    Serving serving = some_requests(8);
    serving.options.overlap_chunks = true;
    serving.options.prefill = prefill;
    serve(plan, serving);
    return idle_text(idle_fields(plan));
  };
  EXPECT_EQ(told(2, Prefill::Chunked), "");
  EXPECT_THAT(told(1, Prefill::Chunked), HasSubstr("serving.overlap_chunks (needs"));
  EXPECT_THAT(told(2, Prefill::Separate), HasSubstr("pp > 1"));
}

// Shared experts run while tokens travel to the others and back, which takes no less than the
// longer of both; nano-batches compute under exchanges in any case.
TEST(ServingFields, SharedExpertsRunBesideTheExchange) {
  Plan plan = serving_experts_plan(DType::Bf16);
  const Seconds persistent = mixed_iteration(plan).time;
  plan.execution.overlap_shared_experts = true;
  EXPECT_EQ(mixed_iteration(plan).time, persistent);  // Hopper's products leave no room
  EXPECT_THAT(idle_text(idle_fields(plan)), HasSubstr("without persistent products"));
  plan.cluster = topologies::load_cluster("dgx-a100:1");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.execution.overlap_shared_experts = false;
  const IterationCost in_turn = mixed_iteration(plan);
  plan.execution.overlap_shared_experts = true;
  const IterationCost beside = mixed_iteration(plan);
  EXPECT_LT(beside.of(ServingPart::Network), in_turn.of(ServingPart::Network));
  for (const ServingPart part : {ServingPart::Gemm, ServingPart::Decode, ServingPart::Other}) {
    EXPECT_EQ(beside.of(part), in_turn.of(part));
  }
  EXPECT_NEAR((in_turn.time - beside.time).value(),
              (in_turn.of(ServingPart::Network) - beside.of(ServingPart::Network)).value(), 1e-12);
  Plan without = plan;  // shared experts hide no more of an exchange than they take
  models::NetworkSpec spec = plan.network.spec;
  spec.moe.shared_ffn_hidden = 0;
  without.network = models::build_network(spec, "without");
  EXPECT_GE(beside.time, mixed_iteration(without).time);
  EXPECT_EQ(idle_text(idle_fields(plan)), "");
  Serving serving = *plan.serving;
  serving.options.nano_batches = 2;
  plan.serving = std::make_shared<const Serving>(serving);
  const Seconds overlapped = mixed_iteration(plan).time;
  plan.execution.overlap_shared_experts = false;
  EXPECT_EQ(mixed_iteration(plan).time, overlapped);
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
  plan.execution.overlap_shared_experts = true;
  EXPECT_EQ(ServingModel(plan).cost(0, iteration).time, without);
  const std::string idle = idle_text(idle_fields(plan));
  for (const char* field : {"deduplicated_dispatch", "fused_permutation", "quantised_dispatch",
                            "fused_router", "overlap_shared_experts"}) {
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
