// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer states under every ZeRO stage, HSDP and ZeRO++: two steps of
// the derived program with an update between them equal two steps on one device. Without one of the
// reductions or gathers that the states need they do not.
#include <gtest/gtest.h>

#include "tests/unit/plan/semantics/interpreter_backward.hpp"
#include "tests/unit/plan/semantics/tiny_networks.hpp"

namespace orrery::plan::semantics {
namespace {

constexpr Sizes kStateSizes = {8, 4};

struct StateCase {
  std::string name;
  BlockPlan layout;
  int dp = 1;
  bool experts = false;
  int kv_heads = 4;
  Conditions conditions{};
};

void PrintTo(const StateCase& c, std::ostream* out) { *out << c.name; }

StateCase zero(const std::string& name, int stage, int dp = 4, int shard_degree = 0) {
  StateCase one{name, {}, dp};
  one.layout.zero_stage = stage;
  one.layout.shard_degree = shard_degree;
  return one;
}

StateCase with_tensor(StateCase one, int tp, TensorMesh mesh = TensorMesh::OneD) {
  one.layout.tp = tp;
  one.layout.tensor_parallel = mesh;
  one.layout.sequence_parallel = mesh == TensorMesh::OneD;
  return one;
}

StateCase with_context(StateCase one, ContextParallel kind, int cp) {
  one.layout.cp = cp;
  one.layout.context = kind;
  return one;
}

StateCase with_experts(StateCase one, int ep) {
  one.layout.ep = ep;
  one.experts = true;
  return one;
}

StateCase over_half_of_tensor(StateCase one, int ep) {
  one = with_experts(with_tensor(std::move(one), 4), ep);
  one.layout.expert_tp = 2;
  return one;
}

// Whole, so that the other half of the tensor-parallel ranks has copies of them.
StateCase copied(StateCase one) {
  one.layout.expert_tp = 1;
  return one;
}

StateCase on_half_of_context(StateCase one) {
  one = with_experts(with_context(std::move(one), ContextParallel::AllGather, 4), 2);
  one.layout.expert_cp = 1;
  return one;
}

StateCase with_execution(StateCase one, int gpus_per_node,
                         const std::function<void(Execution&)>& set) {
  one.conditions.gpus_per_node = gpus_per_node;
  set(one.conditions.execution);
  return one;
}

std::vector<StateCase> state_cases() {
  StateCase repeated = with_tensor(zero("stage_2_repeated_heads", 2, 2), 4);
  repeated.kv_heads = 2;
  const auto whole = [](Execution& execution) { execution.allreduce_gradients = true; };
  const auto two_levels = [](Execution& execution) {
    execution.quantised_reduce = true;
    execution.hierarchical_gather = true;
  };
  return {zero("replicated", 0),
          zero("stage_1", 1),
          with_execution(zero("stage_1_whole_gradients", 1), 1024, whole),
          zero("stage_2", 2),
          zero("stage_3", 3),
          zero("stage_1_of_two", 1, 4, 2),
          zero("hybrid", 3, 4, 2),
          with_tensor(zero("stage_1_tensor", 1, 2), 2),
          with_tensor(zero("stage_3_tensor", 3, 2), 2),
          with_tensor(zero("stage_2_square", 2, 2), 4, TensorMesh::TwoD),
          repeated,
          with_context(zero("stage_2_ring", 2, 2), ContextParallel::Ring, 2),
          with_context(zero("stage_3_ulysses", 3, 2), ContextParallel::Ulysses, 2),
          with_experts(zero("stage_1_experts", 1), 2),
          with_experts(zero("stage_3_experts", 3), 2),
          over_half_of_tensor(zero("stage_2_experts_over_half_of_tensor", 2, 2), 2),
          over_half_of_tensor(zero("stage_3_experts_over_half_of_tensor_and_data", 3, 4), 4),
          copied(over_half_of_tensor(zero("stage_1_experts_on_half_of_tensor", 1, 2), 2)),
          copied(over_half_of_tensor(zero("stage_2_experts_on_half_of_tensor", 2, 2), 2)),
          copied(over_half_of_tensor(zero("stage_3_experts_on_half_of_tensor", 3, 2), 2)),
          copied(over_half_of_tensor(zero("replicated_experts_on_half_of_tensor", 0, 2), 2)),
          on_half_of_context(zero("stage_2_experts_on_half_of_context", 2, 2)),
          on_half_of_context(zero("stage_3_experts_on_half_of_context", 3, 2)),
          with_execution(zero("two_levels", 3), 2, two_levels),
          with_execution(with_tensor(zero("two_levels_tensor", 3, 4), 2), 4, two_levels)};
}

models::Network network_of_case(const StateCase& c) {
  models::NetworkSpec spec = tiny(models::Family::Llama);
  spec.kv_heads = c.kv_heads;
  if (c.experts) {
    spec.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 4, .shared_ffn_hidden = 4};
  }
  return models::build_network(spec, "test");
}

// Two steps on one device, and how far those of others are from them.
class SerialSteps {
 public:
  explicit SerialSteps(const Block& block)
      : first_(block, BlockPlan(), 1, kStateSizes), second_(block, BlockPlan(), 1, kStateSizes) {
    first_.run();
    second_.run();
    second_.update();
    second_.run();
  }
  double distance(Interpreter& program) const {
    program.run();
    const double first = program.distance(first_);
    program.update();
    program.run();
    return Interpreter::larger(first, program.distance(second_));
  }
  double change() const { return first_.distance(second_); }

