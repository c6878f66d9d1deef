// SPDX-License-Identifier: Apache-2.0
// Reports of layouts against what the simulation of the plan counts.
#include "plan/simulation/layout_report.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "plan/serving/cost.hpp"
#include "plan/serving/serving.hpp"
#include "plan/stage/order_cache.hpp"
#include "plan/stage/shared_output.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using sim::CommKind;
using sim::PassKind;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

double gradient_bytes(const Plan& plan) {
  double bytes = 0;
  for (const BlockReport& block : report_layouts(plan)) {
    for (const ReportedCollective& one : block.states) {
      bytes += one.tensor == "gradients" ? one.count * one.bytes.value() * block.count : 0;
    }
  }
  return bytes;
}

// Every tensor rank is handed the ids of all tokens.
TEST(LayoutReport, TokenIdsAreNotGathered) {
  for (const char* network : {"llama3-8b", "t5-3b"}) {
    const BlockPlan layout{.tp = 4, .sequence_parallel = true};
    for (const BlockReport& block : report_layouts(one_stage_plan(layout, network))) {
      for (const ReportedCollective& one : block.collectives) {
        EXPECT_THAT(one.tensor, testing::Not(testing::EndsWith("tokens"))) << network;
      }
    }
  }
}

// Where one stage holds the embedding and the head, a tied table is one gradient.
TEST(LayoutReport, ATiedTableOfOneStageIsReducedOnce) {
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = true;
  Plan plan = small_plan(spec, "dgx-a100:1");
  plan.pp = 1;
  plan.dp = 8;
  plan.blocks.front().layout.tp = 1;
  plan.stage_blocks = even_stages(plan.network, 1);
  const auto parameters = static_cast<double>(models::num_parameters(plan.network));
  EXPECT_EQ(gradient_bytes(plan), 4 * parameters);
  const std::vector<HeldTensor> head = report_layouts(plan).back().tensors;
  EXPECT_THAT(head, Contains(Field(&HeldTensor::layout, HasSubstr("the token table"))));
  // On stages of their own both have one.
  plan.pp = 2;
  plan.dp = 4;
  plan.stage_blocks = even_stages(plan.network, 2);
  const double table = 4.0 * static_cast<double>(spec.vocab * spec.hidden);
  EXPECT_EQ(gradient_bytes(plan), 4 * parameters + table);
}

// The ends of a pipeline add up the gradients of the table that both have.
TEST(LayoutReport, ATiedTableOfTwoStagesIsSummed) {
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = true;
  const auto sums = [&](const std::string& schedule, int chunks) {
    std::vector<std::string> blocks;
    const Plan plan =
        in_pipeline(small_plan(spec, "dgx-a100:1"), schedule, {.dp = 1, .tp = 2, .chunks = chunks});
    for (const BlockReport& block : report_layouts(plan)) {
      for (const ReportedCollective& one : block.states) {
        if (one.axes == "stages with the token table") {
          EXPECT_EQ(one.kind, CommKind::AllReduce);
          EXPECT_EQ(one.ranks, 2);
          EXPECT_EQ(2 * one.bytes.value(), 4.0 * static_cast<double>(spec.vocab * spec.hidden));
          blocks.push_back(block.name);
        }
      }
    }
    return blocks;
  };
  EXPECT_THAT(sums("1f1b", 1), testing::SizeIs(2));
  EXPECT_THAT(sums("zb-v", 2), testing::IsEmpty());  // both on the first device
  spec.tied_embeddings = false;
  EXPECT_THAT(sums("1f1b", 1), testing::IsEmpty());
}

// Samples become positions of four ranks, of which two hold the same: either way a rank exchanges
// what it has without tensor parallelism.
TEST(LayoutReport, ConversionsExchangeWhatIsTimed) {
  Plan plan = one_stage_plan({});
  BlockPlan cut{.tp = 2, .cp = 4};
  cut.context = ContextParallel::Ulysses;
  plan.blocks = {{4, {}}, {static_cast<int>(plan.network.chain.size()) - 4, cut}};
  const double held = 2.0 * static_cast<double>(plan.micro_batch * plan.sequence * 1024);
  int exchanges = 0;
  for (const BlockReport& block : report_layouts(plan)) {
    for (const ReportedCollective& one : block.conversion) {
      exchanges += one.kind == CommKind::AllToAll ? 1 : 0;
      EXPECT_EQ(one.bytes.value(), one.kind == CommKind::AllToAll ? held : 2 * held);
    }
  }
  EXPECT_EQ(exchanges, 2);
}

