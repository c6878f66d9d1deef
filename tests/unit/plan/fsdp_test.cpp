// SPDX-License-Identifier: Apache-2.0
// FSDP's prefetch rules, HSDP's limits and DDP's small first bucket against recurrences written
// down by hand (PyTorch FSDP, arXiv 2304.11277; DDP, arXiv 2006.15704). Kernels and collectives do
// not slow each other here.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/stage/stage.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

struct Times {
  std::int64_t forward;
  std::int64_t backward;
  std::int64_t gather;
  std::int64_t reduce;
  std::int64_t bytes;
};

class Fsdp : public testing::Test {
 protected:
  Fsdp() : plan_(small_plan(small_spec(), "dgx-a100:2")) {
    plan_.profile.collective_sms = 0;
    plan_.pp = 1;
    plan_.dp = 16;
    plan_.blocks.front().layout = {};
    plan_.blocks.front().layout.zero_stage = 3;
    plan_.stage_blocks = even_stages(plan_.network, 1);
  }
  StageCost stage() {
    BlockCosts costs(plan_);
    return simulate_stage(stage_contents(plan_).front(), plan_, costs);
  }
  std::vector<Times> blocks() {  // last block first
    BlockCosts costs(plan_);
    std::vector<Times> chain;
    const StageContent content = stage_contents(plan_).front();
    for (const StagePiece& piece : content) {
      const BlockCost& cost = costs.of(piece.block, piece.layout, plan_.micro_batch);
      const StateTraffic traffic =
          state_traffic(cost, piece.layout, mesh_of(piece.layout, plan_.dp), costs, true);
      chain.insert(chain.end(), static_cast<std::size_t>(piece.count),
                   {cost.forward.time.ps, cost.backward.time.ps, to_sim_time(traffic.gather).ps,
                    to_sim_time(traffic.reduce).ps, traffic.gradient.value()});
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }
  StateTraffic traffic(int zero_stage, int shard_degree) {
    plan_.blocks.front().layout.zero_stage = zero_stage;
    plan_.blocks.front().layout.shard_degree = shard_degree;
    BlockCosts costs(plan_);
    const BlockPlan& layout = plan_.blocks.front().layout;
    return state_traffic(costs.of(plan_.network.chain[2], layout, plan_.micro_batch), layout,
                         mesh_of(layout, plan_.dp), costs, false);
  }
  static double number(SimTime time) { return static_cast<double>(time.ps); }
  static constexpr double kPicoseconds = 60;

  Plan plan_;
};

// Each block waits for its gather; the gather is issued after the gradients of the block before.
TEST_F(Fsdp, PostPrefetchExposesGathersButNotReductions) {
  plan_.execution.backward_prefetch = BackwardPrefetch::Post;
  const std::vector<Times> chain = blocks();
  std::int64_t stream = chain.front().gather;
  std::int64_t gathered = stream;
  std::int64_t compute = 0;
  for (std::size_t index = 0; index < chain.size(); ++index) {
    compute = std::max(compute, gathered) + chain[index].backward;
    stream = std::max(stream, compute);
    if (index + 1 < chain.size()) {
      stream += chain[index + 1].gather;
      gathered = stream;
    }
    stream += chain[index].reduce;
  }
  EXPECT_NEAR(number(stage().backward), static_cast<double>(stream), kPicoseconds);
}

TEST_F(Fsdp, WithoutBackwardPrefetchGathersWaitForReductions) {
  plan_.execution.backward_prefetch = BackwardPrefetch::None;
  std::int64_t serial = 0;
  for (const Times& block : blocks()) {
    serial += block.gather + block.backward + block.reduce;
  }
  EXPECT_NEAR(number(stage().backward), static_cast<double>(serial), kPicoseconds);
}

TEST_F(Fsdp, EarlierPrefetchIsNeverSlower) {
  const SimTime pre = stage().backward;
  plan_.execution.backward_prefetch = BackwardPrefetch::Post;
  const SimTime post = stage().backward;
  plan_.execution.backward_prefetch = BackwardPrefetch::None;
  EXPECT_LE(pre, post);
  EXPECT_LT(post, stage().backward);
}

// limit_all_gathers: at most so many gathered blocks are unfreed.
TEST_F(Fsdp, TheRateLimiterBoundsGathersAndTheirMemory) {
  const std::vector<Times> chain = blocks();
  for (const std::size_t limit : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{0}}) {
    plan_.execution.gathers_in_flight = static_cast<int>(limit);
    const std::size_t window = limit == 0 ? chain.size() : limit;
    std::vector<std::int64_t> computed;
    std::int64_t stream = 0;
    std::int64_t compute = 0;
    for (auto block = chain.rbegin(); block != chain.rend(); ++block) {
      const std::size_t index = computed.size();
      stream = std::max(stream, index >= window ? computed[index - window] : 0) + block->gather;
      compute = std::max(compute, stream) + block->forward;
      computed.push_back(compute);
    }
    EXPECT_NEAR(number(stage().forward), static_cast<double>(compute), kPicoseconds) << limit;
  }
  plan_.execution.gathers_in_flight = 1;
  const ByteCount one = stage().buffers.gathered;
  plan_.execution.gathers_in_flight = 2;
  const ByteCount two = stage().buffers.gathered;
  plan_.execution.gathers_in_flight = 3;
  const ByteCount three = stage().buffers.gathered;  // never more than all of them
  plan_.execution.gathers_in_flight = 0;
  const ByteCount all = stage().buffers.gathered;
  EXPECT_LT(one, two);
  EXPECT_EQ(three, std::min(two + (two - one), all));
  plan_.execution.gathers_in_flight = 2;
  plan_.execution.reshard_after_forward = false;
  EXPECT_EQ(stage().buffers.gathered, all);
}

