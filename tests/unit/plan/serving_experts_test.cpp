// SPDX-License-Identifier: Apache-2.0
// Attention of every replica for itself, experts over all of them: what a rank holds, what an
// iteration of replicas in step costs, and what plans like this cannot have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "plan/serving/cost_parts.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

// DeepSeek-V2-Lite on eight H100: 64 experts.
Plan served_expert_plan(int tp, int ep, int dp = 8, const std::string& cluster = "hgx-h100:1") {
  BlockPlan layout;
  layout.tp = tp;
  layout.ep = ep;
  layout.expert_tp = ep > 1 && tp > 1 ? 1 : 0;
  Plan plan = replicas_of("deepseek-v2-lite", cluster, layout, 1, DType::Bf16);
  plan.batch = plan.dp = dp;
  serve(plan, some_requests(64));
  check_plan(plan, "plan.json");
  return plan;
}

TEST(ServingExperts, ReplicasInStep) {
  EXPECT_EQ(expert_replicas(served_expert_plan(1, 1).blocks.front().layout), 1);
  EXPECT_EQ(expert_replicas(served_expert_plan(1, 8).blocks.front().layout), 8);
  EXPECT_EQ(expert_replicas(served_expert_plan(1, 4).blocks.front().layout), 4);
  EXPECT_EQ(expert_replicas(served_expert_plan(2, 8, 4).blocks.front().layout), 4);
  EXPECT_EQ(expert_replicas(served_expert_plan(8, 8, 1).blocks.front().layout), 1);
}

// An eighth of the routed experts beside all else: 26 layers x 64 experts x 3 x 2048 x 1408.
TEST(ServingExperts, AnEighthOfThemOnEveryRank) {
  const ServingMemory all = ServingModel(served_expert_plan(1, 1)).memory().front();
  const ServingMemory eighth = ServingModel(served_expert_plan(1, 8)).memory().front();
  EXPECT_EQ((all.parameters - eighth.parameters).value(), 26LL * 64 * 3 * 2048 * 1408 * 2 * 7 / 8);
  EXPECT_EQ(all.kv_per_token, eighth.kv_per_token);
  EXPECT_GT(eighth.kv_tokens, all.kv_tokens);
}

// Every rank reads an eighth of the experts' weights for the tokens of all; tokens travel.
TEST(ServingExperts, DecodingReadsFewerWeightsAndSendsTokens) {
  ServingModel alone(served_expert_plan(1, 1));
  ServingModel shared(served_expert_plan(1, 8));
  const std::vector<Iteration> eight(8, decoding(64, 500));
  const IterationCost own = alone.cost(0, eight.front());
  const IterationCost together = shared.cost(0, eight);
  EXPECT_LT(together.of(ServingPart::Gemm), own.of(ServingPart::Gemm) * 0.5);
  EXPECT_EQ(together.of(ServingPart::Decode), own.of(ServingPart::Decode));
  EXPECT_EQ(own.of(ServingPart::Network).value(), 0);
  EXPECT_GT(together.of(ServingPart::Network).value(), 0);
}

// Dispatch and combination: two all-to-alls of the copies in each of 26 layers, as priced alone.
TEST(ServingExperts, ExchangesTheCopies) {
  const Plan plan = served_expert_plan(1, 8);
  const costmodel::CollectiveModel collectives(plan.cluster, plan.profile);
  const std::int64_t tokens = 64;
  const Bytes copies(static_cast<double>(tokens * 6 * 2048 * 2));
  const Seconds one = collectives.time(sim::CommKind::AllToAll, copies, {8, 8, 1});
  ServingModel model(plan);
  const std::vector<Iteration> eight(8, decoding(tokens, 500));
  EXPECT_NEAR(model.cost(0, eight).of(ServingPart::Network).value(), (one * 52.0).value(),
              1e-9 * one.value() + 1e-12);
}

// Experts inside a replica: a rank weighs and adds up what its own give back, and the shared ones'
// result, so that one all-reduce of the tokens does for all their copies, whether the ranks cut
// every expert, have different ones or both (vLLM and SGLang, models/deepseek_v2.py).
TEST(ServingExperts, OneSumOfAllCopies) {
  constexpr std::int64_t kTokens = 512;
  for (const auto& [ep, expert_tp] : {std::array{1, 0}, std::array{8, 1}, std::array{4, 2}}) {
    Plan plan = served_expert_plan(8, 8, 1);
    plan.blocks.front().layout.ep = ep;
    plan.blocks.front().layout.expert_tp = expert_tp;
    check_plan(plan, "plan.json");
    ServingModel model(plan);
    const std::vector<Step> steps = model.collectives(plan.network.chain[5], kTokens);
    ASSERT_EQ(steps.size(), 2U);
    for (const Step& step : steps) {
      EXPECT_EQ(step.comm, sim::CommKind::AllReduce);
      EXPECT_EQ(step.bytes.value(), 2.0 * kTokens * 2048);
      EXPECT_EQ(step.group.ranks, 8);
    }
    EXPECT_EQ(steps.front().name, "attention_output");
    EXPECT_EQ(steps.back().name, "experts_sum");
  }
}

