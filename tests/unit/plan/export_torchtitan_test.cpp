// SPDX-License-Identifier: Apache-2.0
// Plans that TorchTitan 0.2.2 does not run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/stages.hpp"
#include "tests/unit/plan/export_fixture.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

std::string torchtitan_refusal(const Plan& plan) { return export_refusal("torchtitan", plan); }

// Of eight experts, two stages of 8 GPUs or one of 16.
Plan titan_plan(const BlockPlan& layout, int pp = 1) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
  Plan plan = small_plan(spec);
  plan.pp = pp;
  plan.dp = 16 / pp / (layout.tp * layout.cp);
  plan.stage_blocks = even_stages(plan.network, pp);
  plan.blocks.front().layout = layout;
  return plan;
}

// The mesh of the experts is a part of FSDP's ranks, and of the tensor ranks where these do not
// cut experts (build_mesh in torchtitan/distributed/parallel_dims.py).
TEST(TorchTitanExport, ExpertsAreWithinTheShardingRanks) {
  EXPECT_EQ(torchtitan_refusal(titan_plan({.ep = 4, .zero_stage = 3})), "");
  EXPECT_THAT(torchtitan_refusal(titan_plan({.ep = 4})),
              HasSubstr("expert parallelism without sharding"));
  EXPECT_THAT(torchtitan_refusal(titan_plan({.ep = 4, .zero_stage = 3, .shard_degree = 2})),
              HasSubstr("experts of 4 ranks within the 2 that shard parameters"));
  BlockPlan tensor = {.tp = 8, .ep = 8, .sequence_parallel = true, .zero_stage = 3};
  EXPECT_THAT(torchtitan_refusal(titan_plan(tensor)), HasSubstr("within the 2 that shard"));
  tensor.expert_tp = 1;
  EXPECT_EQ(torchtitan_refusal(titan_plan(tensor)), "");
  // A single data rank: FSDP's mesh is missing.
  EXPECT_THAT(torchtitan_refusal(titan_plan(tensor, 2)),
              HasSubstr("mixed precision of tensor or pipeline ranks without sharding"));
  Plan plan = titan_plan(tensor, 2);
  plan.precision = DType::Fp32;
  EXPECT_THAT(torchtitan_refusal(plan), HasSubstr("expert parallelism without sharding"));
}

TEST(TorchTitanExport, TensorRanksCutExpertsWithoutExpertParallelism) {
  BlockPlan layout = {.tp = 4, .sequence_parallel = true, .zero_stage = 3};
  EXPECT_EQ(torchtitan_refusal(titan_plan(layout)), "");
  layout.expert_tp = 1;
  EXPECT_THAT(torchtitan_refusal(titan_plan(layout)),
              HasSubstr("experts that tensor parallelism does not cut"));
}

// Over one rank fully_shard is left out, and mixed precision with it.
TEST(TorchTitanExport, OneRankDoesNotShard) {
  const BlockPlan layout = {.tp = 8, .sequence_parallel = true, .zero_stage = 3};
  Plan plan = small_plan();
  plan.dp = 1;
  plan.blocks.front().layout = layout;
  EXPECT_THAT(torchtitan_refusal(plan),
              HasSubstr("mixed precision of tensor or pipeline ranks without sharding"));
  plan.precision = DType::Fp32;
  EXPECT_EQ(torchtitan_refusal(plan), "");
  plan = one_stage_plan(layout);
  EXPECT_EQ(torchtitan_refusal(plan), "");
  plan.blocks.front().layout.shard_degree = 1;
  EXPECT_THAT(torchtitan_refusal(plan), HasSubstr("replicas without sharding"));
}

TEST(TorchTitanExport, SequencesDivideByTwicePartsOfThem) {
  Plan plan = one_stage_plan({.tp = 4, .sequence_parallel = true, .zero_stage = 3});
  plan.sequence = 2044;
  EXPECT_THAT(torchtitan_refusal(plan), HasSubstr("2 x tp x cp = 8 does not divide"));
  plan.sequence = 2040;
  EXPECT_EQ(torchtitan_refusal(plan), "");
}

TEST(TorchTitanExport, ShardsTheEmbeddingOverTensorRanks) {
  Plan plan = one_stage_plan({.tp = 4, .sequence_parallel = true, .zero_stage = 3});
  plan.execution.vocab_parallel = false;
  EXPECT_THAT(torchtitan_refusal(plan), HasSubstr("embedding"));
}

TEST(TorchTitanExport, AsksOfPipelinesWhatPyTorchDoes) {
  const auto refused = [](const std::string& schedule, int batches, auto change) {
    Plan plan = titan_plan({.zero_stage = 3}, 2);
    plan.schedule = schedule;
    plan.chunks = schedule == "1f1b" ? 1 : 2;
    plan.stage_blocks = even_stages(plan.network, 2 * plan.chunks);
    plan.batch = batches * plan.micro_batch * plan.dp;
    change(plan);
    return torchtitan_refusal(plan);
  };
  const auto as_is = [](Plan&) {};
  EXPECT_EQ(refused("1f1b", 2, as_is), "");
  EXPECT_THAT(refused("1f1b", 1, as_is), HasSubstr("1 micro-batches under 1f1b (at least 2)"));
  EXPECT_EQ(refused("dualpipe-v", 4, as_is), "");
  EXPECT_THAT(refused("dualpipe-v", 3, as_is), HasSubstr("at least 4"));
  EXPECT_EQ(refused("interleaved", 3, as_is), "");
  EXPECT_THAT(refused("interleaved", 5, as_is), HasSubstr("5 micro-batches in 2 rounds"));
  const auto streams = [](Plan& plan) { plan.execution.stream_tp = true; };
  EXPECT_EQ(refused("interleaved", 4, streams), "");
  EXPECT_THAT(refused("zb-v", 4, streams), HasSubstr("streamed tensor parallelism"));
  const auto recomputes = [](Plan& plan) {
    plan.blocks.front().layout.ep = 4;
    plan.blocks.front().layout.recompute = Recompute::Full;
  };
  EXPECT_EQ(refused("zb-v", 4, recomputes), "");
  EXPECT_THAT(refused("dualpipe-v", 4, recomputes), HasSubstr("recomputation under dualpipe-v"));
}

// FSDP that does not reshard after the forward, as for Accelerate.
TEST(TorchTitanExport, WritesZero2AsShardsThatStayGathered) {
  Plan plan = one_stage_plan({.zero_stage = 3});
  EXPECT_THAT(find_exporter("torchtitan").write(plan),
              HasSubstr("fsdp_reshard_after_forward = \"always\""));
  plan.blocks.front().layout.zero_stage = 2;
  const std::string text = find_exporter("torchtitan").write(plan);
  EXPECT_THAT(text, HasSubstr("fsdp_reshard_after_forward = \"never\""));
  EXPECT_THAT(text, HasSubstr(fmt::format("data_parallel_shard_degree = {}\n", plan.dp)));
  plan.blocks.front().layout.zero_stage = 1;
  EXPECT_THAT(torchtitan_refusal(plan), HasSubstr("(--fix zero=2)"));
}

}  // namespace
}  // namespace orrery::plan