TEST_F(Fsdp, HsdpOverAllRanksIsFsdpAndOverOneIsDdp) {
  const StateTraffic fsdp = traffic(3, 0);
  const StateTraffic whole = traffic(3, 16);
  EXPECT_EQ(whole.gather.value(), fsdp.gather.value());
  EXPECT_EQ(whole.reduce.value(), fsdp.reduce.value());
  const StateTraffic ddp = traffic(0, 0);
  const StateTraffic alone = traffic(3, 1);
  EXPECT_EQ(alone.gather.value(), 0);
  EXPECT_EQ(alone.reduce.value(), ddp.reduce.value());
  // Inside a node gathers are faster than over both.
  EXPECT_LT(traffic(3, 8).gather.value(), fsdp.gather.value());
}

// The first reduction of a backward leaves with less.
TEST_F(Fsdp, TheFirstBucketIsSmall) {
  plan_.blocks.front().layout.zero_stage = 0;
  plan_.execution.bucket_bytes = 1LL << 40;
  plan_.execution.first_bucket_bytes = 1;
  const std::vector<Times> chain = blocks();
  const std::int64_t first = chain.front().backward + chain.front().reduce;
  std::int64_t compute = 0;
  std::int64_t rest = 0;
  for (std::size_t index = 0; index < chain.size(); ++index) {
    compute += chain[index].backward;
    rest += index > 0 ? chain[index].reduce : 0;
  }
  const StageCost cost = stage();
  EXPECT_NEAR(number(cost.last_backward + cost.reduce_tail),
              static_cast<double>(std::max(first, compute) + rest), kPicoseconds);
}

// Zhao et al. 2023 find 18 % for GPT-3 175B on 128 GPUs.
TEST_F(Fsdp, BackwardPrefetchMattersAcrossNodes) {
  const double pre = number(stage().backward);
  plan_.execution.backward_prefetch = BackwardPrefetch::None;
  EXPECT_GT(number(stage().backward) / pre, 1.05);
}

}  // namespace
}  // namespace orrery::plan