// Experts that some of the tensor ranks cut: each rank holds as much, and logits come from all.
TEST(ServingExperts, CutBySomeOfTheTensorRanks) {
  Plan plan = served_expert_plan(8, 8, 1);
  const ServingMemory whole = ServingModel(plan).memory().front();
  plan.blocks.front().layout.ep = 4;
  plan.blocks.front().layout.expert_tp = 2;
  ServingModel model(plan);
  EXPECT_EQ(model.memory().front().parameters, whole.parameters);
  const std::vector<Step> head = model.collectives(plan.network.chain.back(), 64);
  ASSERT_EQ(head.size(), 1U);
  EXPECT_EQ(head.front().group.ranks, 8);
}

// Weights of experts that no token chose are not read: of 64 a token has six, ten tokens that
// choose apart 64 (1 - (58 / 64)^10) = 40, and a long prompt all. Replicas that share the experts
// choose together: of a rank's eight, one token of each chooses 8 (1 - (58 / 64)^8) = 4. Tensor
// ranks that cut every expert have the same tokens.
TEST(ServingExperts, ReadsTheWeightsOfChosenOnes) {
  const auto up = [](const Plan& plan, std::int64_t tokens) {
    ServingModel model(plan);
    const BlockContext context = model.context(plan.network.chain[5], tokens);
    for (const Step& step : serving_steps(context)) {
      if (step.name == "experts_up") {
        return step.time;
      }
    }
    return Seconds();
  };
  const Plan alone = served_expert_plan(1, 1);
  const BlockCosts costs(alone);
  const auto product = [&](std::int64_t rows, std::int64_t experts, std::int64_t parts = 1) {
    return costs.device().gemm({rows, 2 * 1408 / parts, 2048, experts, DType::Bf16, 2});
  };
  EXPECT_EQ(up(alone, 1), product(1, 6));
  EXPECT_EQ(up(alone, 10), product(1, 40));
  EXPECT_EQ(up(alone, 4096), product(4096 * 6 / 64, 64));
  const Plan shared = served_expert_plan(1, 8);
  EXPECT_EQ(up(shared, 1), product(8 * 6 / 8 / 4, 4));
  EXPECT_EQ(up(shared, 4096), product(4096 * 6 / 8, 8));
  EXPECT_EQ(up(served_expert_plan(8, 1, 1), 10), product(1, 40, 8));
  EXPECT_EQ(up(served_expert_plan(8, 8, 1), 8), product(8 * 6 / 8 / 4, 4));
}

// Where no token travels products find their rows by index, so that tokens are neither copied nor
// sorted, and scores take three kernels. Tokens of other replicas are put in order as they come.
TEST(ServingExperts, TokensAreFoundByIndex) {
  constexpr std::int64_t kTokens = 512;
  const auto time_of = [&](const Plan& plan, std::string_view name) {
    ServingModel model(plan);
    Seconds sum;
    for (const Step& step : serving_steps(model.context(plan.network.chain[5], kTokens))) {
      sum += step.name == name ? step.time : Seconds();
    }
    return sum;
  };
  const BlockCosts costs(served_expert_plan(1, 1));
  const auto pass = [&](double bytes, costmodel::MemoryKernel kernel) {
    return costs.device().memory_bound(Bytes(bytes), kernel);
  };
  for (const auto& [tp, ep] : {std::array{1, 1}, std::array{8, 1}, std::array{8, 8}}) {
    const Plan plan = served_expert_plan(tp, ep, 8 / tp);
    EXPECT_EQ(time_of(plan, "permute"), Seconds());
    EXPECT_EQ(time_of(plan, "top_k"),
              pass(4.0 * kTokens * 64 / 3, costmodel::MemoryKernel::Softmax) * 3.0);
    // Each of the copies with its weight, those of other ranks' experts as zeros, and their sums.
    EXPECT_NEAR(
        time_of(plan, "combine").value(),
        pass(kTokens * (6.0 * (2 * 2048 + 4) + 2 * 2048), costmodel::MemoryKernel::Elementwise)
            .value(),
        1e-9);
  }
  const Plan replicas = served_expert_plan(1, 8);
  EXPECT_GT(time_of(replicas, "permute"),
            pass(2.0 * 2 * kTokens * 6 * 2048, costmodel::MemoryKernel::Permute));
}

