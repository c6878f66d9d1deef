// SPDX-License-Identifier: Apache-2.0
// Schedules that the per-block space does not have without being named: their plans are improved
// all the same, and what is not proven of them is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "search/per_block/search.hpp"
#include "search/problem.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

struct BesideCase {
  std::string network;
  std::string cluster;
  std::int64_t batch = 8;
  std::int64_t sequence = 2048;
  std::vector<std::string> settings;
  std::string fix;
};

PerBlockOutcome searched(const BesideCase& of, const std::string& schedule) {
  Problem problem;
  problem.network = of.network;
  problem.cluster = of.cluster;
  problem.batch = of.batch;
  problem.sequence = of.sequence;
  problem.settings = of.settings;
  Options options;
  options.jobs = 1;
  options.constraints.fix(of.fix);
  if (!schedule.empty()) {
    options.constraints.choose_schedule(schedule);
  }
  return search_per_block(base_plan(problem), options);
}

class BesideTheSpace : public testing::TestWithParam<BesideCase> {};

TEST_P(BesideTheSpace, IsNoWorseThanWithTheScheduleNamed) {
  const PerBlockOutcome free = searched(GetParam(), "");
  ASSERT_TRUE(free.outcome.best);
  const Found& best = *free.outcome.best;
  EXPECT_THAT(free.unproven, testing::Contains(best.plan.schedule));
  EXPECT_LT(best.simulation.iteration_time, free.homogeneous);
  EXPECT_EQ(verify(best), "");
  const PerBlockOutcome named = searched(GetParam(), best.plan.schedule);
  ASSERT_TRUE(named.outcome.best);
  EXPECT_TRUE(named.unproven.empty());
  EXPECT_LE(best.simulation.iteration_time, named.outcome.best->simulation.iteration_time);
}

INSTANTIATE_TEST_SUITE_P(
    ShortPipelines, BesideTheSpace,
    testing::Values(BesideCase{"gemma2-9b", "dgx-a100:1", 8, 2048, {"layers=14"}, "tp=1,pp=4"},
                    BesideCase{"gemma2-2b", "hgx-h100:2", 8, 8192, {"layers=6"}, "tp=2,pp=4"},
                    BesideCase{"gemma2-2b",
                               "hgx-a100-40-4:4",
                               8,
                               2048,
                               {"layers=4", "node.gpus=2", "gpu.memory=12 GiB",
                                "node.scale_out.nic_bandwidth=1 GB/s"},
                               "pp=4"},
                    BesideCase{"bert-large",
                               "gtx-1080ti-8:4",
                               2,
                               512,
                               {"layers=4", "node.gpus=2", "gpu.memory=12 GiB",
                                "node.scale_out.nic_bandwidth=0.2 GB/s"},
                               "pp=4"}));

// Slices have no bound even when they are named.
TEST(BesideTheSpaceTest, SlicedPlansAreImproved) {
  const BesideCase slow{
      "llama3-8b",
      "dgx-2:4",
      12,
      4096,
      {"layers=6", "node.gpus=2", "gpu.memory=24 GiB", "node.scale_out.nic_bandwidth=0.2 GB/s"},
      "recompute=full"};
  const PerBlockOutcome found = searched(slow, "terapipe");
  ASSERT_TRUE(found.outcome.best);
  EXPECT_GT(found.outcome.best->plan.slices, 1);
  EXPECT_LT(found.outcome.best->simulation.iteration_time, found.homogeneous);
  EXPECT_EQ(found.unproven, std::vector<std::string>{"terapipe"});
  EXPECT_EQ(verify(*found.outcome.best), "");
}

TEST(BesideTheSpaceTest, NothingIsLeftOutWhereOneScheduleHasItsBound) {
  Options options;
  options.jobs = 1;
  options.constraints = fixed("tp=1,cp=1,pp=2,micro_batch=1,zero=1,recompute=none");
  options.constraints.choose_schedule("1f1b");
  EXPECT_TRUE(search_per_block(base_plan(Shape()), options).unproven.empty());
}

// Where each block may have strategies of its own these pipelines come behind the others.
TEST(BesideTheSpaceTest, PipelinesOfTheSpaceComeFirst) {
  const Constraints constraints = fixed("tp=1,cp=1,pp=4,micro_batch=1,zero=1");
  const plan::Plan base = base_plan(Shape());
  const PerBlockSpace space(base, constraints);
  ASSERT_FALSE(space.meshes().empty());
  const auto& choices = space.homogeneous().schedules().choices();
  for (const StageMesh& mesh : space.meshes()) {
    const std::vector<Pipeline> proven = space.pipelines(mesh);
    const std::vector<Pipeline> all = space.all_pipelines(mesh);
    ASSERT_LT(proven.size(), all.size());
    for (std::size_t index = 0; index < all.size(); ++index) {
      const ScheduleChoice& choice = choices[static_cast<std::size_t>(all[index].schedule)];
      EXPECT_EQ(index >= proven.size(), choice.traits.uses_times || all[index].slices > 1)
          << choice.name;
      EXPECT_EQ(all[index].takes_program, all[index].slices == 1) << choice.name;
    }
  }
}

}  // namespace
}  // namespace orrery::search