// What a forward gathered and keeps is not gathered for the backward; tensors that their ranks
// broadcast are not gathered at all.
TEST(LayoutReport, ParametersAreGatheredAsTheStepDoes) {
  BlockPlan layout;
  layout.zero_stage = 3;
  Plan plan = one_stage_plan(layout);
  const auto travels = [&](PassKind pass, CommKind kind) {
    const std::vector<ReportedCollective> states = report_layouts(plan)[1].states;
    return std::any_of(states.begin(), states.end(), [&](const ReportedCollective& one) {
      return one.tensor == "parameters" && one.pass == pass && one.kind == kind;
    });
  };
  EXPECT_TRUE(travels(PassKind::InputGrad, CommKind::AllGather));
  plan.execution.reshard_after_forward = false;
  EXPECT_TRUE(travels(PassKind::Forward, CommKind::AllGather));
  EXPECT_FALSE(travels(PassKind::InputGrad, CommKind::AllGather));
  plan.blocks.front().layout.zero_stage = 1;
  plan.execution.overlap_param_gather = false;
  EXPECT_TRUE(travels(PassKind::Forward, CommKind::AllGather));
  plan.execution.broadcasts_parameters = true;
  EXPECT_TRUE(travels(PassKind::Forward, CommKind::Broadcast));
  EXPECT_FALSE(travels(PassKind::Forward, CommKind::AllGather));
}

// ZeRO-3 keeps a shard of what it gathers for a pass; experts are cut over their own ranks already.
TEST(LayoutReport, WeightsAreShardsBetweenPasses) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 512};
  Plan plan = small_plan(spec);
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan layout{.ep = 4, .zero_stage = 3};
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  const auto layout_of = [&](const std::string& name) {
    const std::vector<HeldTensor> tensors = report_layouts(plan)[1].tensors;
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const HeldTensor& one) { return one.name == name; });
    return found == tensors.end() ? "no tensor " + name : found->layout;
  };
  EXPECT_EQ(layout_of("w_q"), "replicated, between passes in 16 shards on ep x dp");
  EXPECT_EQ(layout_of("w_expert_up"), "expert on ep, between passes in 4 shards on dp");
  plan.blocks.front().layout.zero_stage = 2;
  EXPECT_EQ(layout_of("w_q"), "replicated");
}

// BERT's pooler reads one token, which no two context ranks have: its weight is no sum over them.
TEST(LayoutReport, ShardsAreOverTheRanksThatReduceAWeight) {
  BlockPlan layout{.tp = 2, .cp = 2, .zero_stage = 3};
  const std::vector<BlockReport> blocks = report_layouts(one_stage_plan(layout, "bert-base"));
  std::vector<std::string> layouts;
  for (const HeldTensor& one : blocks.back().tensors) {
    if (one.name == "w_pooled" || one.name == "w_transformed") {
      layouts.push_back(one.layout);
    }
  }
  EXPECT_THAT(layouts, testing::ElementsAre(testing::EndsWith("in 4 shards on dp"),
                                            testing::EndsWith("in 8 shards on cp x dp")));
}

// A slice gathers its own tokens: twice as many collectives of half the size, and as many bytes.
TEST(LayoutReport, SlicesAreCountedEach) {
  Plan plan = small_plan();
  plan.blocks.front().layout.tp = 4;
  plan.blocks.front().layout.sequence_parallel = true;
  const BlockReport whole = report_layouts(plan)[1];
  plan.slices = 2;
  const BlockReport sliced = report_layouts(plan)[1];
  ASSERT_FALSE(whole.collectives.empty());
  ASSERT_EQ(sliced.collectives.size(), whole.collectives.size());
  for (std::size_t index = 0; index < whole.collectives.size(); ++index) {
    EXPECT_EQ(sliced.collectives[index].count, 2 * whole.collectives[index].count);
    EXPECT_EQ(sliced.collectives[index].bytes * 2, whole.collectives[index].bytes);
    EXPECT_EQ(sliced.collectives[index].sent, whole.collectives[index].sent);
  }
  EXPECT_EQ(sliced.tensors.front().bytes * 2, whole.tensors.front().bytes);
}

TEST(LayoutReport, SaysWhatLeavesTheDevice) {
  Plan plan = small_plan();
  plan.blocks.front().layout.offload.optimizer = Tier::Host;
  plan.blocks.front().layout.offload.activations = 0.5;
  EXPECT_THAT(report_layouts(plan).front().layout,
              HasSubstr(", optimizer on host, 50 % of activations on host"));
}

