// SPDX-License-Identifier: Apache-2.0
// The derived program of other kinds of layers on tiny tensors: latent attention, heads that share
// keys and values, encoders with decoders that attend to them, attention beside the MLP, norms of
// queries and keys.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/block/cut_order.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/semantics/interpreter_backward.hpp"
#include "tests/unit/plan/semantics/tiny_networks.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan::semantics {
namespace {

struct KindOfLayer {
  std::string name;
  models::NetworkSpec spec;
};

std::vector<KindOfLayer> kinds() {
  models::NetworkSpec latent = tiny(models::Family::Llama);
  latent.mla = {.q_lora_rank = 4,
                .kv_lora_rank = 4,
                .qk_nope_head_dim = 2,
                .qk_rope_head_dim = 2,
                .v_head_dim = 2};
  models::NetworkSpec grouped = tiny(models::Family::Llama);
  grouped.kv_heads = 2;
  models::NetworkSpec one_key = tiny(models::Family::Llama);
  one_key.kv_heads = 1;
  one_key.attention_bias = true;
  models::NetworkSpec normed = tiny(models::Family::Llama);
  normed.qk_norm = true;
  normed.sandwich_norm = true;
  models::NetworkSpec beside = tiny(models::Family::Gpt);
  beside.parallel_block = true;
  models::NetworkSpec latent_experts = latent;
  latent_experts.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 4, .shared_ffn_hidden = 4};
  models::NetworkSpec cross = tiny(models::Family::T5);
  cross.encoder_layers = 2;
  models::NetworkSpec relative = cross;
  relative.position = models::PositionKind::RelativeBias;
  relative.attention_bias = relative.attention_output_bias = relative.mlp_bias = false;
  models::NetworkSpec adapted = grouped;
  adapted.adapters = {.rank = 4};
  return {{"latent", latent},   {"latent_experts", latent_experts},
          {"grouped", grouped}, {"one_key", one_key},
          {"normed", normed},   {"beside", beside},
          {"cross", cross},     {"relative", relative},
          {"adapted", adapted}};
}

struct Arrangement {
  std::string name;
  BlockPlan layout;
  int dp = 1;
};

std::vector<Arrangement> arrangements() {
  const auto with = [](const std::function<void(BlockPlan&)>& set) {
    BlockPlan layout;
    set(layout);
    return layout;
  };
  const auto mesh = [&](TensorMesh kind, int tp, int cp, ContextParallel context) {
    return with([&](BlockPlan& layout) {
      layout.tensor_parallel = kind;
      layout.tp = tp;
      layout.cp = cp;
      layout.context = context;
    });
  };
  const auto line = [&](int tp, bool sequence, int cp, ContextParallel context) {
    BlockPlan layout = mesh(TensorMesh::OneD, tp, cp, context);
    layout.sequence_parallel = sequence;
    return layout;
  };
  using enum ContextParallel;
  return {
      {"data", {}, 4},
      {"tensor_sequence", line(2, true, 1, Ring), 2},
      {"tensor_4", line(4, true, 1, Ring)},
      {"half_of_tensor", with([&](BlockPlan& layout) {
         layout = line(4, true, 1, Ring);
         layout.ep = 2;
         layout.expert_tp = 2;
       })},
      {"ring", line(1, false, 4, Ring)},
      {"gather", line(2, true, 2, AllGather)},
      {"ulysses_tensor", line(2, true, 2, Ulysses)},
      {"two", mesh(TensorMesh::TwoD, 4, 1, Ring)},
      {"two_gather", mesh(TensorMesh::TwoD, 4, 2, AllGather), 2},
      {"two_and_half", mesh(TensorMesh::TwoAndHalfD, 8, 1, Ring)},
      {"three", mesh(TensorMesh::ThreeD, 8, 1, Ring)},
      {"three_ring", mesh(TensorMesh::ThreeD, 8, 2, Ring)},
  };
}

using KindAndArrangement = std::tuple<KindOfLayer, Arrangement>;
void PrintTo(const KindOfLayer& kind, std::ostream* out) { *out << kind.name; }
void PrintTo(const Arrangement& arrangement, std::ostream* out) { *out << arrangement.name; }

class LayerSemantics : public testing::TestWithParam<KindAndArrangement> {};

TEST_P(LayerSemantics, EqualsTheSerialResult) {
  const auto& [kind, arrangement] = GetParam();
  const BlockPlan& layout = arrangement.layout;
  const models::Network network = models::build_network(kind.spec, "test");
  const Mesh mesh = mesh_of(layout, arrangement.dp);
  for (const Block& block : network.blocks) {
    EXPECT_FALSE(find_cut_conflict(block, rules_of(layout, true), mesh)) << block.name;
    Interpreter serial(block, BlockPlan(), 1, {8, 4});
    serial.run();
    Interpreter sharded(block, layout, arrangement.dp, {8, 4});
    EXPECT_GT(sharded.mesh().num_ranks(), 1);
    sharded.run();
    EXPECT_LT(sharded.distance(serial), 1e-9) << block.name;
  }
}

// Of heads that several ranks hold, and of tables of positions: none of their reductions may miss.
TEST(LayerReductions, AreAllNeeded) {
  for (const KindOfLayer& kind : kinds()) {
    const models::Network network = models::build_network(kind.spec, "test");
    const bool new_ones = kind.name == "one_key" || kind.name == "relative";
    for (const Arrangement& arrangement : new_ones ? arrangements() : std::vector<Arrangement>()) {
      for (const Block& block : network.blocks) {
        Interpreter serial(block, BlockPlan(), 1, {8, 4});
        serial.run();
        Interpreter sharded(block, arrangement.layout, arrangement.dp, {8, 4});
        sharded.run();
        for (int reduction = 0; reduction < sharded.num_reductions(); ++reduction) {
          const Fault fault{reduction, false};
          Interpreter faulty(block, arrangement.layout, arrangement.dp, {8, 4}, fault);
          faulty.run();
          const double distance = faulty.distance(serial);
          EXPECT_TRUE(!sharded.matters(fault) || distance > 1e-6 || std::isnan(distance))
              << kind.name << " " << arrangement.name << " " << block.name << " " << reduction;
        }
      }
    }
  }
}

