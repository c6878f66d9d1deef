// SPDX-License-Identifier: Apache-2.0
// Strategies that are attributes of conversions or one more axis: context parallelism in two
// dimensions and without balance, experts beside the dispatch and with fewer copies on the wire,
// quantised and hierarchical ZeRO (ZeRO++, arXiv 2306.10209).
#include <gtest/gtest.h>

#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

BlockPlan context(ContextParallel kind, int cp, int ulysses = 1) {
  BlockPlan layout;
  layout.cp = cp;
  layout.context = kind;
  layout.ulysses_degree = ulysses;
  return layout;
}

TEST(ContextMix, ExchangesHeadsInsideAndGathersKeysOutside) {
  // A ring hides what it can, so the volumes of its pieces are those of gathers.
  const BlockSteps steps =
      Layer(gpt(1024, 16), context(ContextParallel::Mix, 8, 2), 1, 2, 8192).steps();
  double exchanged = 0;
  for (const Step& step : steps.forward) {
    if (step.collective && step.comm == CommKind::AllToAll) {
      EXPECT_EQ(step.axis, Axis::ContextHeads);
      EXPECT_EQ(step.group.ranks, 2);
      exchanged += ring_elements(step);
    }
  }
  EXPECT_EQ(count(steps.forward, CommKind::AllToAll), 4);
  // (u-1)/u of an eighth of q, k, v and the context.
  EXPECT_DOUBLE_EQ(exchanged, 1.0 / 2 * 4 * 2.0 * 8192 / 8 * 1024);
  for (const Step& step : steps.forward) {
    EXPECT_FALSE(step.collective && step.comm == CommKind::AllGather && step.axis != Axis::Context);
  }
}

TEST(ContextMix, EndsAreRingAndUlysses) {
  const auto volume = [](const BlockPlan& layout) {
    return sent(Layer(gpt(1024, 16), layout, 1, 2, 4096).steps().forward);
  };
  EXPECT_DOUBLE_EQ(volume(context(ContextParallel::Mix, 4, 4)),
                   volume(context(ContextParallel::Ulysses, 4)));
  EXPECT_DOUBLE_EQ(volume(context(ContextParallel::Mix, 4, 1)),
                   volume(context(ContextParallel::Ring, 4)));
}

Seconds attention_time(const BlockPlan& layout) {
  const Layer layer(gpt(1024, 16), layout, 1, 1, 32768);  // steps have its names
  const BlockSteps steps = layer.steps();
  for (const Step& step : steps.forward) {
    if (!step.collective && step.name == "attention") {
      return step.time;
    }
  }
  return {};
}

// Rank c - 1 of an unbalanced ring sees c - 1/2 parts of the keys, a balanced one c / 2.
TEST(ZigZag, BalancesACausalRing) {
  for (const ContextParallel kind : {ContextParallel::Ring, ContextParallel::AllGather}) {
    BlockPlan layout = context(kind, 8);
    const double balanced = attention_time(layout).value();
    layout.zigzag = false;
    ASSERT_GT(balanced, 0);
    EXPECT_NEAR(attention_time(layout).value() / balanced, 7.5 / 4, 0.25);
  }
}

models::Network shared_experts() {
  models::NetworkSpec spec = mixture(64, 8).spec;
  spec.moe.shared_ffn_hidden = 4096;
  return models::build_network(spec, "test");
}

double pass_time(const std::vector<Step>& steps) {
  const topologies::Cluster cluster = topologies::load_cluster("dgx-a100:64");
  const costmodel::DeviceModel device(cluster.gpu, costmodel::load_profile("", cluster.gpu));
  return to_seconds(run_steps(steps, device, Seconds()).time).value();
}

TEST(SharedExperts, RunWhileRoutedTokensTravel) {
  BlockPlan layout;
  layout.ep = 16;
  Layer layer(shared_experts(), layout, 16, 4, 4096);
  const BlockSteps after = layer.steps();
  layer.execution().overlap_shared_experts = true;
  const BlockSteps beside = layer.steps();
  EXPECT_DOUBLE_EQ(sent(after.forward), sent(beside.forward));
  EXPECT_EQ(after.forward.size(), beside.forward.size());
  EXPECT_EQ(after.backward.size(), beside.backward.size());
  EXPECT_LT(pass_time(beside.forward), pass_time(after.forward));
  EXPECT_LT(pass_time(beside.backward), pass_time(after.backward));
}

double exchanged(const std::vector<Step>& steps) {
  double bytes = 0;
  for (const Step& step : steps) {
    bytes += step.comm == CommKind::AllToAll ? step.bytes.value() : 0.0;
  }
  return bytes;
}