// A device holds a shard of embedding and head, one of a tied table, and waits for the collectives
// over the stages that the passes wait for; its two tensor ranks cut the shard once more.
TEST(LayoutReport, EmbeddingAndHeadOverAllStagesAreShards) {
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = true;
  for (const char* schedule : {"vocab-1", "vocab-2", "interlaced"}) {
    const Plan plan = in_pipeline(small_plan(spec, "dgx-a100:1"), schedule,
                                  {.pp = 4, .dp = 1, .tp = 2, .micro_batches = 8});
    const std::vector<BlockReport> blocks = report_layouts(plan);
    EXPECT_THAT(blocks.back().tensors,
                Contains(Field(&HeldTensor::layout, HasSubstr("the token table"))));
    EXPECT_EQ(8 * blocks.front().tensors.front().bytes.value(), 2 * spec.vocab * spec.hidden);
    std::vector<SimTime> waits;
    std::vector<std::string> within;
    BlockCosts costs(plan);
    const auto group = costmodel::make_group(plan.pp, 2, plan.cluster.node.gpus);
    for (const BlockReport* block : {&blocks.front(), &blocks.back()}) {
      EXPECT_THAT(block->layout, HasSubstr("over all 4 stages"));
      for (const ReportedCollective& one : block->collectives) {
        if (one.axes == "tp") {
          EXPECT_EQ(one.ranks, 2);
          within.push_back(fmt::format("{} of {}", to_text(one.kind), one.tensor));
          continue;
        }
        EXPECT_EQ(one.axes, "stages");
        waits.push_back(to_sim_time(costs.collectives().time(one.kind, one.bytes, group)));
      }
    }
    ASSERT_EQ(waits.size(), 5u) << schedule;
    EXPECT_THAT(within, UnorderedElementsAre("all-reduce of token_embedding",
                                             "all-reduce of statistics of the loss",
                                             "all-reduce of gradient of hidden"));
    const ShardTimes input = shared_input_times(plan, 0, costs);
    EXPECT_EQ(waits[0], to_sim_time(input.forward - input.tensor_forward));
    EXPECT_EQ(waits[1], to_sim_time(input.backward - input.tensor_backward));
    OrderCache orders(costs);
    const Bytes boundary = costs.of(plan.network.chain[1], plan.layout_of(1), 1).boundary.bytes();
    const auto latencies = shard_latencies(plan, orders.order_of(plan), boundary, costs);
    for (std::size_t index = 2; index < 5; ++index) {
      EXPECT_THAT(latencies, Contains(waits[index])) << schedule << " " << index;
    }
  }
}

// Gradients that go to parameter servers, or to the device with the other copy of a stage.
TEST(LayoutReport, GradientsGoWhereTheScheduleSendsThem) {
  const auto sent = [](const Plan& plan, const std::string& axes) {
    double bytes = 0;
    for (const BlockReport& block : report_layouts(plan)) {
      for (const ReportedCollective& one : block.states) {
        bytes += one.axes == axes ? one.count * block.count * one.bytes.value() : 0;
      }
    }
    return bytes;
  };
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = false;
  const PipelineShape shape{.pp = 4, .dp = 2, .tp = 1, .micro_batches = 8};
  Plan base = small_plan(spec, "dgx-a100:1");
  base.blocks.front().layout.zero_stage = 0;
  const auto parameters = static_cast<double>(models::num_parameters(base.network));
  const Plan one = in_pipeline(base, "1f1b", shape);
  EXPECT_EQ(sent(one, "dp"), 4 * parameters);
  EXPECT_EQ(sent(one, "copies") + sent(one, "to servers"), 0);
  const Plan two = in_pipeline(base, "chimera", shape);
  EXPECT_EQ(sent(two, "dp"), 4 * parameters);
  EXPECT_EQ(sent(two, "copies"), 4 * parameters);
  const Plan served = in_pipeline(base, "hetpipe", shape);
  EXPECT_EQ(sent(served, "dp"), 0);
  EXPECT_EQ(sent(served, "to servers"), 4 * parameters);
  EXPECT_EQ(sent(served, "from servers"), 2 * parameters);
}

// What a ring or streamed products hide travels all the same.
TEST(LayoutReport, StreamedCollectivesAreListed) {
  for (const bool ring : {true, false}) {
    BlockPlan layout;
    layout.tp = ring ? 1 : 4;
    layout.cp = ring ? 4 : 1;
    layout.context = ContextParallel::Ring;
    layout.sequence_parallel = !ring;
    Plan plan = one_stage_plan(layout);
    const auto sent = [&](bool streams) {
      plan.execution.overlap_context = streams;
      plan.execution.stream_tp = streams;
      Bytes bytes;
      for (const BlockReport& block : report_layouts(plan)) {
        for (const ReportedCollective& one : block.collectives) {
          bytes += one.sent * static_cast<double>(block.count);
        }
      }
      return bytes;
    };
    EXPECT_GT(sent(false).value(), 0);
    EXPECT_EQ(sent(true), sent(false));
  }
}

