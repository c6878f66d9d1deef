// SPDX-License-Identifier: Apache-2.0
// Degenerate limits of the simulation: one device is the serial sum, free communication leaves
// compute, free compute leaves communication, what is not used changes nothing.
#include "plan/simulation/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/stage/stage.hpp"
#include "plan/stage/transfers.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr double kEndless = 1e24;

Plan degrees(Plan plan, int tp, int cp, int dp, int pp) {
  plan.blocks.front().layout.tp = tp;
  plan.blocks.front().layout.cp = cp;
  plan.dp = dp;
  plan.pp = pp;
  plan.stage_blocks = even_stages(plan.network, pp);
  const std::int64_t gpus = std::int64_t{tp} * cp * dp * pp;
  plan.cluster.node.gpus = static_cast<int>(std::min<std::int64_t>(8, gpus));
  plan.cluster.num_nodes = static_cast<int>(gpus / plan.cluster.node.gpus);
  check_plan(plan, "test");
  return plan;
}

Plan plan_of_one_gpu() { return degrees(small_plan(), 1, 1, 1, 1); }

// Latencies gone, bandwidths endless.
void free_communication(Plan& plan) {
  costmodel::Profile& profile = plan.profile;
  for (costmodel::CollectiveParameters* fit :
       {&profile.intra_node, &profile.inter_node, &profile.inter_node_plugin}) {
    *fit = {.base = Seconds(0),
            .low_latency_factor = 0,
            .simple_factor = 0,
            .bandwidth_factor = kEndless,
            .in_switch_factor = kEndless,
            .half_size = Bytes(0)};
  }
  profile.all_to_all_intra = profile.all_to_all_inter = {Seconds(0), Seconds(0), kEndless};
  profile.send_receive = {Seconds(0), kEndless, Seconds(0), kEndless, BytesPerSecond(kEndless)};
  plan.cluster.node.scale_out.latency = plan.cluster.node.scale_out.plugin_latency = Seconds(0);
  profile.collectives = {};
  auto& node = plan.cluster.node;
  node.scale_up.bandwidth_per_gpu = BytesPerSecond(kEndless);
  node.scale_up.nccl_bandwidth = node.scale_out.nic_bandwidth = BytesPerSecond(kEndless);
  profile.collective_sms = 0;
  profile.kernel_launch = Seconds(0);  // the host never holds up the device
}

void free_compute(Plan& plan) {
  for (FlopsPerSecond& peak : plan.cluster.gpu.peak) {
    peak = FlopsPerSecond(1e30);
  }
  plan.cluster.gpu.hbm_bandwidth = BytesPerSecond(1e30);
  for (costmodel::GemmParameters& gemm : plan.profile.gemm) {
    gemm.launch = Seconds(0);
  }
  plan.profile.attention.launch = plan.profile.memory.launch = Seconds(0);
  plan.profile.kernel_launch = Seconds(0);
  plan.cluster.gpu.power_watts = 0;  // no limit
}

enum class Part { Compute, Communication, Both };

// Of one micro-batch through all blocks.
Seconds sum_of_blocks(const Plan& plan, Part part) {
  BlockCosts costs(plan);
  Seconds sum;
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const BlockCost& block = costs.of(plan.network.chain[position],
                                      plan.layout_of(static_cast<int>(position)), plan.micro_batch);
    for (const PassCost* pass : {&block.forward, &block.backward}) {
      const Seconds communication = pass->by_class[static_cast<std::size_t>(CostClass::IntraNode)] +
                                    pass->by_class[static_cast<std::size_t>(CostClass::InterNode)];
      sum += part == Part::Both            ? to_seconds(pass->time)
             : part == Part::Communication ? communication
                                           : pass->compute;
    }
  }
  return sum;
}

double relative(Seconds a, Seconds b) { return std::abs(a / b - 1); }

TEST(SimulateLimits, OneDeviceIsTheSerialSum) {
  for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
    Plan plan = plan_of_one_gpu();
    plan.blocks.front().layout.recompute = recompute;
    plan.profile.kernel_launch = Seconds(0);  // the host never holds up the device
    const Simulation result = simulate(plan);
    const double micro_batches = static_cast<double>(plan.num_micro_batches());
    const Seconds serial =
        sum_of_blocks(plan, Part::Both) * micro_batches + result.breakdown.optimizer;
    EXPECT_LT(relative(result.iteration_time, serial), 1e-12);
    EXPECT_LT(relative(sum_of_blocks(plan, Part::Both), sum_of_blocks(plan, Part::Compute)), 1e-9);
    EXPECT_TRUE(result.breakdown.exposed_communication.empty());
    EXPECT_EQ(result.bubble_fraction, 0.0);
  }
}

