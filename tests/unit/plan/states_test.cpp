// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer states of every device against sums written down by hand,
// and the volumes of ZeRO (arXiv 1910.02054) and HSDP (arXiv 2304.11277).
#include "plan/block/states.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr std::int64_t kHidden = 1024;

std::int64_t divide_up(std::int64_t value, std::int64_t parts) {
  return (value + parts - 1) / parts;
}

// Elements on one device of the layers and ends of a GPT (small_spec) under tensor parallelism.
struct GptShares {
  std::int64_t tp;
  std::int64_t vocab;
  std::int64_t layer() const {
    const std::int64_t split = 12 * kHidden * kHidden + 3 * kHidden + 4 * kHidden;
    const std::int64_t whole = 2 * kHidden + 4 * kHidden;  // biases after the sums, norms
    return split / tp + whole;
  }
  std::int64_t table() const { return divide_up(vocab, tp) * kHidden; }
  std::int64_t positions() const { return 2048 * kHidden; }
  std::int64_t final_norm() const { return 2 * kHidden; }
};

using Degrees = std::tuple<int, int, int>;  // tp, pp, ZeRO stage

class StatesByHand : public testing::TestWithParam<Degrees> {};

TEST_P(StatesByHand, MemoryOfEveryStage) {
  const auto [tp, pp, zero] = GetParam();
  for (const std::int64_t vocab : {51200, 50257}) {  // one divides by 8
    models::NetworkSpec spec = small_spec();
    spec.vocab = vocab;
    Plan plan = small_plan(spec);
    plan.pp = pp;
    plan.dp = 16 / tp / pp;
    plan.stage_blocks = even_stages(plan.network, pp);
    plan.blocks.front().layout.tp = tp;
    plan.blocks.front().layout.zero_stage = zero;
    check_plan(plan, "test");
    const GptShares share{tp, vocab};
    const std::vector<StageMemory> memory = Simulator(plan).memory(plan);
    for (int stage = 0; stage < pp; ++stage) {
      // The table of the head is the embedding's where both stand on one device.
      std::vector<std::int64_t> blocks(static_cast<std::size_t>(8 / pp), share.layer());
      if (stage == 0) {
        blocks.push_back(share.positions());
        blocks.push_back(share.table());
      }
      if (stage == pp - 1) {
        blocks.push_back(share.final_norm());
        blocks.push_back(pp > 1 ? share.table() : 0);
      }
      const auto held = [&](int from_stage) {
        std::int64_t elements = 0;
        for (const std::int64_t block : blocks) {
          elements += zero >= from_stage ? block / plan.dp : block;  // all of them divide
        }
        return elements;
      };
      const StageMemory& bytes = memory[static_cast<std::size_t>(stage)];
      EXPECT_EQ(bytes.parameters.value(), 2 * held(3)) << stage;
      EXPECT_EQ(bytes.gradients.value(), 4 * held(2)) << stage;
      EXPECT_EQ(bytes.optimizer.value(), 12 * held(1)) << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees, StatesByHand,
                         testing::Combine(testing::Values(1, 2, 4, 8), testing::Values(1, 2),
                                          testing::Values(0, 1, 2, 3)));

// Every rank together holds each expert once per data-parallel copy.
TEST(States, ExpertsAreSpreadOverTheirAxisAndShardedOverTheRest) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 2048};
  const models::Network network = models::build_network(spec, "test");
  const models::Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  const std::int64_t expert = models::num_parameters(block) / 8;  // mostly
  for (const int ep : {1, 2, 4, 8}) {
    BlockPlan layout;
    layout.ep = ep;
    layout.zero_stage = 1;
    const Mesh mesh = mesh_of(layout, 8);
    BlockCost cost;
    cost.states = state_groups(block, rules_of(layout, true), mesh);
    std::int64_t all = 0;
    for (const StateGroup& group : cost.states) {
      all += group.elements * (group.reduced_over(Axis::Expert) ? 1 : ep);
    }
    EXPECT_EQ(all, models::num_parameters(block)) << ep;
    const StateBytes bytes = state_bytes(cost, layout, mesh, {}, DType::Bf16, false);
    // 8 ranks update everything once between them, whatever the expert degree.
    EXPECT_NEAR(static_cast<double>(bytes.optimizer.value()) / 12,
                static_cast<double>(models::num_parameters(block)) / 8, 8.0)
        << ep;
    EXPECT_LT(bytes.parameters.value() / 2, models::num_parameters(block) / ep + expert) << ep;
  }
}