// A token goes once to each node that has one of its experts; of what crosses half is for the other
// node. Inside a node copies travel each.
TEST(LayoutReport, TokensCrossOnceToANode) {
  models::NetworkSpec spec = small_spec();
  spec.moe.experts = 16;
  spec.moe.top_k = 2;
  spec.moe.ffn_hidden = 512;
  Plan plan = small_plan(spec);
  BlockPlan layout;
  layout.ep = 16;
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  const auto exchanges = [&](bool deduplicated) {
    plan.execution.deduplicated_dispatch = deduplicated;
    std::vector<ReportedCollective> list = report_layouts(plan)[1].collectives;
    std::erase_if(list, [](const ReportedCollective& one) {
      return one.kind != sim::CommKind::AllToAll || one.pass != sim::PassKind::Forward;
    });
    return list;
  };
  const std::vector<ReportedCollective> plain = exchanges(false);
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(plain[0].axes, "ep");
  const std::vector<ReportedCollective> once = exchanges(true);
  const double crossing = (2 * (1 - 8.0 / 16 * 7 / 15)) / 2;  // nodes that two of 16 experts meet
  ASSERT_EQ(once.size(), 2U);
  EXPECT_EQ(once[0].axes, "ep, across nodes");
  EXPECT_EQ(once[0].ranks, 2);
  EXPECT_EQ(once[0].count, plain[0].count);
  EXPECT_DOUBLE_EQ(once[0].bytes.value(), plain[0].bytes.value() * crossing);
  EXPECT_DOUBLE_EQ(once[0].sent.value(), plain[0].bytes.value() * crossing / 2 * once[0].count);
  EXPECT_EQ(once[1].axes, "ep, inside a node");
  EXPECT_EQ(once[1].ranks, 8);
  EXPECT_EQ(once[1].bytes, plain[0].bytes);
}

// Of the largest iteration what an iteration of that size costs: context ranks have all tokens and
// merge their attention, the logits of the sampled tokens are gathered, and there is no loss.
TEST(LayoutReport, ServingSendsWhatAnIterationCosts) {
  for (const int cp : {1, 2}) {
    BlockPlan layout;
    layout.tp = 4;
    layout.cp = cp;
    Plan plan = one_stage_plan(layout);
    Serving serving;
    serving.options.token_budget = 512;
    serving.options.max_requests = 64;
    plan.serving = std::make_shared<const Serving>(serving);
    const costmodel::CollectiveModel collectives(plan.cluster, plan.profile);
    Seconds network;
    for (const BlockReport& block : report_layouts(plan)) {
      EXPECT_TRUE(block.states.empty()) << block.name;
      EXPECT_EQ(block.tokens, block.name == "head" ? 64 : 512) << block.name;
      for (const HeldTensor& held : block.tensors) {
        if (held.kind != HeldKind::Cache) {
          EXPECT_THAT(held.layout, testing::Not(HasSubstr("cp"))) << block.name << held.name;
        }
        EXPECT_NE(held.name, "loss");
      }
      for (const ReportedCollective& one : block.collectives) {
        EXPECT_EQ(one.pass, sim::PassKind::Forward) << block.name;
        const auto group = costmodel::make_group(one.ranks, one.axes == "cp" ? layout.tp : 1,
                                                 plan.cluster.node.gpus);
        network += collectives.time(one.kind, one.bytes, group) *
                   static_cast<double>(one.count * block.count);
      }
    }
    ServingModel model(plan);
    const ServingMemory memory = model.memory().front();
    std::int64_t cached = 0;
    for (const BlockReport& block : report_layouts(plan)) {
      for (const HeldTensor& held : block.tensors) {
        if (held.kind == HeldKind::Cache) {
          EXPECT_EQ(held.layout, cp == 1 ? "kv-head on tp" : "kv-head on tp, tokens on cp");
          cached += held.bytes.value() * block.count;
        }
      }
    }
    EXPECT_LE(cached, memory.cache.value());
    EXPECT_GT(cached + memory.kv_per_token.value(), memory.cache.value());
    Iteration iteration;
    iteration.prompts = {{0, 512}};
    iteration.sampled = 64;
    EXPECT_NEAR(model.cost(0, iteration).of(ServingPart::Network).value() / network.value(), 1,
                1e-12);
  }
}

}  // namespace
}  // namespace orrery::plan