// Tokens are cast to fp8 once for all of their experts, and nothing in columns for a backward.
TEST(ServingExperts, TokensAreCastOnce) {
  constexpr std::int64_t kTokens = 4096;
  Plan plan = served_expert_plan(1, 1);
  plan.precision = DType::Fp8;
  ServingModel model(plan);
  const BlockCosts costs(plan);
  Seconds up;
  for (const Step& step : serving_steps(model.context(plan.network.chain[5], kTokens))) {
    up += step.name == "experts_up" ? step.time : Seconds();
  }
  const Seconds product =
      costs.device().gemm({kTokens * 6 / 64, 2 * 1408, 2048, 64, DType::Fp8, 2});
  const Seconds cast =
      costs.device().memory_bound(Bytes(3.0 * kTokens * 2048), costmodel::MemoryKernel::Cast);
  EXPECT_NEAR(up.value(), (product + cast).value(), 1e-9);
}

// The slowest sets the pace; idle ones leave the experts less to do.
TEST(ServingExperts, WaitForTheSlowest) {
  ServingModel model(served_expert_plan(1, 8));
  const std::vector<Iteration> full(8, decoding(256, 1000));
  std::vector<Iteration> one(8);
  one[3] = decoding(256, 1000);
  const IterationCost of_full = model.cost(0, full);
  const IterationCost of_one = model.cost(0, one);
  EXPECT_EQ(of_one.of(ServingPart::Decode), of_full.of(ServingPart::Decode));
  EXPECT_EQ(of_one.of(ServingPart::Network), of_full.of(ServingPart::Network));
  EXPECT_LT(of_one.of(ServingPart::Gemm), of_full.of(ServingPart::Gemm));
  EXPECT_LT(of_one.time, of_full.time);
}

TEST(ServingExperts, SimulatesAndKeepsItsBound) {
  for (const auto& [tp, ep, dp] : {std::array{1, 8, 8}, std::array{1, 4, 8}, std::array{2, 8, 4}}) {
    Plan plan = served_expert_plan(tp, ep, dp);
    for (const Routing routing : {Routing::InTurn, Routing::LeastLoaded}) {
      Serving serving = *plan.serving;
      serving.options.routing = routing;
      plan.serving = std::make_shared<const Serving>(serving);
      const Plan again = read_plan(to_json(plan), "again");
      EXPECT_EQ(again.serving->options.routing, routing);
      ServingModel model(again);
      const std::vector<Request> requests = generate_requests(again.serving->requests);
      const ServingSimulation simulation = simulate_serving(again, model, requests);
      ASSERT_FALSE(simulation.does_not_fit);
      EXPECT_EQ(simulation.requests, 64);
      EXPECT_LE(serving_bound(again, model, requests), simulation.makespan);
      Seconds parts;
      for (const Seconds part : simulation.parts) {
        parts += part;
      }
      EXPECT_NEAR(parts.value(), simulation.busy.value(), 1e-6 * parts.value());
    }
  }
}

// A replica without a request has its share of the experts' part of all iterations.
TEST(ServingExperts, IdleReplicasAreBusyWithTheirExperts) {
  Plan plan = served_expert_plan(1, 8);
  Serving serving = *plan.serving;
  serving.requests.count = 3;
  serve(plan, serving);
  const ServingSimulation simulation = simulate_serving(plan);
  ASSERT_FALSE(simulation.does_not_fit);
  EXPECT_EQ(simulation.requests, 3);
  Seconds parts;
  for (const Seconds part : simulation.parts) {
    parts += part;
  }
  EXPECT_NEAR(parts.value(), simulation.busy.value(), 1e-6 * parts.value());
}

TEST(ServingExperts, BadInput) {
  const auto problem = [](int tp, int ep, int dp, int cp = 1) {
    try {
      Plan plan = served_expert_plan(1, 1);
      plan.blocks.front().layout.tp = tp;
      plan.batch = plan.dp = dp;
      plan.blocks.front().layout.ep = ep;
      plan.blocks.front().layout.cp = cp;
      plan.blocks.front().layout.expert_tp = tp > 1 ? 1 : 0;
      check_plan(plan, "plan.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(problem(2, 8, 4), "");
  EXPECT_THAT(problem(4, 2, 2), HasSubstr("ep = 2 in a serving plan with tp = 4"));
  EXPECT_THAT(problem(1, 16, 8), HasSubstr("dp = 8 is not divisible by ep = 16"));
  EXPECT_THAT(problem(1, 4, 4, 2), HasSubstr("spreads experts over 4 replicas"));
  Plan uneven = served_expert_plan(8, 8, 1);
  uneven.blocks.front().layout.ep = 1;
  uneven.blocks.front().layout.expert_tp = 3;
  EXPECT_THAT([&] { check_plan(uneven, "plan.json"); },
              testing::ThrowsMessage<Error>(HasSubstr("a divisor of tp = 8")));
  Plan inside = served_expert_plan(2, 8, 4);
  inside.blocks.front().layout.ep_inside = ExpertsInside::Tensor;
  EXPECT_THAT([&] { check_plan(inside, "plan.json"); },
              testing::ThrowsMessage<Error>(HasSubstr("has ep_inside = dp, not tp")));
}

}  // namespace
}  // namespace orrery::plan
