// SPDX-License-Identifier: Apache-2.0
// Chains of blocks on tiny tensors: neighbours with different layouts (Galvatron's strategy switch,
// folded experts, other meshes at the ends) and pipelines of stages and micro-batches give the loss
// and the gradients of one device. A conversion left out, or a micro-batch's gradients added twice
// or never, is noticed.
#include <gtest/gtest.h>

#include "tests/unit/plan/semantics/chain.hpp"
#include "tests/unit/plan/semantics/tiny_networks.hpp"

namespace orrery::plan::semantics {
namespace {

models::Network chain_of_four(bool experts = false) {
  models::NetworkSpec spec = tiny(models::Family::Llama);
  spec.layers = 4;
  if (experts) {
    spec.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 4, .shared_ffn_hidden = 4};
  }
  return models::build_network(spec, "test");
}

sim::PipelineOrder order_of(const std::string& schedule, int stages, int micro_batches,
                            int chunks = 1) {
  sim::ScheduleParams params;
  params.stages = stages;
  params.micro_batches = micro_batches;
  params.chunks = chunks;
  const sim::Schedule& found = sim::find_schedule(schedule, "test");
  EXPECT_EQ(to_text(found.check(params)), "");
  return found.order(params);
}

// All samples at once on one device.
ChainProgram serial_chain(const models::Network& network, int samples) {
  ChainProgram serial(network, std::vector<BlockPlan>(network.chain.size()), 1, {samples, 4}, 1);
  EXPECT_TRUE(serial.run(order_of("gpipe", 1, 1), {static_cast<int>(network.chain.size())}));
  return serial;
}

BlockPlan line(int tp, bool sequence_parallel, int cp = 1,
               ContextParallel kind = ContextParallel::Ring) {
  BlockPlan layout;
  layout.tp = tp;
  layout.sequence_parallel = sequence_parallel;
  layout.cp = cp;
  layout.context = kind;
  return layout;
}

BlockPlan mesh(TensorMesh kind, int tp) {
  BlockPlan layout = line(tp, false);
  layout.tensor_parallel = kind;
  return layout;
}

BlockPlan folded_experts(int ep, int tp, int expert_tp = 1) {
  BlockPlan layout = line(tp, tp > 1);
  layout.ep = ep;
  layout.expert_tp = expert_tp;
  return layout;
}

// Of the context ranks.
BlockPlan experts_on_half(int cp) {
  BlockPlan layout = line(1, false, cp, ContextParallel::AllGather);
  layout.ep = cp / 2;
  layout.expert_cp = 1;
  return layout;
}

struct Switch {
  std::string name;
  std::vector<BlockPlan> layouts;  // the layers' in turn; the first also of the ends
  int ranks = 8;
  bool experts = false;
};

void PrintTo(const Switch& c, std::ostream* out) { *out << c.name; }

std::vector<Switch> switches() {
  using enum ContextParallel;
  return {{"data_and_tensor", {{}, line(4, false)}},
          {"tensor_of_two_degrees", {line(4, true), line(2, true)}},
          {"sequence_and_whole", {line(2, true), line(2, false)}},
          {"context_and_tensor", {line(1, false, 4, Ulysses), line(2, true)}},
          {"context_and_data", {line(2, true, 2, Ring), {}, line(1, false, 4, AllGather)}},
          {"square_and_line", {mesh(TensorMesh::TwoD, 4), line(4, true)}},
          {"cube_and_square", {mesh(TensorMesh::ThreeD, 8), mesh(TensorMesh::TwoD, 4), {}}},
          {"cube_and_slices", {mesh(TensorMesh::ThreeD, 8), mesh(TensorMesh::TwoAndHalfD, 8)}},
          {"half_folded_experts", {folded_experts(4, 4, 2), line(2, true)}, 8, true},
          {"experts_on_half_of_tensor", {folded_experts(2, 4), line(2, true)}, 8, true},
          {"experts_on_half_of_context", {experts_on_half(4), line(2, true)}, 4, true},
          {"folded_experts", {folded_experts(4, 2), line(4, true)}, 4, true}};
}

std::vector<BlockPlan> in_turn(const Switch& c, const models::Network& network) {
  std::vector<BlockPlan> layouts = {c.layouts.front()};
  for (std::size_t layer = 0; layer + 2 < network.chain.size(); ++layer) {
    layouts.push_back(c.layouts[(layer + 1) % c.layouts.size()]);
  }
  layouts.push_back(c.layouts.front());
  return layouts;
}

class LayoutSwitch : public testing::TestWithParam<Switch> {};

TEST_P(LayoutSwitch, EqualsTheSerialResultAndNeedsEveryConversion) {
  const Switch& c = GetParam();
  const models::Network network = chain_of_four(c.experts);
  const ChainProgram serial = serial_chain(network, 8);
  const std::vector<BlockPlan> layouts = in_turn(c, network);
  const auto run = [&](ChainFault fault) {
    ChainProgram program(network, layouts, c.ranks, {8, 4}, 1, fault);
    EXPECT_TRUE(program.run(order_of("gpipe", 1, 1), {static_cast<int>(network.chain.size())}));
    return program;
  };
  const ChainProgram whole = run({});
  EXPECT_LT(whole.distance(serial), 1e-9);
  ASSERT_GT(whole.conversions(), 0);
  for (int conversion = 0; conversion < whole.conversions(); ++conversion) {
    const double distance = run({.conversion = conversion}).distance(serial);
    EXPECT_TRUE(distance > 1e-6 || std::isnan(distance)) << conversion;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutSwitch, testing::ValuesIn(switches()),
                         [](const auto& instance) { return instance.param.name; });

// The axes that experts make of tensor-parallel or context ranks cut the stream as one does.
TEST(LayoutSwitch, HalfFoldedExpertsLeaveTheStreamAsItIs) {
  const auto stream = [](const BlockPlan& layout) { return stream_layout(rules_of(layout, true)); };
  const auto expect_same = [&](const BlockPlan& split, const BlockPlan& whole) {
    for (const auto& [from, to] : {std::pair(split, whole), std::pair(whole, split)}) {
      EXPECT_TRUE(
          stream_conversions(mesh_of(from, 2), stream(from), mesh_of(to, 2), stream(to)).empty());
    }
  };
  for (const bool sequence : {false, true}) {
    for (const BlockPlan& experts : {folded_experts(4, 4, 2), folded_experts(2, 4)}) {
      BlockPlan split = experts;
      split.sequence_parallel = sequence;
      expect_same(split, line(4, sequence));
    }
  }
  expect_same(experts_on_half(4), line(1, false, 4, ContextParallel::AllGather));
}

struct PipelineCase {
  std::string schedule;
  int stages = 2;
  int chunks = 1;
};

void PrintTo(const PipelineCase& c, std::ostream* out) { *out << c.schedule; }

class PipelineSemantics : public testing::TestWithParam<PipelineCase> {};

// Stages on meshes of their own: the stage behind a boundary converts.
TEST_P(PipelineSemantics, EqualsTheSerialResultAndAddsEveryMicroBatchOnce) {
  const PipelineCase& c = GetParam();
  const models::Network network = chain_of_four();
  const int micro_batches = 4;
  const ChainProgram serial = serial_chain(network, 4 * micro_batches);
  const std::vector<int> blocks =
      c.stages * c.chunks == 2 ? std::vector<int>{3, 3} : std::vector<int>{2, 1, 1, 2};
  const std::vector<BlockPlan> layouts = {line(2, true), line(2, true), {}, {},
                                          line(4, true), line(4, true)};
  const sim::PipelineOrder order = order_of(c.schedule, c.stages, micro_batches, c.chunks);
  const auto run = [&](ChainFault fault) {
    ChainProgram program(network, layouts, 4, {4, 4}, micro_batches, fault);
    EXPECT_TRUE(program.run(order, blocks));
    return program.distance(serial);
  };
  EXPECT_LT(run({}), 1e-9);
  for (const int position : {0, 2, 5}) {
    for (const int times : {0, 2}) {
      EXPECT_GT(run({.position = position, .micro_batch = 1, .times = times}), 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineSemantics,
                         testing::Values(PipelineCase{"gpipe", 4}, PipelineCase{"1f1b", 4},
                                         PipelineCase{"interleaved", 2, 2},
                                         PipelineCase{"zb-h1", 4}, PipelineCase{"zb-v", 2, 2},
                                         PipelineCase{"v-half", 2, 2}),
                         [](const auto& instance) {
                           std::string name = instance.param.schedule;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace orrery::plan::semantics
