// SPDX-License-Identifier: Apache-2.0
// What goes from a block to the next one is the output of the former, in either layout: at the
// boundaries of encoders, decoders and modalities, where the next block's own stream is another
// tensor. Reports and times are of the same bytes.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/block/relayout.hpp"
#include "plan/simulation/layout_report.hpp"
#include "plan/stage/stage.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

int first_behind(const models::Network& network, bool of_encoder) {
  for (std::size_t position = 1; position < network.chain.size(); ++position) {
    const auto& before = network.blocks[static_cast<std::size_t>(network.chain[position - 1])];
    const auto& here = network.blocks[static_cast<std::size_t>(network.chain[position])];
    const bool modality = before.tokens > 0 && here.tokens == 0;
    const bool decoder = before.memory < 0 && here.memory >= 0;
    if (of_encoder ? modality : decoder) {
      return static_cast<int>(position);
    }
  }
  return 0;
}

// What is before the first block behind an encoder, or of a decoder, in one layout, the others in
// the other.
Plan in_layouts(const std::string& network, bool of_encoder, const BlockPlan& before,
                const BlockPlan& behind) {
  Plan plan = one_stage_plan(before, network);
  plan.sequence = plan.network.spec.sequence;
  const int position = first_behind(plan.network, of_encoder);
  const auto length = static_cast<int>(plan.network.chain.size());
  plan.blocks = {{position, before}, {length - position, behind}};
  return plan;
}

// A pair of tensor ranks that cuts tokens goes over into one that does not: forward a gather of
// what the encoder made, backward a slice.
TEST(Crossings, TheOutputOfTheBlockBeforeIsReportedAndTimed) {
  const auto [tokens, pair] = token_layouts(2);
  for (const auto& [name, of_encoder] :
       {std::pair("t5-large", false), std::pair("llava-1.5-7b", true),
        std::pair("vit-5b-llama3-8b", true)}) {
    const Plan plan = in_layouts(name, of_encoder, tokens, pair);
    const int position = plan.blocks.front().count;
    ASSERT_GT(position, 0) << name;
    const auto block_at = [&](int at) -> const models::Block& {
      return plan.network
          .blocks[static_cast<std::size_t>(plan.network.chain[static_cast<std::size_t>(at)])];
    };
    const models::Block& before = block_at(position - 1);
    const models::Tensor& output = before.tensors[static_cast<std::size_t>(before.output)];
    const double whole =
        2 * models::num_elements(output, {plan.micro_batch * before.items,
                                          before.tokens > 0 ? before.tokens : plan.sequence});
    std::vector<ReportedCollective> found;
    for (const BlockReport& block : report_layouts(plan)) {
      found.insert(found.end(), block.conversion.begin(), block.conversion.end());
    }
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_EQ(found.front().pass, sim::PassKind::Forward);
    EXPECT_EQ(found.front().tensor, output.name);
    EXPECT_EQ(found.front().bytes.value(), whole) << name;
    BlockCosts costs(plan);
    const StageCost stage = simulate_stage(stage_contents(plan).front(), plan, costs);
    const auto group = costmodel::make_group(2, 1, plan.cluster.node.gpus);
    EXPECT_EQ(stage.relayout_forward,
              costs.collectives().time(sim::CommKind::AllGather, found.front().bytes, group))
        << name;
    EXPECT_EQ(stage.relayout_backward, Seconds()) << name;
  }
}

// The gradient of a stream that the block before cut otherwise is gathered; of features that a
// frozen encoder made there is none.
TEST(Crossings, FrozenFeaturesHaveNoGradientToConvert) {
  const auto [tokens, pair] = token_layouts(2);
  for (const auto& [name, trained] :
       {std::pair("llava-1.5-7b", false), std::pair("vit-5b-llama3-8b", true)}) {
    const Plan plan = in_layouts(name, true, pair, tokens);
    ASSERT_GT(plan.blocks.front().count, 0) << name;
    std::size_t converted = 0;
    for (const BlockReport& block : report_layouts(plan)) {
      converted += block.conversion.size();
    }
    EXPECT_EQ(converted, trained ? 1U : 0U) << name;
    BlockCosts costs(plan);
    const StageCost stage = simulate_stage(stage_contents(plan).front(), plan, costs);
    EXPECT_EQ(stage.relayout_backward > Seconds(), trained) << name;
  }
}

// The head hands nothing on, so what it takes is not measured by its own output.
TEST(Crossings, TheHeadGathersWhatTheLastLayerMade) {
  const auto [tokens, pair] = token_layouts(2);
  Plan plan = one_stage_plan(tokens);
  const auto length = static_cast<int>(plan.network.chain.size());
  plan.blocks = {{length - 1, tokens}, {1, pair}};
  BlockCosts costs(plan);
  const StageCost stage = simulate_stage(stage_contents(plan).front(), plan, costs);
  const auto group = costmodel::make_group(2, 1, plan.cluster.node.gpus);
  EXPECT_EQ(stage.relayout_forward,
            costs.collectives().time(sim::CommKind::AllGather, Bytes(2048.0 * 1024 * 2), group));
}

}  // namespace
}  // namespace orrery::plan