// A bias behind a sum is added where the sum has gone: on ranks that all have it whole (an
// all-reduce) each has the whole gradient; on those that have tokens of their own (a
// reduce-scatter) that of its tokens, which is summed like the gradients of norms.
TEST(States, BiasesBehindScatteredSumsAreSummed) {
  const models::Network network = models::build_network(small_spec(), "test");
  const models::Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  const auto summed = [&](const BlockPlan& layout, const std::vector<Axis>& axes) {
    std::int64_t elements = 0;
    for (const StateGroup& group :
         state_groups(block, rules_of(layout, true), mesh_of(layout, 2))) {
      const bool over_all = std::all_of(axes.begin(), axes.end(),
                                        [&](Axis axis) { return group.reduced_over(axis); });
      elements += over_all ? group.elements : 0;
    }
    return elements;
  };
  BlockPlan layout;
  layout.tp = 4;
  EXPECT_EQ(summed(layout, {Axis::Tensor}), 0);
  layout.sequence_parallel = true;
  EXPECT_EQ(summed(layout, {Axis::Tensor}), (4 + 2) * kHidden);
  layout.sequence_parallel = false;
  layout.tp = 8;
  layout.tensor_parallel = TensorMesh::ThreeD;
  // In a cube those of rows that meet the columns' sums, with the norms: cut along the depth; and
  // of queries, keys, values and the first product of the network, cut along the columns.
  EXPECT_EQ(summed(layout, {Axis::Tensor, Axis::TensorRow}), (4 + 2) * kHidden / 2);
  EXPECT_EQ(summed(layout, {Axis::TensorRow, Axis::TensorDepth}), (3 + 4) * kHidden / 2);
}

// Ranks that have the same key and value heads sum the gradients of their own queries.
TEST(States, RepeatedHeadsAreSummedOverTheRanksThatHoldThem) {
  models::NetworkSpec spec = small_spec();
  spec.attention_bias = false;
  for (const int kv_heads : {1, 2, 4, 8}) {
    spec.kv_heads = kv_heads;
    const models::Network network = models::build_network(spec, "test");
    const models::Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
    BlockPlan layout;
    layout.tp = 8;
    layout.zero_stage = 1;
    const Mesh mesh = mesh_of(layout, 2);
    BlockCost cost;
    cost.states = state_groups(block, rules_of(layout, true), mesh);
    double bytes = 0;
    int collectives = 0;
    for (const StateCollective& one :
         state_collectives(cost, layout, mesh, {}, DType::Bf16, false, 8)) {
      if (one.axes == std::vector<Axis>{Axis::Tensor}) {
        ++collectives;
        bytes += one.bytes;
        EXPECT_EQ(one.kind, sim::CommKind::AllReduce);
        EXPECT_EQ(one.use, StateCollective::Use::Reduce);
        EXPECT_EQ(one.group(mesh, 8).ranks, 8 / kv_heads);
        EXPECT_EQ(one.group(mesh, 8).groups_per_node, kv_heads);
      }
    }
    EXPECT_EQ(collectives, kv_heads == 8 ? 0 : 1) << kv_heads;
    EXPECT_EQ(bytes, kv_heads == 8 ? 0.0 : 2.0 * 1024 * 64 * 4) << kv_heads;  // keys and values
  }
}

