// SPDX-License-Identifier: Apache-2.0
// Slices of sequences in the homogeneous space: where they are tried, and that they win where a
// pipeline has few micro-batches of long sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

Shape long_sequences(std::int64_t batch) {
  Shape shape;
  shape.sequence = shape.spec.sequence = 16384;
  shape.batch = batch;
  return shape;
}

std::set<int> slices_in(const plan::Plan& base, const Constraints& constraints) {
  std::set<int> counts;
  const Space space(base, constraints);
  for (const Group& group : space.groups()) {
    for (const Member& member : space.members(group)) {
      counts.insert(member.slices);
    }
  }
  return counts;
}

TEST(SearchSlices, WinWhereMicroBatchesAreFew) {
  const plan::Plan base = base_plan(long_sequences(1));
  const Constraints constraints = fixed("pp=4,zero=0,recompute=none");
  Options options;
  options.jobs = 1;
  options.constraints = constraints;
  const Outcome outcome = search(base, options);
  ASSERT_TRUE(outcome.best);
  EXPECT_GT(outcome.best->plan.slices, 1);
  EXPECT_EQ(outcome.gap_fraction, 0.0);
  EXPECT_EQ(outcome.best->simulation.iteration_time, *enumerate(base, constraints).best);
  EXPECT_EQ(verify(*outcome.best), "");
  Options whole = options;
  whole.constraints.fix("slices=1");
  EXPECT_LT(outcome.best->simulation.iteration_time,
            search(base, whole).best->simulation.iteration_time * 0.85);
}

TEST(SearchSlices, ArePowersOfTwoUnlessAskedFor) {
  const plan::Plan base = base_plan(long_sequences(4));
  EXPECT_EQ(slices_in(base, fixed("pp=2,dp=1,tp=2,micro_batch=1")),
            (std::set<int>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(slices_in(base, fixed("pp=2,dp=1,tp=2,micro_batch=2")), (std::set<int>{1}));
  EXPECT_EQ(slices_in(base, fixed("pp=2,dp=1,tp=2,micro_batch=2,slices=128")),
            (std::set<int>{128}));
  EXPECT_EQ(slices_in(base, fixed("pp=2,dp=1,tp=2,schedule=seq1f1b")),
            (std::set<int>{2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(slices_in(base, fixed("pp=1")), (std::set<int>{1}));
  EXPECT_EQ(slices_in(base, fixed("pp=2,cp=2")), (std::set<int>{1}));
  for (const char* context : {"ulysses", "ring", "all-gather"}) {
    const std::string fix = std::string("pp=2,cp=2,context=") + context;
    EXPECT_EQ(slices_in(base, fixed(fix + ",slices=8")), (std::set<int>{8})) << context;
  }
  // Two chunks of every slice on each of two ranks.
  EXPECT_EQ(slices_in(base, fixed("pp=2,cp=2,context=all-gather,slices=8192")),
            (std::set<int>{8192}));
  EXPECT_EQ(slices_in(base, fixed("pp=2,cp=2,context=ring,slices=8192")), (std::set<int>{}));
  EXPECT_EQ(slices_in(base, fixed("pp=2,slices=1")), (std::set<int>{1}));
  Constraints offloading = fixed("pp=2,slices=8");
  offloading.allow("offload");
  EXPECT_EQ(slices_in(base, offloading), (std::set<int>{8}));
  Shape encoder = long_sequences(4);
  encoder.spec.family = models::Family::Bert;
  encoder.spec.causal = false;
  EXPECT_EQ(slices_in(base_plan(encoder), fixed("pp=2")), (std::set<int>{1}));
}

TEST(SearchSlices, WithContextParallelismEqualSimulatingEverything) {
  const plan::Plan base = base_plan(long_sequences(2));
  for (const char* context : {"ring", "all-gather"}) {
    Options options;
    options.jobs = 1;
    options.constraints = fixed(std::string("pp=2,cp=2,zero=0,slices=8,context=") + context);
    const Outcome outcome = search(base, options);
    ASSERT_TRUE(outcome.best);
    EXPECT_EQ(outcome.gap_fraction, 0.0);
    EXPECT_EQ(outcome.best->simulation.iteration_time, *enumerate(base, options.constraints).best);
    EXPECT_EQ(verify(*outcome.best), "");
  }
}

// A schedule and a layout may be in the space one by one and not together.
TEST(SearchSlices, OnlyLayoutsThatCanBeCutAreAnswers) {
  const plan::Plan base = base_plan(long_sequences(1));
  Options options;
  options.jobs = 1;
  options.constraints = fixed("pp=4,schedule=seq1f1b,slices=4");
  options.constraints.allow("operators");
  options.constraints.allow("meshes");
  const Outcome outcome = search(base, options);
  ASSERT_TRUE(outcome.best);
  EXPECT_EQ(verify(*outcome.best), "");
  for (const Found& found : outcome.alternatives) {
    EXPECT_EQ(verify(found), "");
  }
  options.constraints.fix("recompute=products");
  const Outcome products = search(base, options);
  ASSERT_TRUE(products.best);
  EXPECT_EQ(verify(*products.best), "");
  options.constraints = fixed("pp=2,tensor_parallel=2d,tp=4,schedule=seq1f1b,slices=4");
  options.constraints.fix("micro_batch=2");
  Shape node = long_sequences(8);
  node.overrides = {};
  const Outcome mesh = search(base_plan(node), options);
  ASSERT_TRUE(mesh.best);
  EXPECT_EQ(verify(*mesh.best), "");
  EXPECT_EQ(mesh.best->plan.blocks.front().layout.tensor_parallel, plan::TensorMesh::TwoD);
}

// Where no layout that is left can run the schedule, the answer says why.
TEST(SearchSlices, AScheduleThatNoLayoutCanRunSaysWhy) {
  Options options;
  options.jobs = 1;
  options.constraints = fixed("pp=4,schedule=helixpipe,recompute=full");
  const Outcome none = search(base_plan(long_sequences(4)), options);
  EXPECT_FALSE(none.best.has_value());
  EXPECT_THAT(none.closest_overflow, testing::HasSubstr("again: set recompute to"));
}

}  // namespace
}  // namespace orrery::search
