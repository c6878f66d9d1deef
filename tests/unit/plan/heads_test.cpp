// SPDX-License-Identifier: Apache-2.0
// Over how many ranks heads, widths and adapters divide.
#include "plan/heads.hpp"

#include <gtest/gtest.h>

#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

models::NetworkSpec spec_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn_hidden) {
  models::NetworkSpec spec = small_spec();
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.ffn_hidden = ffn_hidden;
  return spec;
}

TEST(EvenCuts, AskForHeadsAndWidths) {
  EXPECT_TRUE(cuts_evenly(spec_of(16, 16, 4096), 8));
  EXPECT_FALSE(cuts_evenly(spec_of(12, 12, 4096), 8));
  EXPECT_FALSE(cuts_evenly(spec_of(16, 16, 4100), 8));
  EXPECT_TRUE(cuts_evenly(spec_of(16, 4, 4096), 8));  // every key head on two ranks
  EXPECT_FALSE(cuts_evenly(spec_of(48, 6, 4096), 8));
}

TEST(EvenCuts, AskForExpertsAndAdapters) {
  models::NetworkSpec spec = spec_of(16, 16, 4096);
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 2048, .shared_ffn_hidden = 0};
  EXPECT_TRUE(cuts_evenly(spec, 8));
  spec.moe.shared_ffn_hidden = 12;
  EXPECT_FALSE(cuts_evenly(spec, 8));
  spec.moe.shared_ffn_hidden = 0;
  spec.moe.ffn_hidden = 2052;
  EXPECT_FALSE(cuts_evenly(spec, 8));
  EXPECT_TRUE(cuts_evenly(spec, 8, true));  // whole experts
  spec.moe = {};
  spec.adapters.rank = 16;
  EXPECT_TRUE(cuts_evenly(spec, 8));
  spec.adapters.rank = 4;
  EXPECT_TRUE(cuts_evenly(spec, 4));
  EXPECT_FALSE(cuts_evenly(spec, 8));
}

TEST(EvenCuts, AskForEncodersAndCascades) {
  models::NetworkSpec spec = spec_of(16, 16, 4096);
  spec.encoder = {.layers = 2, .hidden = 512, .heads = 8};
  EXPECT_TRUE(cuts_evenly(spec, 8));
  spec.encoder.heads = 4;
  EXPECT_FALSE(cuts_evenly(spec, 8));
  spec.encoder = {.layers = 2, .hidden = 516, .heads = 8};
  EXPECT_FALSE(cuts_evenly(spec, 8));
  spec.encoder = {};
  spec.cascade = {.layers = 2, .hidden = 512, .heads = 8, .ffn_hidden = 2048};
  EXPECT_TRUE(cuts_evenly(spec, 8));
  spec.cascade.heads = 4;
  EXPECT_FALSE(cuts_evenly(spec, 8));
  spec.cascade = {.layers = 2, .hidden = 516, .heads = 8, .ffn_hidden = 2048};
  EXPECT_FALSE(cuts_evenly(spec, 8));
  spec.cascade = {.layers = 2, .hidden = 512, .heads = 8, .ffn_hidden = 2052};
  EXPECT_FALSE(cuts_evenly(spec, 8));
}

}  // namespace
}  // namespace orrery::plan
