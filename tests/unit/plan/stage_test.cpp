// SPDX-License-Identifier: Apache-2.0
// Data-parallel traffic beside the blocks of a stage, against recurrences written down by hand
// (DDP, arXiv 2006.15704). Kernels and collectives do not slow each other.
#include "plan/stage/stage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/stage/split_backward.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

class StageTraffic : public testing::Test {
 protected:
  StageTraffic() : plan_(small_plan(small_spec(), "dgx-a100:2")) {
    plan_.profile.collective_sms = 0;
    plan_.pp = 1;
    plan_.dp = 16;
    plan_.blocks.front().layout = {};
    plan_.stage_blocks = even_stages(plan_.network, 1);
  }

  struct Block {
    std::int64_t forward;
    std::int64_t backward;
    std::int64_t reduce;
    std::int64_t gather;
  };
  // In chain order, picoseconds.
  std::vector<Block> blocks() {
    BlockCosts costs(plan_);
    std::vector<Block> result;
    const StageContent content = stage_contents(plan_).front();
    for (const StagePiece& piece : content) {
      const BlockCost& cost = costs.of(piece.block, piece.layout, plan_.micro_batch);
      const StateTraffic traffic =
          state_traffic(cost, piece.layout, mesh_of(piece.layout, plan_.dp), costs, true);
      result.insert(result.end(), static_cast<std::size_t>(piece.count),
                    {cost.forward.time.ps, cost.backward.time.ps, to_sim_time(traffic.reduce).ps,
                     to_sim_time(traffic.gather).ps});
    }
    return result;
  }
  StageCost stage(int zero_stage) {
    plan_.blocks.front().layout.zero_stage = zero_stage;
    BlockCosts costs(plan_);
    return simulate_stage(stage_contents(plan_).front(), plan_, costs);
  }
  struct CutStage {
    StageCost cost;
    SplitTimes alone;
    SplitTimes times;
    SimTime reduced;  // all gradients, from the start of the last W on
  };
  // Of stages whose last backward is cut; reductions follow W of their blocks in order.
  CutStage cut_stage(int zero_stage) {
    CutStage cut{stage(zero_stage), {}, {}, {}};
    BlockCosts costs(plan_);
    SplitBackwards splits;
    const StageContent content = stage_contents(plan_).front();
    cut.alone = splits.times(content, plan_, costs, cut.cost);
    cut.times = splits.times_with_traffic(content, plan_, costs, true, cut.cost);
    SimTime ready;
    std::vector<SimTime> weight_grads;
    for (const StagePiece& piece : content) {
      const StageCost one = add_up_stage({{piece.block, piece.layout, 1}}, plan_, costs);
      weight_grads.insert(
          weight_grads.end(), static_cast<std::size_t>(piece.count),
          splits.times({{piece.block, piece.layout, 1}}, plan_, costs, one).weight_grad);
    }
    const std::vector<Block> chain = blocks();
    for (std::size_t block = chain.size(); block-- > 0;) {
      ready += weight_grads[block];
      cut.reduced = std::max(cut.reduced, ready) + SimTime{chain[block].reduce};
    }
    return cut;
  }
  static constexpr double kPicoseconds = 40;  // rounding of about one per part

  Plan plan_;
};

TEST_F(StageTraffic, ReductionsFollowTheirBlocksInOrder) {
  const StageCost cost = stage(0);
  std::int64_t ready = 0;
  std::int64_t finish = 0;
  const std::vector<Block> chain = blocks();
  for (auto block = chain.rbegin(); block != chain.rend(); ++block) {
    ready += block->backward;
    finish = std::max(finish, ready) + block->reduce;
  }
  EXPECT_NEAR(static_cast<double>((cost.last_backward + cost.reduce_tail).ps),
              static_cast<double>(finish), kPicoseconds);
  EXPECT_EQ(cost.last_backward, cost.backward);
  EXPECT_LT(cost.reduce_tail, cost.reduce_total);  // something is hidden
}

TEST_F(StageTraffic, WithoutOverlapReductionsComeAfterwards) {
  plan_.execution.overlap_grad_reduce = false;
  for (const int zero_stage : {0, 1}) {
    const StageCost cost = stage(zero_stage);
    EXPECT_EQ(cost.reduce_tail, cost.reduce_total);
    EXPECT_EQ(cost.last_backward, cost.backward);
  }
  const StageCost every = stage(2);  // of each micro-batch
  std::int64_t serial = every.backward_cost.time.ps;
  for (const Block& block : blocks()) {
    serial += block.reduce;
  }
  EXPECT_NEAR(static_cast<double>(every.backward.ps), static_cast<double>(serial), kPicoseconds);
  EXPECT_EQ(every.reduce_tail.ps, 0);
}

TEST_F(StageTraffic, OneBlockHidesNothing) {
  plan_.network.chain = {plan_.network.chain[1]};
  plan_.stage_blocks = {1};
  plan_.blocks.front().count = 1;
  const StageCost cost = stage(0);
  EXPECT_GT(cost.reduce_total.ps, 0);
  EXPECT_EQ(cost.reduce_tail, cost.reduce_total);
}

