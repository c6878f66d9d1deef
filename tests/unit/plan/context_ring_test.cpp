// SPDX-License-Identifier: Apache-2.0
// What PyTorch's context parallelism sends round its ranks, and when: heads that are repeated
// before, one gather of keys and values a pass, gradients in fp32 after each part.
#include <gtest/gtest.h>

#include "plan/block/attention_kernels.hpp"
#include "plan/block/cost.hpp"
#include "plan/block/ring_attention.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr int kRanks = 4;
constexpr int kQueriesPerKey = 4;

Plan ring_plan() {
  models::NetworkSpec spec = small_spec();
  spec.kv_heads = spec.heads / kQueriesPerKey;
  return one_replica(spec, {.cp = kRanks});
}

struct Moved {
  double bytes = 0;
  double time = 0;
  int steps = 0;
};

Moved moved(const std::vector<Step>& steps, sim::CommKind kind) {
  Moved sum;
  for (const Step& step : steps) {
    if (step.collective && step.comm == kind && step.axis == Axis::Context) {
      sum.bytes += step.bytes.value();
      sum.time += step.time.value();
      ++sum.steps;
    }
  }
  return sum;
}

BlockSteps steps_of(const Plan& plan) {
  const BlockCosts costs(plan);
  return costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
}

double attention_time(const std::vector<Step>& steps) {
  double time = 0;
  for (const Step& step : steps) {
    const bool attends = !step.collective && step.cost_class == CostClass::Attention;
    time += attends ? step.time.value() : 0.0;
  }
  return time;
}

// Keys and values of all heads of keys, in 16 bits.
double whole_keys(const Plan& plan) {
  const models::NetworkSpec& spec = plan.network.spec;
  return 2.0 * 2.0 *
         static_cast<double>(plan.micro_batch * plan.sequence * spec.kv_heads * spec.head_dim);
}

struct MergeTimes {
  double forward = 0;
  double backward = 0;
};

// Bytes of 16-bit elements: of queries, or the output, and of keys and values.
struct MergeBytes {
  double queries = 0;
  double keys = 0;
};

costmodel::AttentionShape long_part(std::int64_t batch) {
  costmodel::AttentionShape shape;
  shape.batch = batch;
  shape.q_len = shape.kv_len = 4096;
  shape.heads = 16;
  shape.kv_heads = 2;
  shape.head_dim = shape.value_head_dim = 128;
  shape.causal = true;
  return shape;
}

// What a ring takes beside the kernels of its parts.
MergeTimes merge_times(const BlockCosts& costs, std::int64_t batch, std::int64_t parts,
                       bool zigzag) {
  const Mesh mesh;
  KernelContext context{costs.device(), costs.execution(), DType::Bf16, mesh, Extents{}};
  context.zigzag = zigzag;
  const costmodel::AttentionShape own = long_part(batch);
  costmodel::AttentionShape other = own;
  other.kv_len /= zigzag ? 2 : 1;
  other.causal = false;
  const OperatorCost ring = ring_attention(own, parts, context);
  const OperatorCost first = fused_attention_cost(own, context);
  const OperatorCost each = fused_attention_cost(other, context);
  const auto count = static_cast<double>(parts - 1);
  return {(ring.forward.time - first.forward.time - each.forward.time * count).value(),
          (ring.input_grad.time - first.input_grad.time - each.input_grad.time * count).value()};
}

// Twice as many sequences take longer by these bytes.
void expect_merges(const Plan& plan, int parts, MergeBytes forward, MergeBytes backward,
                   bool zigzag = true) {
  const BlockCosts costs(plan);
  const auto streamed = [&](double bytes) {
    return costs.device().memory_bound(Bytes(bytes), costmodel::MemoryKernel::Elementwise).value();
  };
  const double byte = (streamed(4e9) - streamed(2e9)) / 2e9;
  const MergeTimes few = merge_times(costs, 32, parts, zigzag);
  const MergeTimes many = merge_times(costs, 64, parts, zigzag);
  const double queries = 32.0 * 4096 * 16 * 128;
  const double keys = 2 * queries / 8;  // and values
  EXPECT_NEAR(many.forward - few.forward, byte * (forward.queries * queries + forward.keys * keys),
              1e-3 * many.forward);
  EXPECT_NEAR(many.backward - few.backward,
              byte * (backward.queries * queries + backward.keys * keys), 1e-3 * many.backward);
}

