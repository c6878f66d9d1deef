// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

std::string problem(const std::function<void(Plan&, BlockPlan&)>& change) {
  Plan plan = small_plan();
  change(plan, plan.blocks.front().layout);
  return problem(plan);
}

TEST(Plan, LayoutOfFollowsRuns) {
  Plan plan = small_plan();
  plan.blocks = {{4, {.tp = 4}}, {6, {.tp = 2}}};
  EXPECT_EQ(plan.layout_of(0).tp, 4);
  EXPECT_EQ(plan.layout_of(3).tp, 4);
  EXPECT_EQ(plan.layout_of(4).tp, 2);
  EXPECT_EQ(plan.layout_of(9).tp, 2);
  EXPECT_EQ(plan.num_gpus(), 16);
}

TEST(Plan, EvenStagesPutLargerOnesFirstAndEndsOutside) {
  const models::Network network = small_plan().network;  // embedding, 8 layers, head
  EXPECT_EQ(even_stages(network, 1), (std::vector<int>{10}));
  EXPECT_EQ(even_stages(network, 2), (std::vector<int>{5, 5}));
  EXPECT_EQ(even_stages(network, 3), (std::vector<int>{4, 3, 3}));
  EXPECT_EQ(even_stages(network, 8), (std::vector<int>{2, 1, 1, 1, 1, 1, 1, 2}));
  EXPECT_THROW((void)even_stages(network, 9), Error);
}

TEST(PlanCheck, AcceptsTheFixture) {
  EXPECT_EQ(problem([](Plan&, BlockPlan&) {}), "");
}

TEST(PlanCheck, DegreesMustMultiply) {
  const std::string text = problem([](Plan& plan, BlockPlan&) { plan.dp = 4; });
  EXPECT_THAT(text, HasSubstr("tp x cp x dp x pp = 4 x 1 x 4 x 2 = 32"));
  EXPECT_THAT(text, HasSubstr("dgx-a100:2 has 16 GPUs"));
  EXPECT_THAT(text, HasSubstr("dp = 2 would fit"));
}

TEST(PlanCheck, AMixDividesTheContextRanksThatThereAre) {
  EXPECT_THAT(problem([](Plan&, BlockPlan& layout) {
                layout.context = ContextParallel::Mix;
                layout.ulysses_degree = 2;
              }),
              HasSubstr("cp = 1 is not divisible by ulysses_degree = 2"));
}

TEST(PlanCheck, AbsurdDegreesDoNotOverflow) {
  EXPECT_NE(problem([](Plan& plan, BlockPlan& layout) {
              plan.dp = plan.pp = layout.tp = layout.cp = 1 << 20;
            }),
            "");
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.dp = -2; }), HasSubstr("dp is -2"));
  EXPECT_THAT(problem([](Plan&, BlockPlan& layout) { layout.tp = 0; }), HasSubstr("tp is 0"));
  EXPECT_NE(problem([](Plan& plan, BlockPlan&) { plan.micro_batch = std::int64_t{1} << 62; }), "");
}

TEST(PlanCheck, BatchAndStages) {
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.batch = 63; }),
              HasSubstr("micro_batch x dp = 1 x 2 = 2"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.batch = 0; }), HasSubstr("batch is 0"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) {
                plan.stage_blocks = {5, 4};
              }),
              HasSubstr("sums to 9"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.stage_blocks = {10}; }),
              HasSubstr("pp x chunks = 2 x 1 = 2"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) {
                plan.stage_blocks = {10, 0};
              }),
              HasSubstr("stages"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.blocks.front().count = 9; }),
              HasSubstr("sum to 9"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.blocks.clear(); }), HasSubstr("empty"));
}

TEST(PlanCheck, Schedules) {
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.schedule = "1f1"; }), HasSubstr("1f1b"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) {
                plan.chunks = 2;
                plan.stage_blocks = even_stages(plan.network, 4);
              }),
              HasSubstr("chunks"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) {
                plan.schedule = "interleaved";
                plan.chunks = 2;
                plan.stage_blocks = even_stages(plan.network, 4);
                plan.batch = 2 * 31;
              }),
              HasSubstr("interleaved"));
}

TEST(PlanCheck, TensorAndContextParallelDivisibility) {
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.network.spec.heads = 18; }),
              HasSubstr("heads = 18 is not divisible by tp = 4"));
  EXPECT_EQ(problem([](Plan& plan, BlockPlan&) { plan.network.spec.kv_heads = 2; }), "");
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.network.spec.kv_heads = 6; }),
              HasSubstr("kv_heads"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.network.spec.ffn_hidden = 4098; }),
              HasSubstr("ffn_hidden"));
  EXPECT_EQ(problem([](Plan& plan, BlockPlan&) { plan.network.spec.vocab = 50257; }), "");
  EXPECT_THAT(problem([](Plan& plan, BlockPlan& layout) {
                layout.sequence_parallel = true;
                plan.sequence = 2046;
              }),
              HasSubstr("sequence = 2046"));
  const auto context = [](ContextParallel kind, int sequence, bool zigzag = true, int degree = 1) {
    return problem([&](Plan& plan, BlockPlan& layout) {
      layout.tp = 2;
      layout.cp = 2;
      layout.context = kind;
      layout.zigzag = zigzag;
      layout.ulysses_degree = degree;
      plan.sequence = sequence;
    });
  };
  EXPECT_EQ(context(ContextParallel::Ring, 2048), "");
  EXPECT_THAT(context(ContextParallel::Ring, 1026), HasSubstr("2 x cp"));
  EXPECT_EQ(context(ContextParallel::Ring, 1026, false), "");  // one chunk a rank
  EXPECT_THAT(context(ContextParallel::Mix, 1026), HasSubstr("2 x cp"));
  EXPECT_EQ(context(ContextParallel::Mix, 1026, true, 2), "");  // no ring
  EXPECT_THAT(context(ContextParallel::AllGather, 1026), HasSubstr("2 x cp"));
  EXPECT_EQ(context(ContextParallel::AllGather, 1026, false), "");
  EXPECT_THAT(context(ContextParallel::AllGather, 1025, false), HasSubstr("cp = 2"));
}

