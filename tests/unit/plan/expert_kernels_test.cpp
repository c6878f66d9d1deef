// SPDX-License-Identifier: Apache-2.0
// What frameworks run around the products of experts, and what uneven routing makes of it.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

// Four experts on each of 16 ranks, or all of them on one.
Layer layer_of_experts(int ep, bool biases = false) {
  models::NetworkSpec spec = mixture(64, 8).spec;
  spec.mlp_bias = biases;
  BlockPlan layout;
  layout.ep = ep;
  return {models::build_network(spec, "test"), layout, 16, 4, 4096};
}

struct KernelSums {
  Seconds time;
  int launches = 0;
  Flops flops;
};

KernelSums sums_of(const std::vector<Step>& steps, std::string_view name) {
  KernelSums sums;
  for (const Step& step : steps) {
    if (!step.collective && step.name.starts_with(name)) {
      sums.time += step.time;
      sums.launches += step.launches;
      sums.flops += step.flops;
    }
  }
  return sums;
}

double routed_bytes(const std::vector<Step>& steps) {
  double bytes = 0;
  for (const Step& step : steps) {
    bytes += is_routed(step) ? step.bytes.value() : 0.0;
  }
  return bytes;
}

int launches_of(const std::vector<Step>& steps) {
  int launches = 0;
  for (const Step& step : steps) {
    launches += step.collective ? 0 : step.launches;
  }
  return launches;
}

Seconds exchange_time(const Layer& layer) {
  Seconds time;
  for (const Step& step : layer.steps().forward) {
    time += is_routed(step) ? step.time : Seconds();
  }
  return time;
}

// Of 8 copies among 64 experts on 8 ranks: 8 (1 - C(56, 8) / C(64, 8)) ranks get one; where a rank
// has one expert, every copy goes to another.
TEST(Dispatch, SendsATokenOnceToARank) {
  const auto share = [](const models::Network& network) {
    BlockPlan layout;
    layout.ep = 8;
    Layer layer(network, layout, 8, 4, 4096);
    const Seconds all = exchange_time(layer);
    layer.execution().deduplicated_dispatch = true;
    layer.execution().fused_permutation = true;  // no time of its own a token
    return exchange_time(layer) / all;
  };
  double none = 1;
  for (int i = 0; i < 8; ++i) {
    none *= (56.0 - i) / (64.0 - i);
  }
  EXPECT_NEAR(share(mixture(64, 8)), 1 - none, 0.05);
  EXPECT_EQ(share(mixture(8, 2)), 1.0);
}

// DeepEP's kernels take 28 ns a token, in both exchanges of a pass.
TEST(Dispatch, TakesDeepEpTimeForEveryToken) {
  BlockPlan layout;
  layout.ep = 8;
  Layer layer(mixture(64, 8), layout, 8, 4, 4096);
  layer.execution().deduplicated_dispatch = true;
  const Seconds deep = exchange_time(layer);
  layer.execution().fused_permutation = true;
  EXPECT_NEAR((deep - exchange_time(layer)).value(), 2 * 28e-9 * 4 * 4096, 1e-9);
}

// The rank that gets most computes, moves and receives as much more; FLOPs are the model's.
TEST(RoutingImbalance, TheBusiestRankDecides) {
  Layer layer = layer_of_experts(16);
  const BlockSteps even = layer.steps();
  layer.execution().routing_imbalance = 1.5;
  const BlockSteps uneven = layer.steps();
  for (const auto list : {&BlockSteps::forward, &BlockSteps::backward}) {
    EXPECT_NEAR(routed_bytes(uneven.*list) / routed_bytes(even.*list), 1.5, 1e-12);
    for (const char* op : {"experts_up", "expert_activation", "experts_down"}) {
      const double ratio =
          sums_of(uneven.*list, op).time.value() / sums_of(even.*list, op).time.value();
      EXPECT_GT(ratio, 1.3) << op;
      EXPECT_LT(ratio, 1.6) << op;
    }
    EXPECT_NEAR(sums_of(uneven.*list, "experts_up").flops.value(),
                sums_of(even.*list, "experts_up").flops.value(), 1.0);
    EXPECT_EQ(sums_of(uneven.*list, "attention").time, sums_of(even.*list, "attention").time);
  }
}