// TransformerEngine: n parts are added to an output of zeros, their gradients to those of the
// first, in balanced parts of keys half but for the own part's; keys are copied to be sent.
TEST(ContextRingTest, EveryPartIsAddedUp) {
  for (const double n : {2, 4, 8}) {
    const int parts = static_cast<int>(n);
    expect_merges(ring_plan(), parts, {6 * n + 2, 4}, {6 * n - 2, 3 * n + 2 + 4});
    expect_merges(ring_plan(), parts, {6 * n + 2, 4}, {6 * n - 2, 6 * n - 2 + 4}, false);
  }
}

// PyTorch: each other part alone, in fp32, kernel by kernel or in one of them.
TEST(ContextRingTest, OthersPartsAreMergedInFp32) {
  Plan apart = ring_plan();
  apart.execution.eager_ring = true;
  apart.execution.fused_kernels = false;
  Plan compiled = apart;
  compiled.execution.fused_kernels = true;
  for (const double others : {1, 3, 7}) {
    const int parts = static_cast<int>(others) + 1;
    expect_merges(apart, parts, {38 * others, 4 * others}, {10 * others, 25 * others});
    expect_merges(compiled, parts, {9.5 * others, 0}, {9.5 * others, 9.5 * others});
  }
}

TEST(ContextRingTest, RepeatedHeadsTravelAndAreCopied) {
  Plan plan = ring_plan();
  plan.execution.overlap_context = false;
  const BlockSteps few = steps_of(plan);
  plan.execution.repeated_heads = true;
  const BlockSteps many = steps_of(plan);
  const Moved gathered = moved(few.forward, sim::CommKind::AllGather);
  EXPECT_DOUBLE_EQ(gathered.bytes, whole_keys(plan));
  EXPECT_DOUBLE_EQ(moved(many.forward, sim::CommKind::AllGather).bytes,
                   kQueriesPerKey * gathered.bytes);
  EXPECT_DOUBLE_EQ(moved(many.backward, sim::CommKind::ReduceScatter).bytes,
                   kQueriesPerKey * moved(few.backward, sim::CommKind::ReduceScatter).bytes);
  // A rank's quarter is read once and written for every query head.
  const double copies =
      (1.0 + kQueriesPerKey) * whole_keys(plan) / kRanks / plan.cluster.gpu.hbm_bandwidth.value();
  EXPECT_GT(attention_time(many.forward) - attention_time(few.forward), copies);
  EXPECT_GT(attention_time(many.backward) - attention_time(few.backward), copies);
}

TEST(ContextRingTest, RepetitionNeedsNoContextRanks) {
  Plan plan = ring_plan();
  plan.cluster.node.gpus = 1;
  plan.blocks.front().layout = {};
  check_plan(plan, "test");
  const double few = attention_time(steps_of(plan).forward);
  plan.execution.repeated_heads = true;
  EXPECT_GT(attention_time(steps_of(plan).forward) - few,
            (1.0 + kQueriesPerKey) * whole_keys(plan) / plan.cluster.gpu.hbm_bandwidth.value());
}