// Where several axes cut heads, the outermost is cut first: neighbours have the same.
TEST(States, RepeatedHeadsAreOnNeighbours) {
  const models::Tensor weight{.name = "w_k",
                              .kind = models::TensorKind::Weight,
                              .dims = {{Var::Hidden, 64}, {Var::KvHead, 2}, {Var::HeadDim, 8}}};
  Layout stored;
  stored.set(Axis::Tensor, Placement::sharded(Var::Head));
  stored.set(Axis::Context, Placement::sharded(Var::Head));
  Mesh mesh;
  mesh.size[static_cast<std::size_t>(Axis::Tensor)] = 2;
  mesh.size[static_cast<std::size_t>(Axis::Context)] = 4;
  const Copies copies = copies_of_heads(weight, stored, mesh);
  EXPECT_EQ(copies[static_cast<std::size_t>(Axis::Tensor)], 2);
  EXPECT_EQ(copies[static_cast<std::size_t>(Axis::Context)], 2);
  mesh.shares = TensorShares({1, 1});
  for (const int ranks : copies_of_heads(weight, stored, mesh)) {
    EXPECT_EQ(ranks, 1);
  }
}

// Collectives that cost their bytes alone: time is volume.
Plan plan_of_volumes() {
  models::NetworkSpec spec = small_spec();
  spec.hidden = 8192;
  spec.head_dim = 512;
  spec.ffn_hidden = 32768;
  Plan plan = small_plan(spec, "dgx-a100:1");
  for (costmodel::CollectiveParameters* fit :
       {&plan.profile.intra_node, &plan.profile.inter_node}) {
    fit->base = Seconds(0);
    fit->low_latency_factor = fit->simple_factor = 0;
    fit->half_size = Bytes(0);
  }
  plan.profile.collectives = {};
  plan.execution.fp32_gradients = false;
  plan.blocks.front().layout = {};
  plan.pp = 1;
  plan.dp = 8;
  plan.stage_blocks = even_stages(plan.network, 1);
  return plan;
}

class Volumes : public testing::Test {
 protected:
  StateTraffic traffic(int zero_stage, int shard_degree = 0) {
    BlockPlan layout;
    layout.zero_stage = zero_stage;
    layout.shard_degree = shard_degree;
    return state_traffic(costs_.of(plan_.network.chain[1], layout, 1), layout,
                         mesh_of(layout, plan_.dp), costs_, false);
  }
  StateBytes bytes(int zero_stage, int shard_degree = 0) {
    BlockPlan layout;
    layout.zero_stage = zero_stage;
    layout.shard_degree = shard_degree;
    return state_bytes(costs_.of(plan_.network.chain[1], layout, 1), layout,
                       mesh_of(layout, plan_.dp), plan_.execution, plan_.precision, false);
  }

  Plan plan_ = plan_of_volumes();
  BlockCosts costs_{plan_};
};

TEST_F(Volumes, ShardedParametersMoveHalfAsMuchAgain) {
  const double ddp = traffic(0).reduce.value();
  ASSERT_GT(ddp, 0);
  const StateTraffic sharded = traffic(3);
  EXPECT_NEAR((sharded.reduce + sharded.gather * 2.0).value() / ddp, 1.5, 1e-9);
  for (const int zero_stage : {1, 2}) {
    const StateTraffic zero = traffic(zero_stage);
    EXPECT_NEAR((zero.reduce + zero.gather).value() / ddp, 1.0, 1e-9);
  }
}

// DeepSpeed's stage 1, InternEvo: states are sharded, gradients are not scattered.
TEST_F(Volumes, SumsOfWholeGradientsMoveAsMuchAsWithoutShards) {
  Plan plan = plan_;
  plan.execution.allreduce_gradients = true;
  BlockCosts costs(plan);
  for (const int shard_degree : {0, 4}) {
    BlockPlan layout;
    layout.zero_stage = 1;
    layout.shard_degree = shard_degree;
    const BlockCost& block = costs.of(plan.network.chain[1], layout, 1);
    const Mesh mesh = mesh_of(layout, plan.dp);
    const StateTraffic whole = state_traffic(block, layout, mesh, costs, false);
    EXPECT_EQ(whole.reduce, traffic(0).reduce);
    EXPECT_EQ(whole.gather, traffic(1, shard_degree).gather);
    layout.zero_stage = 2;  // gradients are sharded: they have to be scattered
    EXPECT_EQ(state_traffic(block, layout, mesh_of(layout, plan.dp), costs, false).reduce,
              traffic(2, shard_degree).reduce);
  }
}