TEST(RoutingImbalance, OfOneRankIsNone) {
  Layer layer = layer_of_experts(1);
  const BlockSteps even = layer.steps();
  layer.execution().routing_imbalance = 1.5;
  EXPECT_EQ(sums_of(layer.steps().forward, "expert").time, sums_of(even.forward, "expert").time);
}

// DeepEP's ranks copy tokens for their experts as they arrive, where NCCL's sort what was copied
// before.
TEST(Permutation, IsOnePassOnArrivalOrNone) {
  Layer layer = layer_of_experts(16);
  const BlockSteps plain = layer.steps();
  layer.execution().deduplicated_dispatch = true;
  const BlockSteps once = layer.steps();
  for (const char* op : {"permute", "combine"}) {
    EXPECT_EQ(sums_of(plain.forward, op).launches, 2) << op;
    EXPECT_EQ(sums_of(once.forward, op).launches, 1) << op;
    EXPECT_LT(sums_of(once.forward, op).time, sums_of(plain.forward, op).time) << op;
    EXPECT_LT(sums_of(once.backward, op).time, sums_of(plain.backward, op).time) << op;
  }
  layer.execution().fused_permutation = true;
  const BlockSteps fused = layer.steps();
  for (const char* op : {"permute", "combine"}) {
    EXPECT_EQ(sums_of(fused.forward, op).launches, 0) << op;
    EXPECT_EQ(sums_of(fused.backward, op).launches, 0) << op;
  }
}

// NCCL's all-to-all does not order what it sends.
TEST(Permutation, IsFusedWithKernelsThatSendOnceOnly) {
  Layer layer = layer_of_experts(16);
  const BlockSteps plain = layer.steps();
  layer.execution().fused_permutation = true;
  for (const char* op : {"permute", "combine"}) {
    EXPECT_EQ(sums_of(layer.steps().forward, op).time, sums_of(plain.forward, op).time) << op;
  }
}

std::set<std::string> names_before(const std::vector<Step>& steps, std::string_view name) {
  std::set<std::string> names;
  for (const Step& step : steps) {
    if (!step.collective && step.name == name) {
      for (const int before : step.after) {
        names.emplace(steps[static_cast<std::size_t>(before)].name);
      }
    }
  }
  return names;
}

// All that it reads, not the last of it alone.
TEST(Permutation, WithoutTimeWaitsForAllThatItReads) {
  Layer layer = layer_of_experts(16);
  layer.execution().deduplicated_dispatch = true;
  const std::vector<Step> timed = layer.steps().forward;
  layer.execution().fused_permutation = true;
  const std::vector<Step> fused = layer.steps().forward;
  const std::set<std::string> before = names_before(timed, "permute");
  EXPECT_GT(before.size(), 1);
  EXPECT_EQ(names_before(fused, "permute"), before);
  EXPECT_EQ(sums_of(fused, "permute").time, Seconds());
}

// What has no kernel of its own still comes after what it reads.
TEST(Permutation, ExchangesWaitForTheRouter) {
  Layer layer = layer_of_experts(16);
  layer.execution().deduplicated_dispatch = true;
  layer.execution().fused_permutation = true;
  const std::vector<Step> steps = layer.steps().forward;
  int router = -1;
  for (std::size_t index = 0; index < steps.size(); ++index) {
    router =
        !steps[index].collective && steps[index].name == "top_k" ? static_cast<int>(index) : router;
    if (is_routed(steps[index])) {
      ASSERT_FALSE(steps[index].after.empty());
      EXPECT_GE(router, 0);
      EXPECT_GE(steps[index].after.back(), router);
      return;
    }
  }
  FAIL() << "nothing is routed";
}