TEST(ContextRingTest, GradientsTravelInFp32AfterEachPart) {
  Plan plan = ring_plan();
  plan.execution.gathered_ring = true;
  plan.execution.overlap_context = false;
  const BlockSteps serial = steps_of(plan);
  const Moved sent = moved(serial.backward, sim::CommKind::SendReceive);
  // A quarter of the keys and values four times, in 32 bits.
  EXPECT_DOUBLE_EQ(sent.bytes, 2 * whole_keys(plan));
  EXPECT_EQ(moved(serial.backward, sim::CommKind::ReduceScatter).steps, 0);
  const BlockCosts costs(plan);
  const double message =
      costs.collectives().send_receive(Bytes(whole_keys(plan) / kRanks), true, 1).value();
  EXPECT_NEAR(sent.time, 2 * kRanks * message, 1e-9);  // keys, then values
  // Beside the kernels of long parts only the last message of each is left.
  plan.execution.overlap_context = true;
  const BlockSteps beside = steps_of(plan);
  EXPECT_NEAR(moved(beside.backward, sim::CommKind::SendReceive).time, 2 * message, 1e-9);
  EXPECT_LT(moved(beside.forward, sim::CommKind::AllGather).time,
            moved(serial.forward, sim::CommKind::AllGather).time);
}

TEST(ContextRingTest, EveryGpuHasItsOwnNic) {
  Plan plan = one_replica(small_spec(), {.tp = 8, .cp = 2}, "dgx-a100:2");
  plan.execution.gathered_ring = true;
  plan.execution.overlap_context = false;
  const Moved sent = moved(steps_of(plan).backward, sim::CommKind::SendReceive);
  const BlockCosts costs(plan);
  const Bytes message(sent.bytes / sent.steps / 2);  // of keys or values, two parts
  EXPECT_NEAR(sent.time / sent.steps / 2,
              costs.collectives().send_receive(message, false, 1).value(), 1e-9);
}

TEST(ContextRingTest, CompiledRecomputationGathersForTheBackwardToo) {
  Plan plan = ring_plan();
  plan.execution.gathered_ring = true;
  plan.execution.reuses_gathered = true;
  plan.execution.overlap_context = false;
  plan.blocks.front().layout.recompute = Recompute::Full;
  EXPECT_EQ(moved(steps_of(plan).recompute, sim::CommKind::AllGather).steps, 2);
  EXPECT_EQ(moved(steps_of(plan).backward, sim::CommKind::AllGather).steps, 0);
  plan.execution.reuses_gathered = false;
  EXPECT_EQ(moved(steps_of(plan).backward, sim::CommKind::AllGather).steps, 2);
}

// Context ranks that cut the inner width instead gather its input and sum what it gives: no ring
// hides that, beside whatever keys and values it hides.
TEST(ContextRingTest, OtherCollectivesOfContextRanksWait) {
  Plan plan = ring_plan();
  const auto times = [&](bool overlap) {
    plan.execution.overlap_context = overlap;
    const BlockCosts costs(plan);  // steps have its names
    const BlockSteps steps =
        costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
    std::map<std::string, double> by_tensor;
    for (const Step& step : steps.forward) {
      if (step.collective && step.axis == Axis::Context) {
        by_tensor[std::string(step.name) + std::string(sim::to_text(step.comm))] +=
            step.time.value();
      }
    }
    return by_tensor;
  };
  const auto usual = times(false);
  plan.blocks.front().layout.variables[static_cast<std::size_t>(Axis::Context)] =
      VarList({models::Var::Ffn, models::Var::Seq});
  check_plan(plan, "test");
  const auto waiting = times(false);
  const auto beside = times(true);
  ASSERT_GT(waiting.size(), usual.size());
  for (const auto& [what, time] : waiting) {
    const auto left = beside.find(what);
    if (usual.contains(what)) {  // keys and values
      EXPECT_TRUE(left == beside.end() || left->second < time) << what;
    } else {
      ASSERT_TRUE(left != beside.end()) << what;
      EXPECT_EQ(left->second, time) << what;
    }
  }
}

TEST(ContextRingTest, MessagesAreExposedWhereNothingOverlaps) {
  Plan plan = ring_plan();
  const double hidden = moved(steps_of(plan).forward, sim::CommKind::AllGather).time;
  plan.execution.overlap_context = false;
  EXPECT_GT(moved(steps_of(plan).forward, sim::CommKind::AllGather).time, hidden);
}

}  // namespace
}  // namespace orrery::plan
