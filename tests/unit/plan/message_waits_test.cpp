// SPDX-License-Identifier: Apache-2.0
// Messages that nothing hides: who waits for them, and what a pass loses that begins with an empty
// queue of kernels.
#include <gtest/gtest.h>

#include <utility>

#include "plan/flat/flat.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/pass_costs.hpp"
#include "plan/stage/transfers.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Equal stages, one GPU a node; messages take milliseconds.
Plan piped_plan(int stages) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.cluster = topologies::load_cluster(
      "dgx-a100:" + std::to_string(stages),
      {"node.gpus=1", "node.scale_out.nics=1", "node.scale_out.nic_bandwidth=10 Gbit/s"});
  plan.blocks.front().layout = {};
  plan.pp = stages;
  plan.dp = 1;
  plan.micro_batch = 1;
  plan.batch = 16;
  plan.stage_blocks = even_stages(plan.network, stages);
  plan.execution.overlap_p2p = false;
  return plan;
}

struct Waited {
  std::vector<SimTime> sends;
  MessageWaits waits;
};

Waited waits_of(const Plan& plan) {
  BlockCosts costs(plan);
  std::vector<StageCost> stages;
  std::vector<std::uint16_t> devices;
  for (const StageContent& content : stage_contents(plan)) {
    devices.push_back(static_cast<std::uint16_t>(stages.size()));
    stages.push_back(add_up_stage(content, plan, costs));
  }
  Waited result{transfers(plan, costs, stages, devices), {}};
  result.waits = message_waits(plan, costs, stages, result.sends);
  return result;
}

double iteration_seconds(const Plan& plan) { return simulate(plan).iteration_time.value(); }

TEST(MessageWaits, SendersWaitForTheirOwn) {
  const auto [sends, waits] = waits_of(piped_plan(4));
  ASSERT_EQ(sends.size(), 3U);
  EXPECT_EQ(waits.forward, (std::vector<SimTime>{sends[0], sends[1], sends[2], SimTime{}}));
  EXPECT_EQ(waits.backward, (std::vector<SimTime>{SimTime{}, sends[0], sends[1], sends[2]}));
  EXPECT_EQ(waits.not_first, std::vector<SimTime>(4));
}

TEST(MessageWaits, SerialExchangesHoldUpBothEnds) {
  Plan plan = piped_plan(4);
  plan.execution.serial_exchanges = true;
  const auto [sends, waits] = waits_of(plan);
  EXPECT_EQ(waits.forward[0], sends[0]);
  EXPECT_EQ(waits.forward[1], sends[0] + sends[1]);
  EXPECT_EQ(waits.backward[1], sends[0] + sends[1]);
  EXPECT_EQ(waits.backward[3], sends[2]);
  EXPECT_EQ(waits.not_first[1], sends[0]);
  EXPECT_EQ(waits.not_last[1], sends[1]);
}

// A stage of frozen blocks alone takes no gradient: nobody sends one, and nobody waits for one.
TEST(MessageWaits, FrozenStagesTakeNoGradient) {
  Plan plan = piped_plan(4);
  models::NetworkSpec spec = small_spec();
  spec.adapters.rank = 16;
  plan.network = models::build_network(spec, "test");
  plan.stage_blocks = {1, 3, 3, 3};
  plan.execution.serial_exchanges = true;
  const auto [sends, waits] = waits_of(plan);
  EXPECT_GT(sends[0], SimTime{});
  EXPECT_EQ(waits.forward,
            (std::vector<SimTime>{sends[0], sends[1], sends[2] + sends[1], sends[2]}));
  EXPECT_EQ(waits.backward,
            (std::vector<SimTime>{SimTime{}, sends[1], sends[1] + sends[2], sends[2]}));
  EXPECT_EQ(waits.not_first[1], SimTime{});
}

// Whoever a message is for puts its parts together; the other one only waits for the parts.
TEST(MessageWaits, PartsAreGatheredByTheReceiver) {
  Plan plan = small_plan();
  plan.dp = 1;
  plan.pp = 4;
  plan.stage_blocks = even_stages(plan.network, 4);
  plan.blocks.front().layout.zero_stage = 0;
  plan.execution.overlap_p2p = false;
  plan.execution.split_transfers = true;
  plan.execution.serial_exchanges = true;
  const BlockCosts costs(plan);
  const auto [sends, waits] = waits_of(plan);
  const ByteCount boundary(2 * plan.micro_batch * plan.sequence * plan.network.spec.hidden);
  const SimTime gather = gather_of_parts(plan, costs, boundary, 4);
  EXPECT_GT(gather, SimTime{});
  EXPECT_EQ(waits.forward[1], sends[1] + sends[0] - gather);
  EXPECT_EQ(waits.not_first[1], sends[0] - gather);
}