TEST(SimulateLimits, FreeCommunicationLeavesCompute) {
  for (const int tp : {1, 2, 8}) {
    for (const int zero : {0, 1, 2, 3}) {
      Plan plan = degrees(small_plan(), tp, 1, 16 / tp, 1);
      plan.blocks.front().layout.zero_stage = zero;
      plan.blocks.front().layout.sequence_parallel = tp > 1;
      free_communication(plan);
      const Simulation result = simulate(plan);
      const Seconds compute =
          sum_of_blocks(plan, Part::Compute) * static_cast<double>(plan.num_micro_batches()) +
          result.breakdown.optimizer;
      EXPECT_LT(relative(result.iteration_time, compute), 1e-6) << tp << " " << zero;
    }
  }
}

TEST(SimulateLimits, FreeComputeLeavesCommunication) {
  for (const bool overlap : {false, true}) {
    Plan plan = degrees(small_plan(), 8, 1, 1, 1);
    plan.execution.overlap_tp = overlap;
    free_compute(plan);
    const Simulation result = simulate(plan);
    const double micro_batches = static_cast<double>(plan.num_micro_batches());
    const Seconds communication = sum_of_blocks(plan, Part::Communication) * micro_batches;
    EXPECT_GT(communication.value(), 0);
    EXPECT_LT(relative(result.iteration_time, communication), 1e-6);
    EXPECT_LT(relative(result.breakdown.exposed_communication.at("tp"), communication), 1e-6);
    // No parameter has a gradient to sum: tensor ranks compute those of biases and norms alike.
    EXPECT_EQ(result.breakdown.exposed_communication.count("dp"), 0u);
  }
}

// Replicas beside each other differ from one by their gradient reduction alone.
TEST(SimulateLimits, ReplicasRunAsOneDoes) {
  Plan one = plan_of_one_gpu();
  Plan many = degrees(small_plan(), 1, 1, 8, 1);
  one.batch = 8;
  many.batch = 64;
  one.blocks.front().layout.zero_stage = many.blocks.front().layout.zero_stage = 0;
  many.execution.overlap_grad_reduce = false;
  const Simulation single = simulate(one);
  const Simulation replicated = simulate(many);
  const Seconds reduction = replicated.breakdown.exposed_communication.at("dp");
  EXPECT_LT(relative(replicated.iteration_time, single.iteration_time + reduction), 1e-12);
  EXPECT_EQ(replicated.breakdown.compute, single.breakdown.compute);
}

TEST(SimulateLimits, WhatIsNotUsedChangesNothing) {
  const Plan plan = degrees(small_plan(), 8, 1, 1, 1);
  const Seconds before = simulate(plan).iteration_time;
  Plan other = plan;
  other.cluster.node.scale_out.nic_bandwidth *= 0.001;
  other.cluster.node.scale_out.latency = Seconds(1);
  other.cluster.fabric.oversubscription = 100;
  other.cluster.node.host_memory_bandwidth *= 0.001;
  EXPECT_EQ(simulate(other).iteration_time, before);
  const Plan alone = plan_of_one_gpu();
  other = alone;
  other.cluster.node.scale_up.nccl_bandwidth *= 0.001;
  other.cluster.node.scale_up.bandwidth_per_gpu *= 0.001;
  EXPECT_EQ(simulate(other).iteration_time, simulate(alone).iteration_time);
}

TEST(SimulateLimits, OneStageRunsTheSameUnderEverySchedule) {
  Plan plan = degrees(small_plan(), 4, 1, 2, 1);
  const Seconds before = simulate(plan).iteration_time;
  plan.schedule = "gpipe";
  EXPECT_EQ(simulate(plan).iteration_time, before);
}

