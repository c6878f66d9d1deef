// SPDX-License-Identifier: Apache-2.0
// Buffers that live as long as a variable of the framework's code names them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/block/memory.hpp"
#include "plan/replay/memory_replay.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

struct Block {
  BlockMemory memory;
  std::int64_t tokens = 0;  // bytes of what the device's tokens send to their experts
};

Block block_at(const Plan& plan, std::size_t position, const MemoryFacts& facts) {
  BlockCosts costs(plan);
  const BlockContext context = costs.block_context(plan.network.chain[position],
                                                   plan.blocks.front().layout, plan.micro_batch);
  Block block{block_memory(context, facts, false)};
  block.tokens = plan.network.spec.moe.top_k * block.memory.boundary;
  return block;
}

std::int64_t count(const std::vector<MemoryEvent>& events, std::int64_t bytes) {
  return std::count_if(events.begin(), events.end(),
                       [bytes](const MemoryEvent& event) { return event.bytes == bytes; });
}

// Most buffers of so many bytes that live at once.
std::int64_t most(const std::vector<MemoryEvent>& events, std::int64_t bytes) {
  std::map<std::int32_t, std::int64_t> live;
  std::int64_t now = 0;
  std::int64_t peak = 0;
  for (const MemoryEvent& event : events) {
    if (event.bytes > 0) {
      live[event.buffer] = event.bytes;
      now += event.bytes == bytes ? 1 : 0;
      peak = std::max(peak, now);
    } else if (const auto known = live.find(event.buffer); known != live.end()) {
      now -= known->second == bytes ? 1 : 0;
      live.erase(known);
    }
  }
  return peak;
}

Plan mixture_with(int experts_a_device) {
  BlockPlan layout;
  layout.ep = 8 / experts_a_device;
  return one_stage_plan(layout, "mixtral-8x7b");
}

// What was permuted and received stays while the sorted copy is kept, what was sent back meets what
// came: five times the tokens. Without the variables what was sent is gone when it has arrived:
// kept tokens, results and what they are combined from.
TEST(MemoryLifetimes, TokensOfExpertsStayToTheEndOfTheLayer) {
  const Plan plan = mixture_with(2);
  MemoryFacts facts;
  const Block held = block_at(plan, 2, facts);
  EXPECT_EQ(most(held.memory.forward, held.tokens), 5);
  facts.routed_variables = false;
  EXPECT_EQ(most(block_at(plan, 2, facts).memory.forward, held.tokens), 3);
}

// One expert a device needs no sorting: two copies less in the forward, two in the backward.
TEST(MemoryLifetimes, TokensOfOneExpertAreNotSorted) {
  const Block several = block_at(mixture_with(2), 2, {});
  const Block one = block_at(mixture_with(1), 2, {});
  ASSERT_EQ(one.tokens, several.tokens);
  for (const auto pass : {&BlockMemory::forward, &BlockMemory::backward}) {
    EXPECT_EQ(count(several.memory.*pass, several.tokens), count(one.memory.*pass, one.tokens) + 2);
  }
}

// Gate and up: one tensor of twice the size, whose gradient is one, too.
TEST(MemoryLifetimes, GateAndUpAreOneTensor) {
  Plan plan = one_stage_plan({}, "llama3-8b");
  plan.sequence = 1024;  // no weight is as large
  const std::int64_t width = 2 * plan.micro_batch * plan.sequence * plan.network.spec.ffn_hidden;
  MemoryFacts facts;
  for (const bool joined : {true, false}) {
    facts.joined_outputs = joined;
    const BlockMemory memory = block_at(plan, 2, facts).memory;
    EXPECT_EQ(count(memory.forward, 2 * width), joined ? 1 : 0);
    EXPECT_EQ(count(memory.forward, width), joined ? 1 : 3);
    EXPECT_EQ(count(memory.backward, 2 * width), joined ? 1 : 0);
  }
}

// Queries of 32 heads, keys and values of 8: one tensor for the three, of which queries and values
// are copied, and one gradient. With positions learned nothing is copied, nothing joined.
TEST(MemoryLifetimes, QueriesKeysAndValuesAreViewsOfOneTensor) {
  Plan plan = one_stage_plan({}, "llama3-8b");
  const std::int64_t keys = 2 * plan.micro_batch * plan.sequence * 8 * 128;
  MemoryFacts facts;
  for (const bool views : {true, false}) {
    facts.attention_variables = views;
    const BlockMemory memory = block_at(plan, 2, facts).memory;
    EXPECT_EQ(count(memory.forward, 6 * keys), views ? 1 : 0);
    EXPECT_EQ(count(memory.forward, keys), views ? 2 : 3);  // rotated keys, values
    EXPECT_EQ(count(memory.backward, 6 * keys), views ? 1 : 0);
  }
  plan.execution.fused_projections = false;
  facts.attention_variables = true;
  EXPECT_EQ(count(block_at(plan, 2, facts).memory.forward, 6 * keys), 0);
}

