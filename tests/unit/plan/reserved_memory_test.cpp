// SPDX-License-Identifier: Apache-2.0
// What keeps reserved memory above allocated memory: whole parameters of a rank's run of the flat
// buffer, memory of a second stream, buffers that stay; and what attention's backward holds.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/block/cost.hpp"
#include "plan/block/memory.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan reserving_stage(const BlockPlan& layout, const models::NetworkSpec& spec = small_spec()) {
  Plan plan = small_plan(spec);
  plan.pp = 1;
  plan.dp = plan.cluster.num_gpus() / (layout.tp * layout.cp);
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

BlockMemory memory_at(const Plan& plan, std::size_t position, const MemoryFacts& facts = {}) {
  BlockCosts costs(plan);
  const BlockContext context = costs.block_context(plan.network.chain[position],
                                                   plan.blocks.front().layout, plan.micro_batch);
  return block_memory(context, facts, false);
}

template <class Predicate>
std::int64_t count(const std::vector<MemoryEvent>& events, Predicate predicate) {
  return std::count_if(events.begin(), events.end(), predicate);
}

struct Shards {
  MemoryPeak runs;   // of the flat buffer
  MemoryPeak parts;  // of each parameter
};

Shards cut_both_ways(int zero_stage) {
  BlockPlan layout;
  layout.zero_stage = zero_stage;
  const Plan plan = reserving_stage(layout);
  MemoryFacts facts;
  Shards shards;
  shards.runs = replay_memory(plan, facts).front();
  facts.contiguous_shards = false;
  shards.parts = replay_memory(plan, facts).front();
  return shards;
}

// Megatron-LM's buffer is cut without regard to parameters: the same bytes in other pieces.
TEST(ReservedMemory, RunsOfTheBufferHoldOtherPiecesOfTheSameSize) {
  const Shards shards = cut_both_ways(1);
  const auto bytes = [](ByteCount count) { return static_cast<double>(count.value()); };
  EXPECT_NEAR(bytes(shards.runs.allocated) / bytes(shards.parts.allocated), 1, 5e-3);
  EXPECT_NE(shards.runs.reserved, shards.parts.reserved);
}

TEST(ReservedMemory, FullyShardedStatesAreCutParameterByParameter) {
  const Shards shards = cut_both_ways(3);
  EXPECT_EQ(shards.runs.reserved, shards.parts.reserved);
}

// dq_accum of FlashAttention, dQ_accum of cuDNN: fp32 beside the 16-bit gradients.
TEST(ReservedMemory, FusedAttentionAddsQueryGradientsInFp32) {
  Plan plan = reserving_stage({});
  const auto& spec = plan.network.spec;
  const std::int64_t sums = 4 * plan.micro_batch * plan.sequence * spec.heads * spec.head_dim;
  const auto of_that_size = [&](const MemoryEvent& event) { return event.bytes == sums; };
  plan.execution.fused_attention = true;
  const std::int64_t fused = count(memory_at(plan, 1).backward, of_that_size);
  plan.execution.fused_attention = false;
  EXPECT_EQ(fused, count(memory_at(plan, 1).backward, of_that_size) + 1);
}

// TransformerEngine: q, k, v and the context there, their gradients back.
TEST(ReservedMemory, ExchangedHeadsLandInMemoryOfAnotherStream) {
  BlockPlan layout;
  layout.cp = 4;
  layout.context = ContextParallel::Ulysses;
  const Plan plan = reserving_stage(layout);
  MemoryFacts facts;
  const auto elsewhere = [](const MemoryEvent& event) { return event.stream != 0; };
  EXPECT_EQ(count(memory_at(plan, 1, facts).forward, elsewhere), 0);
  facts.exchange_stream = true;
  const BlockMemory memory = memory_at(plan, 1, facts);
  EXPECT_EQ(count(memory.forward, elsewhere), 4);
  EXPECT_EQ(count(memory.backward, elsewhere), 4);
  EXPECT_GT(replay_memory(plan, facts).front().reserved, replay_memory(plan).front().reserved);
}

// The output layer of Megatron-LM gathers its input into a global buffer.
TEST(ReservedMemory, OutputLayerGathersIntoABufferThatStays) {
  BlockPlan layout;
  layout.tp = 4;
  const auto stays = [](const MemoryEvent& event) {
    return event.buffer == MemoryEvent::kGatherBuffer;
  };
  Plan plan = reserving_stage(layout);
  const std::size_t head = plan.network.chain.size() - 1;
  EXPECT_EQ(count(memory_at(plan, head).forward, stays), 0);
  plan.blocks.front().layout.sequence_parallel = true;
  const BlockMemory memory = memory_at(plan, head);
  ASSERT_EQ(count(memory.forward, stays), 1);
  const auto found = std::find_if(memory.forward.begin(), memory.forward.end(), stays);
  EXPECT_EQ(found->bytes, 2 * plan.micro_batch * plan.sequence * plan.network.spec.hidden);
  EXPECT_EQ(count(memory_at(plan, 1).forward, stays), 0);
}

// Each expert has parameters of its own, and they are not in the buffer of the others.
TEST(ReservedMemory, ExpertsAreTensorsOfTheirOwn) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 512};
  BlockPlan layout;
  layout.ep = 4;
  layout.zero_stage = 1;
  const BlockMemory memory = memory_at(reserving_stage(layout, spec), 1);
  ASSERT_EQ(memory.experts.size(), 4U);  // two experts, two products each
  EXPECT_EQ(memory.experts.back(), spec.hidden * spec.moe.ffn_hidden + spec.hidden);  // and a bias
  for (const std::int64_t elements : memory.weights) {
    EXPECT_LE(elements, 4 * spec.hidden * spec.hidden);
  }
}

}  // namespace
}  // namespace orrery::plan