Layer spread_experts(int ep) {
  BlockPlan layout;
  layout.ep = ep;
  return {mixture(64, 8), layout, 16, 4, 4096};
}

// The steps of a layer, which has their names, with tokens in 16 bits, and in 8 on their way to
// experts.
std::pair<BlockSteps, BlockSteps> plain_and_narrow(Layer& layer) {
  BlockSteps plain = layer.steps();
  layer.execution().quantised_dispatch = true;
  return {std::move(plain), layer.steps()};
}

// One byte and 1/32 of a scale instead of two: of the two exchanges of a pass, the one that goes to
// the experts.
TEST(QuantisedDispatch, SendsTokensAndGradientsToExpertsInEightBits) {
  Layer layer = spread_experts(16);
  const auto [plain, narrow] = plain_and_narrow(layer);
  const double share = (1.03125 / 2 + 1.0) / 2;
  EXPECT_NEAR(exchanged(narrow.forward) / exchanged(plain.forward), share, 1e-6);
  EXPECT_NEAR(exchanged(narrow.backward) / exchanged(plain.backward), share, 1e-6);
}

Seconds kernel_time(const std::vector<Step>& steps, std::string_view name) {
  Seconds time;
  for (const Step& step : steps) {
    time += !step.collective && step.name == name ? step.time : Seconds();
  }
  return time;
}

// Tokens are cast by the kernel that sends them, gradients by the one that takes results together.
TEST(QuantisedDispatch, CastsWhereTokensStart) {
  Layer layer = spread_experts(16);
  const auto [plain, narrow] = plain_and_narrow(layer);
  EXPECT_GT(kernel_time(narrow.forward, "permute"), kernel_time(plain.forward, "permute"));
  EXPECT_EQ(kernel_time(narrow.forward, "combine"), kernel_time(plain.forward, "combine"));
  EXPECT_GT(kernel_time(narrow.backward, "combine"), kernel_time(plain.backward, "combine"));
  EXPECT_EQ(kernel_time(narrow.backward, "permute"), kernel_time(plain.backward, "permute"));
}

// On one rank nothing travels, and nothing is cast.
TEST(QuantisedDispatch, DoesNothingWithoutExpertParallelism) {
  Layer layer = spread_experts(1);
  const auto [plain, narrow] = plain_and_narrow(layer);
  EXPECT_EQ(pass_time(narrow.forward), pass_time(plain.forward));
  EXPECT_EQ(pass_time(narrow.backward), pass_time(plain.backward));
}

Seconds dispatch_time(Layer& layer, bool deduplicated) {
  layer.execution().deduplicated_dispatch = deduplicated;
  layer.execution().fused_permutation = deduplicated;  // which has no time of its own a token
  Seconds time;
  for (const Step& step : layer.steps().forward) {
    time += step.comm == CommKind::AllToAll ? step.time : Seconds();
  }
  return time;
}

TEST(DeduplicatedDispatch, SendsATokenOnceToANode) {
  BlockPlan layout;
  layout.ep = 16;  // two nodes: of 8 copies about 4 would cross to each, one does
  Layer across(mixture(64, 8), layout, 16, 4, 4096);
  const double share = dispatch_time(across, true).value() / dispatch_time(across, false).value();
  EXPECT_LT(share, 0.5);
}

// Of four nodes' experts in groups a token meets those of the groups that it goes to alone.
TEST(DeduplicatedDispatch, ReachesTheNodesOfItsGroups) {
  BlockPlan layout;
  layout.ep = 32;
  const auto time = [&](int groups, int of_token) {
    models::NetworkSpec spec = mixture(64, 8).spec;
    spec.moe.groups = groups;
    spec.moe.groups_per_token = of_token;
    Layer layer(models::build_network(spec, "test"), layout, 32, 4, 4096);
    return dispatch_time(layer, true).value();
  };
  EXPECT_DOUBLE_EQ(time(4, 4), time(1, 1));
  EXPECT_DOUBLE_EQ(time(8, 8), time(1, 1));
  EXPECT_LT(time(4, 2), 0.65 * time(1, 1));  // 2 nodes, of 3.66
  // Two groups a node: of a token's four of eight a node has one with 40 in 70, two with 15. The
  // copies miss it with C(24, 8) or C(16, 8) in C(32, 8), so that they meet 2.98 nodes; on three
  // nodes they would meet 2.92.
  EXPECT_NEAR((time(8, 4) - time(4, 3)) / (time(1, 1) - time(4, 3)), 0.0883, 0.002);
  EXPECT_LT(time(8, 2), time(4, 2));  // 4 (1 - 15/28) = 1.86 nodes
  EXPECT_DOUBLE_EQ(time(8, 1), time(4, 1));
}