// DeepSeek's keys without positions and values: gone before attention makes its output.
TEST(MemoryLifetimes, LatentKeysAndValuesAreGoneBeforeAttention) {
  const Plan plan = one_stage_plan({}, "deepseek-v2");
  const std::int64_t half = 2 * plan.micro_batch * plan.sequence * 128 * 128;
  const std::vector<MemoryEvent> events = block_at(plan, 1, {}).memory.forward;
  const auto whole = std::find_if(events.begin(), events.end(), [&](const MemoryEvent& event) {
    return event.bytes == 2 * half;
  });
  ASSERT_NE(whole, events.end());
  const auto freed = std::find_if(whole + 1, events.end(), [&](const MemoryEvent& event) {
    return event.buffer == whole->buffer;
  });
  ASSERT_NE(freed, events.end());
  EXPECT_EQ(count({events.begin(), freed}, half), 1);  // values
  EXPECT_EQ(count(events, half), 2);                   // and attention's output
}

// What is exchanged for heads is named by the layer until the product behind attention has run.
TEST(MemoryLifetimes, ExchangedQueriesAndKeysStayToTheEndOfAttention) {
  BlockPlan layout;
  layout.cp = 4;
  layout.context = ContextParallel::Ulysses;
  const Plan plan = one_stage_plan(layout, "llama3-8b");
  const std::int64_t keys = 2 * plan.micro_batch * plan.sequence * 8 * 128 / 4;
  MemoryFacts facts;
  facts.exchange_stream = true;
  for (const bool held : {true, false}) {
    facts.attention_variables = held;
    const std::vector<MemoryEvent> events = block_at(plan, 2, facts).memory.forward;
    std::map<std::int32_t, std::int64_t> bytes;
    std::int64_t released = 0;  // behind the exchange of attention's result
    for (const MemoryEvent& event : events) {
      if (event.bytes > 0) {
        bytes[event.buffer] = event.bytes;
        released = event.stream > 0 ? 0 : released;
      } else {
        released += bytes[event.buffer] == keys ? 1 : 0;
      }
    }
    EXPECT_EQ(released, held ? 1 : 0);
  }
}

// The output layer's input gradient is there beside its part until its backward returns.
TEST(MemoryLifetimes, WholeGradientsStayBesideTheirParts) {
  BlockPlan layout;
  layout.tp = 4;
  layout.sequence_parallel = true;
  const Plan plan = one_stage_plan(layout, "llama3-8b");
  const std::size_t head = plan.network.chain.size() - 1;
  MemoryFacts facts;
  std::vector<std::size_t> released;
  for (const bool stay : {true, false}) {
    facts.whole_gradients_stay = stay;
    const BlockMemory memory = block_at(plan, head, facts).memory;
    const auto whole =
        std::find_if(memory.backward.begin(), memory.backward.end(),
                     [&](const MemoryEvent& event) { return event.bytes == 4 * memory.boundary; });
    ASSERT_NE(whole, memory.backward.end());
    const auto freed =
        std::find_if(whole + 1, memory.backward.end(),
                     [&](const MemoryEvent& event) { return event.buffer == whole->buffer; });
    ASSERT_NE(freed, memory.backward.end());
    released.push_back(static_cast<std::size_t>(freed - whole));
  }
  EXPECT_GT(released[0], released[1]);
}

// A weight of the output layer has its placeholder for ever from Megatron-Core 0.14 on.
TEST(MemoryLifetimes, TheOutputLayerSharesPlaceholders) {
  const Plan plan = one_stage_plan({}, "llama3-8b");
  MemoryFacts facts;
  facts.weight_gradient = WeightGradient::Cached;
  const auto kept = [&] {
    const BlockMemory memory = block_at(plan, plan.network.chain.size() - 1, facts).memory;
    return std::any_of(
        memory.backward.begin(), memory.backward.end(),
        [](const MemoryEvent& event) { return event.buffer == MemoryEvent::kPlaceholder; });
  };
  EXPECT_TRUE(kept());
  facts.output_placeholder = false;
  EXPECT_FALSE(kept());
}

// The last stage still names the gradient that it sent while its next backward runs.
TEST(MemoryLifetimes, SchedulesHoldTheGradientsTheyExchanged) {
  const Plan plan = small_plan();
  MemoryFacts facts;
  const ByteCount held = replay_memory(plan, facts).back().allocated;
  facts.held_gradients = false;
  const ByteCount freed = replay_memory(plan, facts).back().allocated;
  EXPECT_EQ((held - freed).value(), 2 * 2048 * 1024);
}

}  // namespace
}  // namespace orrery::plan
