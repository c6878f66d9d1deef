// SPDX-License-Identifier: Apache-2.0
// Virtual stages of a device take turns with their buffers: with just the memory that a plan with
// chunks needs it is still found, since no bound counts buffers of several of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "search/per_block/search.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// Short sequences, so that buffers outweigh the activations that a bound cannot know of.
plan::Plan plan_with(const std::string& memory) {
  Shape shape = with_memory(memory);
  shape.batch = 32;
  shape.sequence = 128;
  return base_plan(shape);
}

Options sharded_options(const std::string& fix) {
  Options options;
  options.replay_reserve = ByteCount(-(std::int64_t{64} << 30));  // categories alone count
  options.jobs = 1;
  options.constraints = fixed("tp=1,cp=1,pp=2,dp=2,recompute=none,micro_batch=1,chunks=2," + fix);
  return options;
}

std::string memory_of(const Found& found) {
  ByteCount most;
  for (const plan::StageMemory& memory : found.simulation.memory) {
    most = std::max(most, memory.total());
  }
  return std::to_string(most.value()) + " B";
}

TEST(ChunkBuffers, AreNoReasonToPrune) {
  for (const char* fix : {"schedule=interleaved,zero=3", "schedule=interleaved,zero=2",
                          "schedule=zb-v,zero=3", "schedule=hanayo,zero=3"}) {
    const Options options = sharded_options(fix);
    const Outcome roomy = search(plan_with("80 GiB"), options);
    ASSERT_TRUE(roomy.best) << fix;
    const Outcome exact = search(plan_with(memory_of(*roomy.best)), options);
    ASSERT_TRUE(exact.best) << fix;
    EXPECT_EQ(exact.best->simulation.iteration_time, roomy.best->simulation.iteration_time) << fix;
  }
}

TEST(ChunkBuffers, AreNoReasonToPruneBlockByBlock) {
  for (const char* fix : {"schedule=interleaved,zero=3", "schedule=interleaved,zero=2",
                          "schedule=interleaved", "schedule=zb-v,zero=3"}) {
    const Options options = sharded_options(fix);
    const Outcome roomy = search_per_block(plan_with("80 GiB"), options).outcome;
    ASSERT_TRUE(roomy.best) << fix;
    const Outcome exact = search_per_block(plan_with(memory_of(*roomy.best)), options).outcome;
    ASSERT_TRUE(exact.best) << fix;
    const Seconds time = roomy.best->simulation.iteration_time;
    EXPECT_LE(exact.best->simulation.iteration_time, time) << fix;  // within its gap
    EXPECT_LE(exact.lower_bound, time) << fix;
  }
}

}  // namespace
}  // namespace orrery::search
