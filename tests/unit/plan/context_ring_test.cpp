// SPDX-License-Identifier: Apache-2.0
// What PyTorch's context parallelism sends round its ranks, and when: heads that are repeated
// before, one gather of keys and values a pass, gradients in fp32 after each part.
#include <gtest/gtest.h>

#include "plan/block/cost.hpp"
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
  ASSERT_EQ(beside.size(), waiting.size());
  for (const auto& [what, time] : waiting) {
    if (usual.contains(what)) {
      EXPECT_LT(beside.at(what), time) << what;  // keys and values
    } else {
      EXPECT_EQ(beside.at(what), time) << what;
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