// Two stages: all exchanges but the first activation and the last gradient are of two messages.
TEST(MessageWaits, AnExchangeTakesTwoMessages) {
  Plan plan = piped_plan(2);
  const double message = to_seconds(waits_of(plan).sends.front()).value();
  const double alone = iteration_seconds(plan);
  plan.execution.serial_exchanges = true;
  EXPECT_NEAR(iteration_seconds(plan) - alone, 15 * message, 1.01 * message);
  // Messages that are hidden hold nobody up, whatever the flag says.
  plan.execution.overlap_p2p = true;
  const double hidden = iteration_seconds(plan);
  plan.execution.serial_exchanges = false;
  EXPECT_EQ(iteration_seconds(plan), hidden);
}

Step kernel(double microseconds, int launches = 1) {
  Step step;
  step.time = Seconds(microseconds * 1e-6);
  step.launches = launches;
  return step;
}

double microseconds(Seconds time) { return time.value() * 1e6; }

// Issued every 50 us: short kernels end at 60 and 110, the long one begins at 150.
TEST(QueueStart, KernelsWaitUntilTheHostIsAhead) {
  const Plan plan = piped_plan(2);
  const BlockCosts costs(plan);
  const std::vector<Step> steps = {kernel(10), kernel(10), kernel(1000), kernel(10)};
  const PassCost pass = queue_steps(steps, costs.device(), Seconds(200e-6));
  EXPECT_NEAR(microseconds(pass.device), 1030, 1e-3);
  EXPECT_NEAR(microseconds(pass.stall), 130, 1e-3);
  // One after the other, the second finds its kernels issued.
  const PassCost both = pass + pass;
  EXPECT_NEAR(microseconds(both.device + both.stall), 2190, 1e-3);
  // Where the host is the slower one, the device ends behind its last kernel.
  const PassCost slow = queue_steps(steps, costs.device(), Seconds(8e-3));
  EXPECT_NEAR(microseconds(slow.device + slow.stall), 8010, 1e-3);
  const PassCost twice = slow + slow;
  EXPECT_NEAR(microseconds(twice.device + twice.stall), 16010, 1e-3);
  // Kernels of one step are issued one by one.
  const PassCost many = queue_steps({kernel(40, 4)}, costs.device(), Seconds(200e-6));
  EXPECT_NEAR(microseconds(many.device + many.stall), 210, 1e-3);
}

TEST(QueueStart, PassesThatBeginWithAMessageStartLate) {
  Plan plan = piped_plan(4);
  plan.execution.host_per_block = Seconds(1e-3);
  const Waited ahead = waits_of(plan);
  plan.execution.synchronised_messages = true;
  const Waited empty = waits_of(plan);
  EXPECT_EQ(empty.waits.forward[0], ahead.waits.forward[0]);    // reads its data
  EXPECT_EQ(empty.waits.backward[3], ahead.waits.backward[3]);  // follows its forward
  for (const std::size_t stage : {1U, 2U}) {
    const SimTime late = empty.waits.forward[stage] - ahead.waits.forward[stage];
    EXPECT_GT(late, SimTime{});
    EXPECT_LT(to_seconds(late), Seconds(1e-3));
    EXPECT_GT(empty.waits.backward[stage], ahead.waits.backward[stage]);
  }
  Plan blocking = plan;  // nothing is queued anyway
  blocking.execution.blocking_launches = true;
  const auto late_blocking = waits_of(blocking);
  EXPECT_EQ(late_blocking.waits.forward[1], late_blocking.sends[1]);
  plan.schedule = "zb-h1";  // a runtime of its own
  EXPECT_EQ(waits_of(plan).waits.forward[1], ahead.waits.forward[1]);
}

TEST(MessageWaits, PlansStateTheFlags) {
  Plan plan = piped_plan(2);
  plan.execution.serial_exchanges = true;
  plan.execution.synchronised_messages = true;
  EXPECT_EQ(read_plan(to_json(plan), "a test").execution, plan.execution);
}

TEST(MessageWaits, BoundsStayBelow) {
  for (const int stages : {2, 4}) {
    for (const std::int64_t batch : {1, 2, 16}) {
      Plan plan = piped_plan(stages);
      plan.batch = batch;
      plan.execution.host_per_block = Seconds(1e-3);
      plan.execution.serial_exchanges = true;
      plan.execution.synchronised_messages = true;
      Simulator simulator(plan);
      const double time = iteration_seconds(plan) * (1 + 1e-12);
      EXPECT_LE(simulator.work_bound(plan).value(), time);
      EXPECT_LE(simulator.lower_bound(plan).value(), time);
      EXPECT_LE(simulator.list_bound(plan).value(), time);
    }
  }
}

TEST(MessageWaits, FlatProgramsWaitAsLong) {
  for (const bool serial : {false, true}) {
    Plan plan = piped_plan(4);
    plan.execution.host_per_block = Seconds(1e-3);
    plan.execution.serial_exchanges = serial;
    plan.execution.synchronised_messages = !serial;
    const FlatSimulation flat = simulate_flat(plan);
    EXPECT_NEAR(flat.iteration_time.value(), iteration_seconds(plan),
                1e-12 * static_cast<double>(flat.program.num_nodes()));
  }
}

}  // namespace
}  // namespace orrery::plan