BlockPlan experts_layout(int tp, int ep, int expert_tp) {
  BlockPlan layout;
  layout.tp = tp;
  layout.ep = ep;
  layout.expert_tp = expert_tp;
  return layout;
}

Conditions passing_sums() {
  Conditions conditions;
  conditions.passes_sums = true;
  return conditions;
}

// Of every kind of layer, and of what stands before and behind layers.
TEST(PassedSums, AreMadeWholeForWhatIsNotASum) {
  for (const KindOfLayer& kind : kinds()) {
    const models::Network network = models::build_network(kind.spec, "test");
    for (const BlockPlan& layout : {experts_layout(4, 1, 0), experts_layout(4, 2, 2)}) {
      for (const Block& block : network.blocks) {
        Interpreter serial(block, BlockPlan(), 1, {8, 4});
        serial.forward();
        Interpreter program(block, layout, 1, {8, 4}, {}, passing_sums());
        program.forward();
        EXPECT_LT(program.distance_of_values(serial), 1e-9) << kind.name << " " << block.name;
      }
    }
  }
}

// Where no gradient is asked for, additions and combinations pass sums on: what comes out is the
// same, and every reduction that is left is needed once.
TEST(PassedSums, EqualTheSerialResultAndNeedEverySum) {
  models::NetworkSpec experts = tiny(models::Family::Llama);
  experts.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 4, .shared_ffn_hidden = 4};
  models::NetworkSpec adapted = tiny(models::Family::Llama);
  adapted.adapters = {.rank = 4};
  const struct {
    models::NetworkSpec spec;
    BlockPlan layout;
    int dp;
    int reductions;  // of a layer, by axis; of adapters those along the rank, too
  } cases[] = {{experts, experts_layout(4, 1, 0), 1, 2},
               {experts, experts_layout(4, 4, 1), 1, 2},
               {experts, experts_layout(4, 2, 2), 1, 4},
               {experts, experts_layout(2, 4, 1), 4, 2},
               {adapted, experts_layout(4, 1, 0), 1, 4}};
  for (const auto& one : cases) {
    const models::Network network = models::build_network(one.spec, "test");
    const Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
    Interpreter serial(block, BlockPlan(), 1, {8, 4});
    serial.forward();
    const auto run = [&](const Fault& fault) {
      Interpreter program(block, one.layout, one.dp, {8, 4}, fault, passing_sums());
      program.forward();
      return program;
    };
    const Interpreter whole = run({});
    EXPECT_LT(whole.distance_of_values(serial), 1e-9);
    EXPECT_EQ(whole.num_reductions(), one.reductions) << one.layout.tp << " " << one.layout.ep;
    for (int reduction = 0; reduction < whole.num_reductions(); ++reduction) {
      for (const bool doubled : {false, true}) {
        EXPECT_GT(run({reduction, doubled}).distance_of_values(serial), 1e-6) << reduction;
      }
    }
  }
}

// Of the serial program, what a distance adds to the scores.
TEST(RelativePositions, GradientsAreDerivatives) {
  const models::Network network = models::build_network(kinds()[7].spec, "test");
  int tables = 0;
  for (const Block& block : network.blocks) {
    for (std::size_t index = 0; index < block.tensors.size(); ++index) {
      if (block.tensors[index].name != "w_relative_bias") {
        continue;
      }
      const int table = static_cast<int>(index);
      Interpreter serial(block, BlockPlan(), 1, {8, 4});
      serial.run();
      const auto objective = [&](double by) {
        Interpreter nudged(block, BlockPlan(), 1, {8, 4});
        nudged.nudge(table, 1, by);
        nudged.forward();
        return nudged.objective();
      };
      const double slope = (objective(1e-5) - objective(-1e-5)) / 2e-5;
      EXPECT_NE(slope, 0);
      EXPECT_NEAR(serial.weight_gradient(table, 1), slope, 1e-5 * (1 + std::abs(slope)));
      ++tables;
    }
  }
  EXPECT_EQ(tables, 2);
}

// What a plan is told whose ranks would work on each other's tokens.
TEST(AdaptersOfExperts, AreRefusedOverHalfOfTensor) {
  Plan plan;
  models::NetworkSpec spec = tiny(models::Family::Llama);
  spec.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 4};
  spec.adapters = {.rank = 4};
  plan.network = models::build_network(spec, "test");
  plan.cluster = topologies::load_cluster("dgx-a100:1");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.sequence = 4;
  plan.batch = plan.micro_batch = 8;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan layout;
  layout.tp = 4;
  layout.sequence_parallel = true;
  layout.ep = 4;
  plan.dp = 4;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  EXPECT_NO_THROW(check_layouts(plan, "plan"));
  plan.blocks.front().layout.expert_tp = 2;
  try {
    check_layouts(plan, "plan");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("the axes that experts make of tp and cp cut dimension seq"),
        std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayerSemantics,
                         testing::Combine(testing::ValuesIn(kinds()),
                                          testing::ValuesIn(arrangements())),
                         [](const auto& instance) {
                           return std::get<0>(instance.param).name + "_" +
                                  std::get<1>(instance.param).name;
                         });

}  // namespace
}  // namespace orrery::plan::semantics