TEST(ExpertKernels, AreLaunchedForEachExpert) {
  Layer layer = layer_of_experts(16);
  const BlockSteps together = layer.steps();
  layer.execution().expert_kernels = true;
  const BlockSteps apart = layer.steps();
  for (const char* op : {"experts_up", "experts_down"}) {
    EXPECT_EQ(sums_of(apart.forward, op).launches, 4 * sums_of(together.forward, op).launches);
    EXPECT_EQ(sums_of(apart.backward, op).launches, 4 * sums_of(together.backward, op).launches);
    EXPECT_EQ(sums_of(apart.forward, op).time, sums_of(together.forward, op).time);
  }
}

TEST(ExpertKernels, AddBiasesOneByOne) {
  Layer layer = layer_of_experts(16, true);
  const BlockSteps fused = layer.steps();
  layer.execution().eager_expert_bias = true;
  const BlockSteps eager = layer.steps();
  const auto more = [&](const BlockSteps& steps, auto list) {
    return (sums_of(steps.*list, "experts_down").time - sums_of(fused.*list, "experts_down").time)
        .value();
  };
  // For four experts a product and an addition, and one copy; backward two products and their sums.
  EXPECT_EQ(sums_of(eager.forward, "experts_down").launches -
                sums_of(fused.forward, "experts_down").launches,
            2 * 4 + 1);
  EXPECT_EQ(sums_of(eager.backward, "experts_down").launches -
                sums_of(fused.backward, "experts_down").launches,
            4 * 4 + 1);
  EXPECT_EQ(sums_of(eager.forward, "experts_up").time, sums_of(fused.forward, "experts_up").time);
  EXPECT_NEAR(more(eager, &BlockSteps::backward) / more(eager, &BlockSteps::forward), 16.0 / 12,
              0.2);
  // Flex dispatchers ask for probabilities in fp32.
  layer.execution().deduplicated_dispatch = true;
  EXPECT_NEAR(more(layer.steps(), &BlockSteps::forward) / more(eager, &BlockSteps::forward),
              28.0 / 12, 0.3);
}

TEST(ExpertKernels, RouterOfTransformerEngineIsShort) {
  Layer layer = layer_of_experts(16);
  const BlockSteps eager = layer.steps();
  layer.execution().fused_router = true;
  const BlockSteps fused = layer.steps();
  EXPECT_EQ(sums_of(eager.forward, "top_k").launches, 23);
  EXPECT_EQ(sums_of(fused.forward, "top_k").launches, 3);
  EXPECT_LT(sums_of(fused.forward, "top_k").time, sums_of(eager.forward, "top_k").time);
  EXPECT_LT(sums_of(fused.backward, "top_k").time, sums_of(eager.backward, "top_k").time);
}

Plan plan_of_experts(Fp8Scaling scaling) {
  Plan plan = expert_plan(DType::Fp8, 32);
  plan.execution.fp8_scaling = scaling;
  return plan;
}

// Steps have the names of the costs' network.
struct ExpertSteps {
  explicit ExpertSteps(const Plan& plan)
      : costs(plan),
        steps(costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch)) {}
  BlockCosts costs;
  BlockSteps steps;
};

KernelSums forward_sums(const Plan& plan, std::string_view name) {
  return sums_of(ExpertSteps(plan).steps.forward, name);
}

KernelSums backward_sums(const Plan& plan, std::string_view name) {
  return sums_of(ExpertSteps(plan).steps.backward, name);
}