// Parameters are gathered for B, gradients are there after W.
TEST_F(StageTraffic, ReductionsFollowWeightGradients) {
  const CutStage once = cut_stage(1);
  EXPECT_EQ(once.times.input_grad, once.alone.input_grad);
  EXPECT_EQ(once.times.weight_grad, once.alone.weight_grad);
  EXPECT_NEAR(static_cast<double>((once.times.weight_grad + once.cost.reduce_tail).ps),
              static_cast<double>(once.reduced.ps), kPicoseconds);
  const CutStage every = cut_stage(2);
  EXPECT_EQ(every.times.input_grad, every.alone.input_grad);
  EXPECT_NEAR(static_cast<double>(every.times.weight_grad.ps),
              static_cast<double>(every.reduced.ps), kPicoseconds);
  EXPECT_EQ(every.cost.reduce_tail.ps, 0);
  const CutStage sharded = cut_stage(3);
  EXPECT_GT(sharded.times.input_grad, sharded.alone.input_grad);
  EXPECT_EQ(sharded.times.weight_grad, every.times.weight_grad);
}

// One block that reduces in every pass does not let the others reduce sooner.
TEST_F(StageTraffic, BlocksOfAllStagesReduceInOneQueue) {
  const SimTime reduced = cut_stage(1).reduced;
  plan_.blocks.push_back(plan_.blocks.front());
  plan_.blocks.front().count = 1;
  plan_.blocks.back().count -= 1;
  plan_.blocks.front().layout.zero_stage = 2;
  plan_.blocks.back().layout.zero_stage = 1;
  BlockCosts costs(plan_);
  SplitBackwards splits;
  const StageContent content = stage_contents(plan_).front();
  StageCost cost = simulate_stage(content, plan_, costs);
  const SplitTimes times = splits.times_with_traffic(content, plan_, costs, true, cost);
  EXPECT_NEAR(static_cast<double>(
                  (times.weight_grad + cost.last_backward - cost.backward + cost.reduce_tail).ps),
              static_cast<double>(reduced.ps), kPicoseconds);
}

// A bucket that all gradients fit into leaves when the last of them is there.
TEST_F(StageTraffic, OneBucketHidesNothing) {
  plan_.execution.bucket_bytes = 1LL << 40;
  const StageCost cost = stage(0);
  EXPECT_GT(cost.reduce_total.ps, 0);
  EXPECT_EQ(cost.reduce_tail, cost.reduce_total);
}

TEST_F(StageTraffic, ShardedForwardGathersTwoBlocksAhead) {
  const StageCost cost = stage(3);
  std::vector<std::int64_t> computed;
  std::int64_t stream = 0;
  std::int64_t compute = 0;
  for (const Block& block : blocks()) {
    const std::size_t index = computed.size();
    stream = std::max(stream, index >= 2 ? computed[index - 2] : 0) + block.gather;
    compute = std::max(compute, stream) + block.forward;
    computed.push_back(compute);
  }
  EXPECT_NEAR(static_cast<double>(cost.forward.ps), static_cast<double>(compute), kPicoseconds);
}

// Backward: the next gather is issued before this block's reduction on the same stream.
TEST_F(StageTraffic, ShardedBackwardGathersBeforeItReduces) {
  const StageCost cost = stage(3);
  std::vector<Block> chain = blocks();
  std::reverse(chain.begin(), chain.end());
  std::vector<std::int64_t> computed;
  std::int64_t stream = chain.front().gather;
  std::int64_t gathered = stream;
  std::int64_t compute = 0;
  for (std::size_t index = 0; index < chain.size(); ++index) {
    compute = std::max(compute, gathered) + chain[index].backward;
    computed.push_back(compute);
    if (index + 1 < chain.size()) {
      stream = std::max(stream, index >= 1 ? computed[index - 1] : 0) + chain[index + 1].gather;
      gathered = stream;
    }
    stream = std::max(stream, compute) + chain[index].reduce;
  }
  EXPECT_NEAR(static_cast<double>(cost.backward.ps), static_cast<double>(std::max(stream, compute)),
              kPicoseconds);
}

TEST_F(StageTraffic, WithoutPrefetchEveryGatherIsExposed) {
  plan_.execution.overlap_param_gather = false;
  const StageCost cost = stage(3);
  std::int64_t serial = 0;
  for (const Block& block : blocks()) {
    serial += block.gather + block.forward;
  }
  EXPECT_NEAR(static_cast<double>(cost.forward.ps), static_cast<double>(serial), kPicoseconds);
}

TEST_F(StageTraffic, NothingToDoOnOneDataRank) {
  plan_.cluster.num_nodes = 1;
  plan_.cluster.node.gpus = 1;
  plan_.dp = 1;
  for (const int zero_stage : {0, 1, 2, 3}) {
    const StageCost cost = stage(zero_stage);
    EXPECT_EQ(cost.reduce_total.ps, 0);
    EXPECT_EQ(cost.gather_total.ps, 0);
    EXPECT_EQ(cost.forward, cost.forward_cost.time);
    EXPECT_EQ(cost.backward, cost.backward_cost.time);
  }
}

TEST_F(StageTraffic, AddingUpNeverExceedsSimulating) {
  for (const int zero_stage : {0, 1, 2, 3}) {
    plan_.blocks.front().layout.zero_stage = zero_stage;
    BlockCosts costs(plan_);
    const StageContent content = stage_contents(plan_).front();
    const StageCost added = add_up_stage(content, plan_, costs);
    const StageCost simulated = simulate_stage(content, plan_, costs);
    EXPECT_LE(added.forward, simulated.forward);
    EXPECT_LE(added.backward, simulated.backward);
    EXPECT_EQ(added.saved, simulated.saved);
    EXPECT_EQ(added.states.parameters, simulated.states.parameters);
    EXPECT_EQ(added.buffers.gathered, simulated.buffers.gathered);
  }
}

}  // namespace
}  // namespace orrery::plan