TEST(PlanCheck, ExpertsZeroAndPrecision) {
  EXPECT_THAT(problem([](Plan&, BlockPlan& layout) { layout.ep = 2; }), HasSubstr("no experts"));
  EXPECT_THAT(problem([](Plan&, BlockPlan& layout) { layout.expert_tp = 3; }),
              HasSubstr("expert_tp"));
  EXPECT_THAT(problem([](Plan&, BlockPlan& layout) { layout.zero_stage = 4; }),
              HasSubstr("zero_stage is 4"));
  EXPECT_THAT(problem([](Plan&, BlockPlan& layout) { layout.shard_degree = 3; }),
              HasSubstr("shard_degree = 3"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.precision = DType::Fp8; }),
              HasSubstr("no fp8"));
  EXPECT_THAT(problem([](Plan& plan, BlockPlan&) { plan.memory_reserve = ByteCount(1LL << 50); }),
              HasSubstr("memory_reserve"));
  const Plan volta = small_plan(small_spec(), "dgx-1v:2");
  try {
    check_plan(volta, "plan.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("fp16"));
  }
}

TEST(PlanCheck, ExpertParallelGroups) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
  Plan plan = small_plan(spec);
  plan.blocks.front().layout.ep = 2;
  EXPECT_NO_THROW(check_plan(plan, "p"));
  plan.blocks.front().layout.ep = 8;  // dp = 2, tp = 4
  EXPECT_THROW(check_plan(plan, "p"), Error);
  plan.blocks.front().layout.expert_tp = 1;
  EXPECT_NO_THROW(check_plan(plan, "p"));
}

TEST(PlanCheck, ExpertsOverContextRanks) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
  const auto said = [&](int ep, int expert_tp, int expert_cp) {
    Plan plan = small_plan(spec);
    plan.dp = 1;
    BlockPlan& layout = plan.blocks.front().layout;  // tp = 4
    layout.cp = 2;
    layout.ep = ep;
    layout.expert_tp = expert_tp;
    layout.expert_cp = static_cast<std::int8_t>(expert_cp);
    return problem(plan);
  };
  EXPECT_EQ(said(2, 0, 1), "");
  EXPECT_EQ(said(8, 1, 1), "");
  EXPECT_EQ(said(4, 1, 0), "");
  EXPECT_THAT(said(2, 0, 0), HasSubstr("dp = 1 is not divisible by ep = 2"));
  EXPECT_THAT(said(8, 1, 0), AllOf(HasSubstr("dp x tp = 4"), HasSubstr("expert_cp = 1")));
  EXPECT_EQ(said(4, 1, 1), "");  // on a part of a replica, which has copies
  EXPECT_EQ(said(2, 1, 0), "");
  EXPECT_EQ(said(1, 1, 0), "");
  spec.moe.experts = 12;
  EXPECT_THAT(said(3, 1, 0), AllOf(HasSubstr("tp = 4 ranks first"), HasSubstr("expert_tp = 0")));
  EXPECT_THAT(said(12, 1, 1), AllOf(HasSubstr("tp x cp = 8 ranks first"), HasSubstr("expert_cp")));
}

TEST(PlanDocument, ReadsBackEqualAndStrictly) {
  const Plan plan = small_plan();
  const Json document = to_json(plan);
  const Plan read = read_plan(parse_json(document.dump(), "p"), "p");
  EXPECT_EQ(to_json(read), document);
  EXPECT_EQ(read.blocks, plan.blocks);
  EXPECT_EQ(read.network.spec, plan.network.spec);

  Json unknown = document;
  unknown.find("execution")->set("overlap_p2q", true);
  EXPECT_THROW((void)read_plan(unknown, "p"), Error);
  Json unit = document;
  unit.set("memory_reserve", 5);
  EXPECT_THROW((void)read_plan(unit, "p"), Error);
  Json version = document;
  version.set("version", 2);
  EXPECT_THROW((void)read_plan(version, "p"), Error);
}

TEST(PlanDocument, NamesNearestValue) {
  Json document = to_json(small_plan());
  document.find("blocks")->as_array()[0].set("recompute", "selectiv");
  try {
    (void)read_plan(document, "plan.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/blocks/0/recompute"));
    EXPECT_THAT(error.what(), HasSubstr("selective"));
  }
}

TEST(PlanDocument, StagesDefaultToTheEvenCut) {
  const Plan plan = small_plan();
  const Json full = to_json(plan);
  Json document = Json::object();
  for (const auto& [key, value] : full.as_object()) {
    if (key != "stages" && key != "execution" && key != "memory_reserve") {
      document.set(key, value);
    }
  }
  EXPECT_EQ(to_json(read_plan(document, "p")), full);
}

TEST(PlanDocument, EveryMemberIsCheckedForItsType) {
  const Json full = to_json(small_plan());
  for (const auto& [key, value] : full.as_object()) {
    for (const Json& wrong : {Json(-1), Json("x"), Json(Json::Array{Json(1.5)}), Json(true)}) {
      Json document = full;
      document.set(key, wrong);
      EXPECT_THROW((void)read_plan(document, "p"), Error) << key << " = " << wrong.dump(-1);
    }
  }
}

}  // namespace
}  // namespace orrery::plan