// Casts, too: four kernels a tensor where the scale is found first, one with scales of blocks, one
// for all experts with delayed scaling.
TEST(ExpertKernels, CastEachExpertByItself) {
  const auto more = [](Fp8Scaling scaling) {
    Plan plan = plan_of_experts(scaling);
    const int together = forward_sums(plan, "experts_down").launches;
    plan.execution.expert_kernels = true;
    return forward_sums(plan, "experts_down").launches - together;
  };
  constexpr int kExperts = 4;
  EXPECT_EQ(more(Fp8Scaling::Delayed), kExperts - 1);
  EXPECT_EQ(more(Fp8Scaling::Blocks), 2 * (kExperts - 1));
  EXPECT_GT(more(Fp8Scaling::Current), 4 * (kExperts - 1));
}

TEST(ExpertKernels, PadRowsInFp8) {
  const Plan plain = plan_of_experts(Fp8Scaling::Delayed);
  Plan padded = plain;
  padded.execution.expert_padding = true;
  for (const char* op : {"experts_up", "experts_down"}) {
    for (const auto& sums : {forward_sums, backward_sums}) {
      EXPECT_EQ(sums(padded, op).launches, sums(plain, op).launches + 1) << op;
      EXPECT_GT(sums(padded, op).time, sums(plain, op).time) << op;
    }
  }
  Plan wide = plain;
  wide.precision = DType::Bf16;
  const int launches = forward_sums(wide, "experts_up").launches;
  wide.execution.expert_padding = true;
  EXPECT_EQ(forward_sums(wide, "experts_up").launches, launches);
}

TEST(ExpertKernels, FuseGateAndCasts) {
  const Plan apart = plan_of_experts(Fp8Scaling::Blocks);
  Plan fused = apart;
  fused.execution.fused_experts = true;
  EXPECT_GT(forward_sums(apart, "expert_activation").launches, 0);
  EXPECT_EQ(forward_sums(fused, "expert_activation").launches, 0);
  EXPECT_EQ(backward_sums(fused, "expert_activation").launches, 0);
  EXPECT_LT(forward_sums(fused, "experts_down").time, forward_sums(apart, "experts_down").time);
  EXPECT_EQ(forward_sums(fused, "experts_up").time, forward_sums(apart, "experts_up").time);
  EXPECT_LT(backward_sums(fused, "experts_up").time, backward_sums(apart, "experts_up").time);
}

// Graphs of the router, of all that comes before the dispatch, and of whole layers.
TEST(GraphScope, SaysWhatIsReplayedBesideExperts) {
  Layer layer = layer_of_experts(16);
  layer.execution().host_per_block = Seconds(1);
  const auto look = [&](GraphScope scope) {
    layer.execution().cuda_graphs = true;
    layer.execution().graph_scope = scope;
    return std::pair(launches_of(layer.steps().forward),
                     host_of_pass(layer.execution(), layer.block()).value());
  };
  const auto [dense, dense_host] = look(GraphScope::Dense);
  const auto [router, router_host] = look(GraphScope::Router);
  const auto [attention, attention_host] = look(GraphScope::Attention);
  const auto [whole, whole_host] = look(GraphScope::Layer);
  EXPECT_LT(router, dense - 20);
  EXPECT_LT(attention, router);
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(dense_host, 1.0);
  EXPECT_LT(router_host, dense_host);
  EXPECT_LT(attention_host, router_host);
  EXPECT_GT(attention_host, 0);
  EXPECT_EQ(whole_host, 0.0);
  layer.execution().blocking_launches = true;
  EXPECT_EQ(host_of_pass(layer.execution(), layer.block()).value(), 1.0);
}

TEST(GraphScope, IsWritten) {
  Plan plan = plan_of_experts(Fp8Scaling::Delayed);
  plan.execution.cuda_graphs = true;
  plan.execution.graph_scope = GraphScope::Attention;
  plan.execution.routing_imbalance = 1.25;
  plan.execution.expert_kernels = true;
  const Plan again = read_plan(to_json(plan), "test");
  EXPECT_EQ(again.execution, plan.execution);
}

}  // namespace
}  // namespace orrery::plan
