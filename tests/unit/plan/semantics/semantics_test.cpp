// SPDX-License-Identifier: Apache-2.0
// Every sharding strategy computes what one device computes: the derived program of a layer, an
// embedding and a head runs on tiny tensors, forward and backward, on all ranks of a mesh, and its
// outputs and gradients equal the serial ones. Left out
// or made twice, any one of its reductions is noticed; and the bytes it moves are those of the
// steps that are costed.
#include <gtest/gtest.h>

#include "tests/unit/plan/semantics/tiny_layouts.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan::semantics {
namespace {

struct Case {
  std::string name;
  BlockPlan layout;
  int dp = 1;
  bool experts = false;
  bool adapters = false;
  bool shared_adapters = false;  // by the experts
};

std::vector<Case> cases() {
  const auto hsdp = layout_of([](BlockPlan& layout) {
    layout.zero_stage = 3;
    layout.shard_degree = 2;
  });
  return {
      {"data", {}, 4},
      {"hybrid_sharded", hsdp, 4},
      {"tensor_1d", tensor(4, false)},
      {"tensor_1d_sequence", tensor(4, true)},
      {"tensor_and_data", tensor(2, true), 2},
      {"tensor_2d", tensor_mesh(TensorMesh::TwoD, 4)},
      {"tensor_2d_data", tensor_mesh(TensorMesh::TwoD, 4), 2},
      {"tensor_2_5d", tensor_mesh(TensorMesh::TwoAndHalfD, 8, 2)},
      {"tensor_3d_keep", tensor_mesh(TensorMesh::ThreeD, 8, 0, true)},
      {"tensor_3d_regather", tensor_mesh(TensorMesh::ThreeD, 8)},
      {"tensor_3d_data", tensor_mesh(TensorMesh::ThreeD, 8), 2},
      {"tensor_2d_inner_rows", with_inner(TensorAxis::Rows, tensor_mesh(TensorMesh::TwoD, 4))},
      {"tensor_2_5d_inner_depth",
       with_inner(TensorAxis::Depth, tensor_mesh(TensorMesh::TwoAndHalfD, 8, 2))},
      {"tensor_3d_inner_rows", with_inner(TensorAxis::Rows, tensor_mesh(TensorMesh::ThreeD, 8))},
      {"ring", context(ContextParallel::Ring, 4)},
      {"context_all_gather_tensor", context(ContextParallel::AllGather, 2, 2)},
      {"context_all_gather_kept", layout_of([](BlockPlan& layout) {
         layout = context(ContextParallel::AllGather, 2, 2);
         layout.sequence_parallel = true;
         layout.keep_gathered = true;
       })},
      {"keys_in_parts", variables(1, {}, 4, {Var::KeySeq})},
      {"keys_in_parts_tensor_tokens",
       variables(2, {Var::Head, Var::Ffn, Var::Vocab}, 2, {Var::KeySeq, Var::Seq})},
      {"ulysses", context(ContextParallel::Ulysses, 4)},
      {"ulysses_tensor", context(ContextParallel::Ulysses, 2, 2)},
      {"mix", context(ContextParallel::Mix, 4, 1, 2)},
      {"experts", expert(4, 1, 0), 4, true},
      {"experts_tensor", expert(2, 2, 0), 2, true},
      {"experts_tensor_sequence", expert(2, 2, 0, true), 2, true},
      {"experts_over_tensor", expert(2, 2, 1, true), 2, true},
      {"experts_over_both", expert(4, 2, 1, true), 2, true},
      {"experts_over_half_of_tensor", expert(2, 4, 2, true), 1, true},
      {"experts_over_half_of_tensor_and_data", expert(4, 4, 2, true), 2, true},
      {"experts_over_half_of_tensor_whole_tokens", expert(2, 4, 2), 2, true},
      {"experts_over_half_of_tensor_and_context", layout_of([](BlockPlan& layout) {
         layout = folded(4, 2, ContextParallel::AllGather, 4);
         layout.expert_tp = 2;
         layout.sequence_parallel = false;
       }),
       1, true},
      {"experts_over_half_of_tensor_inside_tensor",
       with_experts_inside(ExpertsInside::Tensor, expert(4, 4, 2, true)), 2, true},
      {"experts_over_context", folded(2, 2, ContextParallel::AllGather), 1, true},
      {"experts_over_context_and_data", folded(4, 2, ContextParallel::AllGather), 4, true},
      {"experts_over_ring", folded(4, 4, ContextParallel::Ring), 1, true},
      {"experts_over_ulysses", folded(2, 2, ContextParallel::Ulysses), 2, true},
      {"experts_over_mix", folded(4, 4, ContextParallel::Mix, 1, 2), 1, true},
      {"experts_over_tensor_and_context", folded(4, 2, ContextParallel::AllGather, 2), 1, true},
      {"experts_on_half_of_tensor", copied_experts(2, 4, 1, 1, true), 1, true},
      {"experts_on_half_of_tensor_whole_tokens", copied_experts(2, 4, 1, 1, false), 2, true},
      {"experts_of_two_copied_on_tensor", copied_experts(1, 4, 2, 1, true), 2, true},
      {"experts_copied_on_all_of_tensor", copied_experts(1, 2, 1, 1, true), 2, true},
      {"experts_on_half_of_tensor_beside_context", copied_experts(2, 4, 1, 2, false), 1, true},
      {"experts_on_half_of_a_gather", copied_experts(2, 1, 0, 4, false), 2, true},
      {"experts_on_half_of_a_ring", copied_experts(2, 1, 0, 4, false, ContextParallel::Ring), 1,
       true},
      {"experts_on_half_of_ulysses", copied_experts(2, 1, 0, 4, false, ContextParallel::Ulysses), 1,
       true},
      {"experts_on_the_heads_of_a_mix", copied_experts(2, 1, 0, 4, false, ContextParallel::Mix, 2),
       1, true},
      {"experts_on_tensor_and_half_of_context", copied_experts(4, 2, 1, 4, false), 1, true},
      {"adapters_experts_on_half_of_tensor", copied_experts(2, 4, 1, 1, true), 1, true, true},
      {"adapters_experts_on_half_of_context", copied_experts(2, 1, 0, 4, false), 1, true, true},
      {"experts_inside_tensor", with_experts_inside(ExpertsInside::Tensor, expert(2, 2, 0, true)),
       2, true},
      {"experts_over_both_inside_tensor",
       with_experts_inside(ExpertsInside::Tensor, expert(4, 2, 1, true)), 2, true},
      {"experts_over_context_inside_context",
       with_experts_inside(ExpertsInside::Context, folded(4, 2, ContextParallel::AllGather)), 4,
       true},
      {"experts_over_ulysses_inside_context",
       with_experts_inside(ExpertsInside::Context, folded(4, 2, ContextParallel::Ulysses)), 2,
       true},
      {"tofu_output_then_reduction",
       variables(2, {Var::Ffn, Var::Head, Var::Batch}, 2, {Var::Hidden, Var::Seq})},
      {"tofu_reduction_then_batch", variables(2, {Var::Hidden, Var::Vocab}, 2, {Var::Batch})},
      {"tofu_two_axes_one_variable", variables(2, {Var::Batch}, 2, {Var::Batch, Var::Seq})},
      {"adapters_data", {}, 4, false, true},
      {"adapters_tensor", tensor(2, false), 2, false, true},
      {"adapters_tensor_sequence", tensor(4, true), 1, false, true},
      {"adapters_ring", context(ContextParallel::Ring, 4), 1, false, true},
      {"adapters_mix", context(ContextParallel::Mix, 4, 1, 2), 1, false, true},
      {"adapters_tensor_2d", tensor_mesh(TensorMesh::TwoD, 4), 1, false, true},
      {"adapters_tensor_2_5d", tensor_mesh(TensorMesh::TwoAndHalfD, 8, 2), 1, false, true},
      {"adapters_tensor_3d", tensor_mesh(TensorMesh::ThreeD, 8), 1, false, true},
      {"adapters_folded", folded(4, 2, ContextParallel::AllGather, 2), 1, true, true},
      {"adapters_ulysses_tensor", context(ContextParallel::Ulysses, 2, 2), 1, false, true},
      {"adapters_tensor_sequence_kept", layout_of([](BlockPlan& layout) {
         layout = tensor(4, true);
         layout.keep_gathered = true;
       }),
       1, false, true},
      {"adapters_whole_on_their_tokens",
       variables(4, {Var::Head, Var::Ffn, Var::Seq}, 1, {Var::Seq}), 1, false, true},
      {"adapters_cut_by_rank",
       variables(2, {Var::Ffn, Var::Head, Var::Rank}, 2, {Var::Hidden, Var::Seq}), 1, false, true},
      {"adapters_tokens_then_hidden", variables(2, {Var::Seq}, 2, {Var::Hidden, Var::Seq}), 1,
       false, true},
      {"tokens_then_hidden", variables(2, {Var::Seq}, 2, {Var::Hidden, Var::Seq})},
      {"adapters_experts_tensor_sequence", expert(2, 2, 0, true), 2, true, true},
      {"adapters_experts_over_tensor", expert(2, 2, 1, true), 2, true, true},
      {"shared_adapters_experts", expert(4, 1, 0), 4, true, true, true},
      {"shared_adapters_experts_tensor_sequence", expert(2, 2, 0, true), 2, true, true, true},
      {"shared_adapters_experts_over_tensor", expert(2, 2, 1, true), 2, true, true, true},
      {"shared_adapters_folded", folded(4, 2, ContextParallel::AllGather, 2), 1, true, true, true},
  };
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<models::Network> networks_of(const Case& c) {
  if (c.adapters) {
    return {adapted(tiny_llama(c.experts).spec, c.shared_adapters)};
  }
  if (c.experts) {
    return {tiny_llama(true)};
  }
  return {tiny_gpt(), tiny_llama(false)};
}

class Semantics : public testing::TestWithParam<Case> {};

TEST_P(Semantics, EqualsTheSerialResult) {
  const Case& c = GetParam();
  for (const models::Network& network : networks_of(c)) {
    for (const Block& block : network.blocks) {
      const Interpreter serial = serial_run(block);
      Interpreter sharded(block, c.layout, c.dp, {8, 4});
      sharded.run();
      EXPECT_GT(sharded.mesh().num_ranks(), 1);
      EXPECT_LT(sharded.distance(serial), kTolerance) << network.spec.name << " " << block.name;
    }
  }
}

TEST_P(Semantics, NoticesEveryMissingOrDoubledReduction) {
  const Case& c = GetParam();
  const models::Network network = networks_of(c).front();
  for (const Block& block : network.blocks) {
    const Interpreter serial = serial_run(block);
    Interpreter sharded(block, c.layout, c.dp, {8, 4});
    sharded.run();
    for (int reduction = 0; reduction < sharded.num_reductions(); ++reduction) {
      for (const bool doubled : {false, true}) {
        if (!sharded.matters({reduction, doubled})) {
          continue;
        }
        Interpreter faulty(block, c.layout, c.dp, {8, 4}, {reduction, doubled});
        faulty.run();
        const double distance = faulty.distance(serial);
        EXPECT_TRUE(distance > 1e-6 || std::isnan(distance))
            << block.name << " reduction " << reduction << (doubled ? " doubled" : " dropped");
      }
    }
  }
}

// The steps that are costed move the same bytes by the same kinds of collectives over the same
// axes.
TEST_P(Semantics, MovesTheBytesThatAreCosted) {
  const Case& c = GetParam();
  if (c.layout.cp > 1 && c.layout.context != ContextParallel::AllGather &&
      c.layout.context != ContextParallel::Ulysses) {
    GTEST_SKIP() << "a ring hides its pieces";
  }
  for (const models::Network& network : networks_of(c)) {
    Layer layer(network, c.layout, c.dp, 8 / c.dp, 4);
    layer.execution().fp32_gradients = false;
    Interpreter sharded(layer.block(), c.layout, c.dp, {8, 4});
    sharded.run();
    Traffic costed;
    const BlockSteps steps = layer.steps();
    for (const bool forward : {true, false}) {
      for (const Step& step : forward ? steps.forward : steps.backward) {
        std::vector<Axis> axes;
        for (const Axis axis : kAxes) {
          if ((step.axes >> static_cast<unsigned>(axis) & 1U) != 0) {
            axes.push_back(axis);
          }
        }
        if (step.collective) {
          costed[{forward, step.comm, axes}] += static_cast<std::int64_t>(step.bytes.value());
        }
      }
    }
    EXPECT_EQ(sharded.traffic(), costed);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Semantics, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// The serial program itself: gradients are those of the objective.
TEST(SerialProgram, GradientsAreDerivatives) {
  for (const models::Network& network :
       {tiny_gpt(), tiny_llama(true), adapted(tiny()), adapted(tiny_llama(true).spec),
        adapted(tiny_llama(true).spec, true)}) {
    for (const Block& block : network.blocks) {
      const Interpreter serial = serial_run(block);
      for (const Operator& op : block.operators) {
        for (const int weight : op.weights) {
          if (block.tensors[static_cast<std::size_t>(weight)].frozen) {
            continue;
          }
          constexpr double kStep = 1e-5;
          const auto objective = [&](double by) {
            Interpreter nudged(block, BlockPlan(), 1, {8, 4});
            nudged.nudge(weight, 1, by);
            nudged.forward();
            return nudged.objective();
          };
          const double slope = (objective(kStep) - objective(-kStep)) / (2 * kStep);
          EXPECT_NEAR(serial.weight_gradient(weight, 1), slope, 1e-5 * (1 + std::abs(slope)))
              << block.name << " " << op.name;
        }
      }
    }
  }
}

// Whole keys on every rank would give the same numbers, each rank's sums as large.
TEST(Semantics, RanksHoldPartsOfTheKeys) {
  const models::Network network = tiny_gpt();
  const Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  const BlockRules rules = rules_of(variables(1, {}, 4, {Var::KeySeq}), true);
  for (const Operator& op : block.operators) {
    if (op.kind == OpKind::Attention) {
      const Assignment assigned = assign(block, op, rules.of(op));
      const auto& keys = block.tensors[static_cast<std::size_t>(op.inputs[1])];
      const auto& context = block.tensors[static_cast<std::size_t>(op.outputs[0])];
      EXPECT_EQ(required_input(op, keys, 1, assigned)[Axis::Context], Placement::sharded(Var::Seq));
      EXPECT_TRUE(produced_output(op, context, assigned)[Axis::Context].is_partial());
    }
  }
}

}  // namespace
}  // namespace orrery::plan::semantics