// Experts over the tensor-parallel ranks, too: the exchange is over tp x ep.
TEST(DeduplicatedDispatch, KnowsRoutedTokensWhateverTheAxes) {
  BlockPlan layout;
  layout.tp = 2;
  layout.sequence_parallel = true;
  layout.ep = 16;
  layout.expert_tp = 1;
  Layer layer(mixture(64, 8), layout, 8, 4, 4096);
  EXPECT_LT(dispatch_time(layer, true).value(), 0.5 * dispatch_time(layer, false).value());
}

// Experts of two context ranks instead of two replicas: the same bytes, over half the nodes.
TEST(ExpertsOverContext, ReachFewerNodes) {
  const auto dispatch = [](int expert_cp) {
    BlockPlan layout = context(ContextParallel::Ring, 2);
    layout.tp = 4;
    layout.sequence_parallel = true;
    layout.ep = 8;
    layout.expert_cp = static_cast<std::int8_t>(expert_cp);
    const Layer layer(mixture(8, 2), layout, 8, 1, 4096);
    for (const Step& step : layer.steps().forward) {
      if (step.comm == CommKind::AllToAll) {
        return step;
      }
    }
    return Step();
  };
  const Step apart = dispatch(0);
  const Step folded = dispatch(1);
  EXPECT_EQ(apart.group.ranks, 8);
  EXPECT_EQ(folded.group.ranks, 8);
  EXPECT_EQ(apart.group.nodes, 8);
  EXPECT_EQ(folded.group.nodes, 4);
  EXPECT_EQ(apart.bytes.value(), folded.bytes.value());
  EXPECT_LT(folded.time, apart.time);
}

// Replicas that share experts next to each other and context ranks on several nodes, or the other
// way round: the same bytes.
TEST(ExpertsInside, TradeTheirNodesWithContextAndTensorRanks) {
  const auto group_of_step = [](ExpertsInside inside, Axis axis) {
    BlockPlan layout = context(ContextParallel::Ring, 4);
    layout.tp = 2;
    layout.sequence_parallel = true;
    layout.ep = 4;
    layout.ep_inside = inside;
    const Layer layer(mixture(8, 2), layout, 4, 1, 4096);
    for (const Step& step : layer.steps().forward) {
      if (step.collective && step.axes == 1U << static_cast<unsigned>(axis)) {
        return step;
      }
    }
    return Step();
  };
  const auto nodes = [&](ExpertsInside inside, Axis axis) {
    return group_of_step(inside, axis).group.nodes;
  };
  EXPECT_EQ(nodes(ExpertsInside::Data, Axis::Expert), 4);
  EXPECT_EQ(nodes(ExpertsInside::Data, Axis::Context), 1);
  EXPECT_EQ(nodes(ExpertsInside::Data, Axis::Tensor), 1);
  EXPECT_EQ(nodes(ExpertsInside::Context, Axis::Expert), 1);
  EXPECT_EQ(nodes(ExpertsInside::Context, Axis::Context), 4);
  EXPECT_EQ(nodes(ExpertsInside::Context, Axis::Tensor), 1);
  const Step tensor = group_of_step(ExpertsInside::Tensor, Axis::Tensor);
  EXPECT_EQ(tensor.group.nodes, 1);
  EXPECT_EQ(tensor.group.gpu_stride, 4);
  const Step apart = group_of_step(ExpertsInside::Data, Axis::Expert);
  const Step together = group_of_step(ExpertsInside::Context, Axis::Expert);
  EXPECT_EQ(apart.bytes.value(), together.bytes.value());
  EXPECT_LT(together.time, apart.time);
}

TEST(ExpertsInside, CountTheRanksThatShareExperts) {
  BlockPlan layout{.tp = 2, .cp = 4, .ep = 4};
  EXPECT_EQ(expert_span(layout), 32);
  layout.ep_inside = ExpertsInside::Context;
  EXPECT_EQ(expert_span(layout), 8);
  layout.ep_inside = ExpertsInside::Tensor;
  EXPECT_EQ(expert_span(layout), 4);
  layout.expert_tp = 1;
  layout.ep = 8;
  EXPECT_EQ(expert_span(layout), 8);
  layout.expert_cp = 1;
  layout.ep = 32;
  EXPECT_EQ(expert_span(layout), 32);
}

