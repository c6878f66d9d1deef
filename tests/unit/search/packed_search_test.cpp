// SPDX-License-Identifier: Apache-2.0
// Plans of packs for sequences of different length (FlexSP), and arcs (LayerPipe) by name.
#include "search/packed_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::search {
namespace {

// One GPU node; few long sequences, many short ones.
plan::Plan base_of(const std::vector<std::int64_t>& lengths) {
  models::NetworkSpec spec = plan::small_spec();
  spec.sequence = *std::max_element(lengths.begin(), lengths.end());
  plan::Plan base = plan::small_plan(spec, "dgx-a100:1");
  base.batch = static_cast<std::int64_t>(lengths.size());
  base.sequence = spec.sequence;
  return base;
}

std::vector<std::int64_t> mixed_lengths() {
  std::vector<std::int64_t> lengths(24, 1024);
  lengths.insert(lengths.end(), 6, 4096);
  lengths.push_back(65536);
  return lengths;
}

Options options_of(const std::string& fixed, int jobs) {
  Options options;
  options.constraints.fix(fixed);
  options.jobs = jobs;
  options.interval_draws = 0;
  return options;
}

// The same sequences with all ranks as groups of one degree, as many packs at once as there are.
Seconds with_one_degree(plan::Plan plan, std::vector<std::int64_t> lengths, int degree) {
  std::sort(lengths.rbegin(), lengths.rend());
  const auto groups = static_cast<std::size_t>(plan.dp / degree);
  plan.packs.assign(1, std::vector<plan::Pack>(groups, plan::Pack{degree, {}}));
  for (const std::int64_t length : lengths) {  // to the group with fewest tokens
    const auto tokens = [](const plan::Pack& pack) {
      return std::accumulate(pack.sequences.begin(), pack.sequences.end(), std::int64_t{0});
    };
    const auto least = std::min_element(
        plan.packs[0].begin(), plan.packs[0].end(),
        [&](const plan::Pack& a, const plan::Pack& b) { return tokens(a) < tokens(b); });
    least->sequences.push_back(length);
  }
  return plan::simulate(plan).iteration_time;
}

TEST(PackedSearch, PacksEverySequenceOnceFasterThanOneDegree) {
  const std::vector<std::int64_t> lengths = mixed_lengths();
  const Outcome outcome =
      search_packed(base_of(lengths), options_of("tp=1,zero=3,recompute=full", 1), lengths);
  ASSERT_TRUE(outcome.best.has_value());
  const plan::Plan& plan = outcome.best->plan;
  plan::check_plan(plan, "found");
  std::vector<std::int64_t> packed;
  for (const std::vector<plan::Pack>& micro_batch : plan.packs) {
    for (const plan::Pack& pack : micro_batch) {
      packed.insert(packed.end(), pack.sequences.begin(), pack.sequences.end());
    }
  }
  EXPECT_THAT(packed, testing::UnorderedElementsAreArray(lengths));
  EXPECT_EQ(plan::simulate(plan).iteration_time, outcome.best->simulation.iteration_time);
  for (const int degree : {1, 2, 4, 8}) {
    EXPECT_LE(outcome.best->simulation.iteration_time, with_one_degree(plan, lengths, degree));
  }
  EXPECT_GT(outcome.gap_fraction, 0);  // other packs are not ruled out
}

// Ranks share out key and value heads like query heads: 12 and 6 of them over 2 ranks, not over 4.
TEST(PackedSearch, CutsHeadsThatDivide) {
  const std::vector<std::int64_t> lengths = {4096, 1024, 1024, 2048, 512, 512, 1024, 4096};
  plan::Plan base = base_of(lengths);
  models::NetworkSpec spec = base.network.spec;
  spec.hidden = 12 * 128;
  spec.heads = 12;
  spec.kv_heads = 6;
  spec.head_dim = 128;
  spec.ffn_hidden = 4 * spec.hidden;
  base.network = models::build_network(spec, "test");
  for (const char* tp : {"tp=1", "tp=2"}) {
    const Outcome outcome =
        search_packed(base, options_of(std::string(tp) + ",zero=1,recompute=none", 1), lengths);
    ASSERT_TRUE(outcome.best.has_value());
    EXPECT_NO_THROW(plan::check_plan(outcome.best->plan, tp));
    for (const plan::Pack& pack : outcome.best->plan.packs.front()) {
      EXPECT_LE(pack.group * outcome.best->plan.blocks.front().layout.tp, 2);
    }
  }
  EXPECT_THROW((void)search_packed(base, options_of("tp=4", 1), lengths), Error);
}

TEST(PackedSearch, IsTheSameOnAnyNumberOfThreads) {
  const std::vector<std::int64_t> lengths = mixed_lengths();
  const Outcome one = search_packed(base_of(lengths), options_of("recompute=full", 1), lengths);
  const Outcome two = search_packed(base_of(lengths), options_of("recompute=full", 2), lengths);
  ASSERT_TRUE(one.best && two.best);
  EXPECT_EQ(plan::to_json(one.best->plan).dump(), plan::to_json(two.best->plan).dump());
  EXPECT_EQ(one.plans, 4 + 2 * 8 + 2);  // tp 8 has one data rank: ZeRO-0 alone
}

// A limit on time waits for one plan; a stop does not. Nothing is claimed of what was not tried.
TEST(PackedSearch, AnEarlyEndSaysWhatIsLeft) {
  const std::vector<std::int64_t> lengths = mixed_lengths();
  for (const char* fixed : {"recompute=full", "schedule=dynapipe,pp=2,recompute=full"}) {
    Options options = options_of(fixed, 1);
    options.time_limit = Seconds(1e-9);
    const Outcome late = search_packed(base_of(lengths), options, lengths);
    EXPECT_TRUE(late.timed_out) << fixed;
    EXPECT_TRUE(late.best) << fixed;
    EXPECT_GT(late.unexplored, 0) << fixed;
    EXPECT_EQ(late.plans, late.infeasible + late.unexplored + late.simulated) << fixed;
    options = options_of(fixed, 1);
    options.stop = [] { return true; };
    const Outcome stopped = search_packed(base_of(lengths), options, lengths);
    EXPECT_TRUE(stopped.interrupted && !stopped.timed_out) << fixed;
    EXPECT_FALSE(stopped.best) << fixed;
    EXPECT_EQ(stopped.unexplored, stopped.plans) << fixed;
    EXPECT_EQ(stopped.infeasible, 0) << fixed;
  }
}

TEST(PackedSearch, FindsNothingForASequenceThatFitsNowhere) {
  const std::vector<std::int64_t> lengths = {1 << 22};
  const Outcome outcome =
      search_packed(base_of(lengths), options_of("tp=1,recompute=none", 1), lengths);
  EXPECT_FALSE(outcome.best.has_value());
  EXPECT_EQ(outcome.infeasible, outcome.plans);
  EXPECT_THROW(search_packed(base_of(lengths), options_of("tp=3", 1), lengths), Error);
}

std::vector<std::int64_t> short_and_long() {
  std::vector<std::int64_t> lengths(40, 512);
  lengths.insert(lengths.end(), 6, 3000);
  lengths.push_back(16384);
  return lengths;
}

// In a pipeline: every sequence once, faster than the same micro-batches of the longest one.
TEST(PackedSearch, MakesMicroBatchesOfAPipeline) {
  const std::vector<std::int64_t> lengths = short_and_long();
  const std::string fixed = "schedule=dynapipe,pp=2,tp=2,recompute=none,sequence_parallel=false";
  const Outcome outcome = search_packed(base_of(lengths), options_of(fixed, 1), lengths);
  ASSERT_TRUE(outcome.best.has_value());
  const plan::Plan& plan = outcome.best->plan;
  EXPECT_NO_THROW(plan::check_plan(plan, "found"));
  EXPECT_EQ(plan.schedule, "dynapipe");
  std::vector<std::int64_t> packed;
  plan::Plan padded = plan;
  for (std::vector<plan::Pack>& micro_batch : padded.packs) {
    for (plan::Pack& pack : micro_batch) {
      packed.insert(packed.end(), pack.sequences.begin(), pack.sequences.end());
      std::fill(pack.sequences.begin(), pack.sequences.end(), 16384);
    }
  }
  EXPECT_THAT(packed, testing::UnorderedElementsAreArray(lengths));
  EXPECT_EQ(plan::simulate(plan).iteration_time, outcome.best->simulation.iteration_time);
  EXPECT_GT(plan::simulate(padded).iteration_time, outcome.best->simulation.iteration_time * 4.0);
  EXPECT_EQ(outcome.plans, 2);  // ZeRO-0 and 1
  EXPECT_GT(outcome.gap_fraction, 0);
  const Outcome two = search_packed(base_of(lengths), options_of(fixed, 2), lengths);
  ASSERT_TRUE(two.best.has_value());
  EXPECT_EQ(plan::to_json(two.best->plan).dump(), plan::to_json(plan).dump());
}

// Few short samples: one micro-batch would be the least sum, and each replica has one.
TEST(PackedSearch, LeavesNoReplicaWithoutAMicroBatch) {
  for (const std::size_t count : {8U, 9U, 13U}) {
    std::vector<std::int64_t> lengths(count, 64);
    lengths.back() = 128;
    const std::string fixed = "schedule=dynapipe,dp=8";
    const Outcome outcome = search_packed(base_of(lengths), options_of(fixed, 1), lengths);
    ASSERT_TRUE(outcome.best.has_value());
    EXPECT_NO_THROW(plan::check_plan(outcome.best->plan, "found"));
    EXPECT_EQ(outcome.best->plan.packs.front().size(), 8U);
    EXPECT_EQ(outcome.best->plan.batch, static_cast<std::int64_t>(count));
  }
}

std::string error_of(const std::string& fixed, const std::vector<std::int64_t>& lengths) {
  try {
    (void)search_packed(base_of(lengths), options_of(fixed, 1), lengths);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "not bad input";
  }
  return "";
}

TEST(PackedSearch, SaysWhatNoPacksCanBe) {
  const std::vector<std::int64_t> lengths(4, 64);
  EXPECT_THAT(error_of("schedule=dynapipe,dp=8", lengths),
              testing::HasSubstr("in at most 4 replicas, of a sequence each"));
  EXPECT_THAT(error_of("schedule=dynapipe,micro_batch=2", lengths),
              testing::HasSubstr("micro_batch of packs is 1"));
  EXPECT_THAT(error_of("schedule=flexsp,chunks=2", lengths),
              testing::HasSubstr("chunks of packs is 1"));
  EXPECT_THAT(error_of("schedule=dynapipe,cp=2", lengths), testing::HasSubstr("cp of packs is 1"));
  EXPECT_THAT(error_of("schedule=hanayo", lengths), testing::HasSubstr("name \"dynapipe\""));
  EXPECT_EQ(error_of("schedule=interleaved", lengths), "");
}

// Little memory: what is in flight is capped, and the cap holds.
TEST(PackedSearch, CapsWhatAPipelineHolds) {
  const std::vector<std::int64_t> lengths = short_and_long();
  plan::Plan base = base_of(lengths);
  const std::string fixed =
      "schedule=dynapipe,pp=4,tp=2,zero=0,recompute=none,sequence_parallel=false";
  const Outcome roomy = search_packed(base, options_of(fixed, 1), lengths);
  ASSERT_TRUE(roomy.best.has_value());
  ByteCount most;
  for (const plan::StageMemory& stage : roomy.best->simulation.memory) {
    most = std::max(most, stage.total());
  }
  const ByteCount room(most.value() * 15 / 16);
  base.memory_reserve = base.cluster.gpu.memory - room;
  const Outcome tight = search_packed(base, options_of(fixed, 1), lengths);
  ASSERT_TRUE(tight.best.has_value());
  for (const plan::StageMemory& stage : tight.best->simulation.memory) {
    EXPECT_LE(stage.total(), room);
  }
  EXPECT_GE(tight.best->simulation.iteration_time, roomy.best->simulation.iteration_time);
}

TEST(PackedSearch, ArcsAreSearchedWhenNamed) {
  plan::Plan base = plan::small_plan();
  base.batch = 16;
  Options options = options_of("schedule=layerpipe,pp=4,tp=4,micro_batch=1", 1);
  options.constraints.allow("asynchronous");
  const Outcome outcome = search(base, options);
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->plan.schedule, "layerpipe");
  EXPECT_EQ(outcome.best->plan.stage_blocks, (std::vector<int>{3, 3, 3, 1}));
  EXPECT_EQ(outcome.best->simulation.staleness, 6);  // 3 of an even cut, which takes 40 % longer
  EXPECT_EQ(outcome.gap_fraction, 0);
}

// Of several chunks flexpipe also chooses where they lie.
TEST(PackedSearch, FlexPipeRunsSeveralChunks) {
  plan::Plan base = plan::small_plan();
  base.batch = 16;
  const Outcome outcome =
      search(base, options_of("schedule=flexpipe,pp=4,tp=4,chunks=2,micro_batch=1", 1));
  ASSERT_TRUE(outcome.best.has_value());
  const Outcome waves =  // within as many activations
      search(base, options_of("schedule=hanayo,pp=4,tp=4,chunks=2,micro_batch=1", 1));
  EXPECT_LE(outcome.best->simulation.iteration_time.value(),
            waves.best->simulation.iteration_time.value() * 1.02);
}

}  // namespace
}  // namespace orrery::search