// Four ranks that each send a quarter over their share of the NICs and gather it inside the node.
TEST(SimulateLimits, SplitTransfersSendEveryByteOnce) {
  Plan plan = degrees(small_plan(), 4, 1, 2, 2);  // a stage is a node
  plan.execution.overlap_p2p = false;
  const auto sends = [&] {
    BlockCosts costs(plan);
    std::vector<StageCost> stages;
    for (const StageContent& content : stage_contents(plan)) {
      stages.push_back(add_up_stage(content, plan, costs));
    }
    return to_seconds(transfers(plan, costs, stages, {0, 1}).front());
  };
  const BlockCosts costs(plan);
  const Bytes boundary(2.0 * static_cast<double>(plan.micro_batch * plan.sequence * 1024));
  const Seconds whole = costs.collectives().send_receive(boundary, false, 1, 1);
  EXPECT_LT(relative(sends(), whole), 1e-7);
  plan.execution.split_transfers = true;
  const auto group = costmodel::make_group(4, 1, plan.cluster.node.gpus);
  const Seconds parts = costs.collectives().send_receive(boundary * 0.25, false, 1, 1) +
                        costs.collectives().time(sim::CommKind::AllGather, boundary, group);
  EXPECT_LT(relative(sends(), parts), 1e-7);
  EXPECT_LT(sends(), whole);
  plan.blocks.front().layout.sequence_parallel = true;  // a rank holds its part alone
  const Seconds sequence_parts = sends();
  plan.execution.split_transfers = false;
  EXPECT_EQ(sends(), sequence_parts);
}

// Pipelines without transfers: the busiest device works without a gap between the filling and the
// draining of the others.
TEST(SimulateLimits, PipelineOfFreeTransfersIsTheClosedForm) {
  Plan plan = degrees(small_plan(), 1, 1, 1, 4);
  plan.network.chain = {plan.network.chain[1], plan.network.chain[1], plan.network.chain[1],
                        plan.network.chain[1]};
  plan.network.spec.tied_embeddings = false;
  plan.blocks.front().count = 4;
  plan.stage_blocks = {1, 1, 1, 1};
  free_communication(plan);
  for (const char* schedule : {"1f1b", "gpipe"}) {
    plan.schedule = schedule;
    const Simulation result = simulate(plan);
    const double passes = static_cast<double>(plan.num_micro_batches() + plan.pp - 1);
    const Seconds expected =
        sum_of_blocks(plan, Part::Both) / 4.0 * passes + result.breakdown.optimizer;
    EXPECT_LT(relative(result.iteration_time, expected), 1e-6) << schedule;
    EXPECT_NEAR(result.bubble_fraction, 3.0 / passes, 1e-6) << schedule;
  }
}

// The optimizer moves 4 + 2 x 12 + 2 bytes a parameter.
TEST(SimulateLimits, OptimizerReadsAndWritesItsStateOnce) {
  const Plan plan = plan_of_one_gpu();
  const double bytes = static_cast<double>(models::num_parameters(plan.network)) * (4 + 24 + 2);
  const double fraction =
      plan.profile.memory.fraction[static_cast<std::size_t>(costmodel::MemoryKernel::Optimizer)];
  const Seconds expected =
      plan.profile.memory.launch + Bytes(bytes) / (plan.cluster.gpu.hbm_bandwidth * fraction);
  EXPECT_LT(relative(simulate(plan).breakdown.optimizer, expected), 1e-12);
}

TEST(SimulateReport, RatiosAreWhatTheirNamesSay) {
  Plan plan = degrees(small_plan(), 2, 1, 2, 2);
  plan.blocks.front().layout.recompute = Recompute::Full;
  const Simulation full = simulate(plan);
  const double gpus = 8;
  const double tokens = static_cast<double>(plan.batch * plan.sequence);
  EXPECT_NEAR(full.tokens_per_second_per_gpu * full.iteration_time.value() * gpus / tokens, 1.0,
              1e-12);
  const double peak = plan.cluster.gpu.peak_of(plan.precision).value() * gpus;
  const double model = models::model_flops(plan.network, {plan.batch, plan.sequence}).value();
  EXPECT_NEAR(full.mfu_fraction * peak * full.iteration_time.value() / model, 1.0, 1e-12);
  double again = 0;  // attention in full, as the model's
  for (const int index : plan.network.chain) {
    const models::Block& block = plan.network.blocks[static_cast<std::size_t>(index)];
    again += block.kind == models::BlockKind::Layer
                 ? models::forward_flops(block, {plan.batch, plan.sequence}, false).value()
                 : 0.0;
  }
  EXPECT_NEAR(full.hfu_fraction / full.mfu_fraction, 1 + again / model, 1e-12);
  EXPECT_GT(full.breakdown.recompute.value(), 0);
  plan.blocks.front().layout.recompute = Recompute::None;
  const Simulation none = simulate(plan);
  EXPECT_DOUBLE_EQ(none.hfu_fraction, none.mfu_fraction);
  EXPECT_EQ(none.breakdown.recompute.value(), 0);
  EXPECT_LT(none.iteration_time, full.iteration_time);
  EXPECT_EQ(full.interval_low, full.iteration_time);  // no draws were asked for
  EXPECT_EQ(full.interval_high, full.iteration_time);
}

}  // namespace
}  // namespace orrery::plan