class ZeroPlusPlus : public testing::Test {
 protected:
  ZeroPlusPlus() {
    plan_.dp = 16;
    plan_.pp = 1;
    plan_.stage_blocks = even_stages(plan_.network, 1);
    BlockPlan& layout = plan_.blocks.front().layout;
    layout = BlockPlan();
    layout.zero_stage = 3;
    check_plan(plan_, "test");
  }

  std::vector<StateCollective> collectives(const Execution& execution,
                                           DType precision = DType::Bf16) {
    const BlockPlan& layout = plan_.blocks.front().layout;
    BlockCosts costs(plan_);
    BlockCost layer = costs.of(plan_.network.chain[1], layout, 1);
    StateGroup& group = layer.states.front();
    group.quantised = is_quantised(precision) ? group.elements : 0;
    elements_ = static_cast<double>(group.elements);
    return state_collectives(layer, layout, mesh_of(layout, 16), execution, precision, false,
                             plan_.cluster.node.gpus);
  }

  Plan plan_ = small_plan();
  double elements_ = 0;
};

TEST_F(ZeroPlusPlus, PlainShardingGathersTwiceAndScattersOnce) {
  const auto plain = collectives({});
  ASSERT_EQ(plain.size(), 3U);
  EXPECT_EQ(plain[0].kind, CommKind::ReduceScatter);
  EXPECT_DOUBLE_EQ(plain[0].bytes, 4 * elements_);
  for (const std::size_t gather : {1U, 2U}) {
    EXPECT_EQ(plain[gather].kind, CommKind::AllGather);
    EXPECT_DOUBLE_EQ(plain[gather].bytes, 2 * elements_);
    EXPECT_EQ(plain[gather].group(mesh_of({}, 16), 8).ranks, 16);
  }
}

TEST_F(ZeroPlusPlus, QuantisedGathersAreHalfAndTheBackwardStaysInTheNode) {
  Execution execution;
  execution.quantised_gather = true;
  execution.hierarchical_gather = true;
  const auto list = collectives(execution);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_DOUBLE_EQ(list[1].bytes, elements_);
  const auto backward = list[2].group(mesh_of({}, 16), 8);
  EXPECT_EQ(list[2].use, StateCollective::Use::BackwardGather);
  EXPECT_EQ(backward.ranks, 8);
  EXPECT_EQ(backward.nodes, 1);
}

TEST_F(ZeroPlusPlus, ParametersWithScalesOfBlocksAreGatheredIn16Bits) {
  Execution execution;
  execution.quantised_gather = true;
  const auto bytes_per_element = [&](DType precision) {
    const double bytes = collectives(execution, precision)[1].bytes;
    return bytes / elements_;
  };
  EXPECT_DOUBLE_EQ(bytes_per_element(DType::Fp8), 1);
  execution.fp8_scaling = Fp8Scaling::Blocks;
  EXPECT_DOUBLE_EQ(bytes_per_element(DType::Fp8), 2);
  EXPECT_DOUBLE_EQ(bytes_per_element(DType::Bf16), 1);  // no scales of fp8
}

// 4 bits an element inside a node; across, what is left after 8 ranks added up.
TEST_F(ZeroPlusPlus, QuantisedReductionCrossesNodesWithWhatIsLeft) {
  Execution execution;
  execution.quantised_reduce = true;
  const auto list = collectives(execution);
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[0].kind, CommKind::AllToAll);
  EXPECT_DOUBLE_EQ(list[0].bytes, 0.5 * elements_);
  EXPECT_EQ(list[0].group(mesh_of({}, 16), 8).nodes, 1);
  EXPECT_DOUBLE_EQ(list[1].bytes, 0.5 * elements_ / 8);
  EXPECT_EQ(list[1].group(mesh_of({}, 16), 8).ranks, 2);
  EXPECT_EQ(list[1].group(mesh_of({}, 16), 8).groups_per_node, 8);
}

TEST_F(ZeroPlusPlus, TheSecondShardCostsItsMemory) {
  const BlockPlan& layout = plan_.blocks.front().layout;
  BlockCosts costs(plan_);
  const BlockCost& layer = costs.of(plan_.network.chain[1], layout, 1);
  Execution execution;
  const auto parameters = [&] {
    return state_bytes(layer, layout, mesh_of(layout, 16), execution, DType::Bf16, false, 8)
        .parameters.value();
  };
  const std::int64_t plain = parameters();
  execution.hierarchical_gather = true;
  EXPECT_EQ(parameters(), plain + 2 * plain);  // an eighth beside a sixteenth
}

}  // namespace
}  // namespace orrery::plan