 private:
  Interpreter first_;
  Interpreter second_;
};

class StateSemantics : public testing::TestWithParam<StateCase> {};

TEST_P(StateSemantics, StepsEqualTheSerialOnes) {
  const StateCase& c = GetParam();
  const models::Network network = network_of_case(c);
  for (const Block& block : network.blocks) {
    const SerialSteps serial(block);
    Interpreter sharded(block, c.layout, c.dp, kStateSizes, {}, c.conditions);
    EXPECT_LT(serial.distance(sharded), 1e-9) << block.name;
    EXPECT_GT(serial.change(), 1e-3) << block.name;  // the update is seen
  }
}

TEST_P(StateSemantics, EveryReductionAndGatherIsNeeded) {
  const StateCase& c = GetParam();
  const models::Network network = network_of_case(c);
  const Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  const SerialSteps serial(block);
  Interpreter sharded(block, c.layout, c.dp, kStateSizes, {}, c.conditions);
  serial.distance(sharded);
  int faults = 0;
  for (int reduction = 0; reduction < sharded.num_reductions(); ++reduction) {
    for (const bool doubled : {false, true}) {
      const Fault fault{reduction, doubled};
      if (!sharded.matters(fault)) {
        continue;
      }
      Interpreter faulty(block, c.layout, c.dp, kStateSizes, fault, c.conditions);
      const double distance = serial.distance(faulty);
      EXPECT_TRUE(distance > 1e-6 || std::isnan(distance))
          << reduction << (doubled ? " doubled" : " dropped");
      ++faults;
    }
  }
  EXPECT_GT(faults, 10);
}

// What is executed weight by weight is what is timed, where weights of a block are one buffer.
TEST_P(StateSemantics, MovesTheBytesOfTheGroups) {
  const StateCase& c = GetParam();
  const BlockRules rules = rules_of(c.layout, true);
  const Mesh mesh = mesh_of(c.layout, c.dp);
  using Kind = std::tuple<sim::CommKind, std::vector<Axis>, StateCollective::Use,
                          StateCollective::Span, int>;
  const auto bytes_of = [&](std::vector<StateGroup> groups, std::map<Kind, double>& bytes) {
    BlockCost cost;
    cost.states = std::move(groups);
    for (const StateCollective& one :
         state_collectives(cost, c.layout, mesh, c.conditions.execution, DType::Fp16, false,
                           c.conditions.gpus_per_node)) {
      bytes[{one.kind, one.axes, one.use, one.span, one.neighbours}] += one.bytes;
    }
  };
  const models::Network network = network_of_case(c);
  for (const Block& block : network.blocks) {
    std::map<Kind, double> together;
    std::map<Kind, double> apart;
    bytes_of(state_groups(block, rules, mesh, DType::Fp16), together);
    for (const Operator& op : block.operators) {
      for (const int weight : op.weights) {
        bytes_of({states_of(block, op, weight, rules, mesh, DType::Fp16)}, apart);
      }
    }
    EXPECT_EQ(together, apart) << block.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StateSemantics, testing::ValuesIn(state_cases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace orrery::plan::semantics
