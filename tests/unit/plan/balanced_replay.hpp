// SPDX-License-Identifier: Apache-2.0
// The replay of a layer's allocations against the formula of what it saves.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "plan/block/cost.hpp"
#include "plan/block/memory.hpp"
#include "plan/block/saved.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// Live after the forward is what the formula says, to the byte, and everything is freed in the end.
inline void expect_balanced(const Plan& plan, const Slice& slice = {}, std::size_t position = 1) {
  const BlockPlan& layout = plan.blocks.front().layout;
  BlockCosts costs(plan);
  const BlockContext context =
      costs.block_context(plan.network.chain[position], layout, plan.micro_batch, slice);
  const BlockMemory memory = block_memory(context, {}, false);
  std::map<std::int32_t, std::int64_t> live = {{memory.input, memory.boundary}};
  const auto play = [&live](const std::vector<MemoryEvent>& events) {
    for (const MemoryEvent& event : events) {
      if (event.bytes > 0) {
        EXPECT_TRUE(live.emplace(event.buffer, event.bytes).second);
      } else {
        EXPECT_EQ(live.erase(event.buffer), 1U) << event.buffer;
      }
    }
  };
  play(memory.forward);
  live.erase(memory.output);
  std::int64_t kept = 0;
  for (const auto& [buffer, bytes] : live) {
    kept += bytes;
  }
  EXPECT_EQ(kept, (saved_activations(context, layout.recompute) + kept_copies(context)).value())
      << layout.recomputed.text();
  live[memory.output_gradient] = memory.boundary;
  play(memory.backward);
  live.erase(memory.input_gradient);
  EXPECT_TRUE(live.empty()) << layout.recomputed.text();
}

}  // namespace orrery::plan