// FSDP2 reads and writes gathered parameters once a pass and gradients once; FSDP1 joins gradients
// and divides them. All in bf16: 2 bytes an element and side.
TEST_F(Volumes, FsdpCopiesWholeParametersAndGradients) {
  Plan plan = plan_;
  BlockPlan layout;
  layout.zero_stage = 3;
  const Mesh mesh = mesh_of(layout, plan.dp);
  const auto copies = [&](int zero_stage) {
    BlockCosts costs(plan);
    layout.zero_stage = zero_stage;
    const BlockCost& block = costs.of(plan.network.chain[1], layout, 1);
    return state_traffic(block, layout, mesh, costs, false);
  };
  EXPECT_EQ(copies(3).copy_forward, Seconds(0));
  EXPECT_EQ(copies(3).copy_backward, Seconds(0));
  plan.execution.copies_gathered = true;
  const StateTraffic second = copies(3);
  EXPECT_GT(second.copy_forward.value(), 0.0);
  EXPECT_NEAR((second.copy_backward / second.copy_forward), 2.0, 1e-9);
  EXPECT_EQ(copies(1).copy_forward, Seconds(0));
  plan.execution.reshard_after_forward = false;  // gathered once
  EXPECT_EQ(copies(3).copy_backward, second.copy_forward);
  plan.execution.copies_gathered = false;
  plan.execution.flattens_gradients = true;
  EXPECT_EQ(copies(3).copy_forward, Seconds(0));
  EXPECT_EQ(copies(3).copy_backward, second.copy_forward);
  EXPECT_NEAR((copies(3).reduce - second.reduce).value(), second.copy_forward.value(), 1e-12);
}

TEST_F(Volumes, HybridShardingHasBothLimits) {
  for (const int zero_stage : {1, 2, 3}) {
    const StateTraffic all = traffic(zero_stage, 8);
    EXPECT_EQ(all.reduce, traffic(zero_stage).reduce);
    EXPECT_EQ(all.gather, traffic(zero_stage).gather);
    const StateTraffic none = traffic(zero_stage, 1);
    EXPECT_EQ(none.reduce, traffic(0).reduce);
    EXPECT_EQ(none.gather, Seconds(0));
    EXPECT_EQ(bytes(zero_stage, 8).parameters, bytes(zero_stage).parameters);
    EXPECT_EQ(bytes(zero_stage, 1).parameters, bytes(0).parameters);
    EXPECT_EQ(bytes(zero_stage, 1).gradients, bytes(0).gradients);
    EXPECT_EQ(bytes(zero_stage, 1).optimizer, bytes(0).optimizer);
    EXPECT_EQ(bytes(zero_stage, 1).gathered, ByteCount(0));  // whole already
  }
}

// F = 4 of 8 ranks: gathers and scatters among 4, sums of a quarter between 2.
TEST_F(Volumes, HybridShardingInTheMiddle) {
  const double unit = traffic(0).reduce.value() / (2.0 * 7 / 8);  // of one buffer
  const StateTraffic hybrid = traffic(3, 4);
  EXPECT_NEAR(hybrid.gather.value() / unit, 3.0 / 4, 1e-9);
  EXPECT_NEAR(hybrid.reduce.value() / unit, 3.0 / 4 + 2.0 * 1 / 2 / 4, 1e-9);
  EXPECT_EQ(bytes(3, 4).parameters.value(), bytes(0).parameters.value() / 4);
}

TEST_F(Volumes, WholePlansAgreeInTheLimits) {
  const auto run = [&](int zero_stage, int shard_degree) {
    Plan plan = plan_;
    plan.blocks.front().layout.zero_stage = zero_stage;
    plan.blocks.front().layout.shard_degree = shard_degree;
    return simulate(plan);
  };
  for (const int zero_stage : {1, 2, 3}) {
    EXPECT_EQ(run(zero_stage, 8).iteration_time, run(zero_stage, 0).iteration_time);
    EXPECT_EQ(run(zero_stage, 8).memory.front().total(), run(zero_stage, 0).memory.front().total());
  }
  EXPECT_EQ(run(1, 1).iteration_time, run(0, 0).iteration_time);
  EXPECT_EQ(run(1, 1).memory.front().total(), run(0, 0).memory.front().total());
}

}  // namespace
}  // namespace orrery::plan
