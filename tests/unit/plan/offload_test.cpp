// SPDX-License-Identifier: Apache-2.0
// Tensors that leave the device: bytes in every tier against sums by hand, times against closed
// forms (ZeRO-Offload, ZeRO-Infinity: arXiv 2101.06840, 2104.07857), what a plan must not ask for.
#include "plan/offload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/offload_time.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr std::int64_t kBillion = 1'000'000'000;

// One node, data parallelism alone.
Plan data_parallel(int zero_stage) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.pp = 1;
  plan.dp = 8;
  plan.batch = 32;
  plan.micro_batch = 2;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout.tp = 1;
  plan.blocks.front().layout.zero_stage = zero_stage;
  return plan;
}

Offload& stage_offload_of(Plan& plan) { return plan.blocks.front().layout.offload; }

Plan with_link(Plan plan, BytesPerSecond link) {
  plan.cluster.node.host_link_per_gpu = link;
  plan.cluster.node.gpus_per_pcie_switch = 0;
  plan.cluster.node.host_memory_bandwidth = BytesPerSecond(1e15);
  return plan;
}

TEST(Offload, ActivationsMoveToTheHostByTheirShare) {
  Plan plan = data_parallel(1);
  const StageMemory before = Simulator(plan).memory(plan).front();
  stage_offload_of(plan).activations = 0.5;
  const StageMemory after = Simulator(plan).memory(plan).front();
  EXPECT_NEAR(static_cast<double>(after.activations.value()),
              0.5 * static_cast<double>(before.activations.value()), 8);
  EXPECT_EQ((after.activations + after.host).value(), before.activations.value());
  EXPECT_EQ(after.ends.value(), before.ends.value());
  // Two blocks' parts come and go in the workspace.
  EXPECT_NEAR(static_cast<double>((after.workspace - before.workspace).value()),
              2.0 / 8 * static_cast<double>(after.host.value()), 8);
}

TEST(Offload, ZeroOffloadLeavesTheParametersAlone) {
  Plan plan = data_parallel(2);
  const StageMemory before = Simulator(plan).memory(plan).front();
  stage_offload_of(plan).gradients = Tier::Host;
  stage_offload_of(plan).optimizer = Tier::Host;
  const StageMemory after = Simulator(plan).memory(plan).front();
  EXPECT_EQ(after.parameters.value(), before.parameters.value());
  EXPECT_EQ(after.gradients.value(), 0);
  EXPECT_EQ(after.optimizer.value(), 0);
  EXPECT_EQ(after.host.value(), (before.gradients + before.optimizer).value());
  EXPECT_EQ(after.disk.value(), 0);
}

TEST(Offload, ZeroInfinityKeepsTwoBlocksOfParameters) {
  Plan plan = data_parallel(3);
  const StageMemory before = Simulator(plan).memory(plan).front();
  plan.cluster.node.disk = ByteCount(8000 * kBillion);
  plan.cluster.node.disk_bandwidth = BytesPerSecond(16e9);
  stage_offload_of(plan) = {
      .parameters = Tier::Host, .gradients = Tier::Host, .optimizer = Tier::Disk};
  const StageMemory after = Simulator(plan).memory(plan).front();
  EXPECT_EQ((after.parameters + after.gradients + after.optimizer).value(), 0);
  EXPECT_EQ(after.host.value(), (before.parameters + before.gradients).value());
  EXPECT_EQ(after.disk.value(), before.optimizer.value());
  EXPECT_EQ(after.workspace.value(), before.workspace.value());  // gathered anyway
}

TEST(Offload, NodesHoldTheirDevices) {
  Plan plan = data_parallel(2);
  stage_offload_of(plan).optimizer = Tier::Host;
  const Simulation result = simulate(plan);
  EXPECT_EQ(result.host_per_node.value(), 8 * result.memory.front().host.value());
  plan.cluster.node.host_memory = ByteCount(1 << 20);
  const Simulation full = simulate(plan);
  ASSERT_TRUE(full.does_not_fit.has_value());
  EXPECT_THAT(*full.does_not_fit, ::testing::HasSubstr("host memory"));
}

TEST(Offload, PipelinesMixStagesOnANode) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.dp = 1;
  stage_offload_of(plan).optimizer = Tier::Host;
  const std::vector<StageMemory> memory = Simulator(plan).memory(plan);
  const NodeMemory node = node_memory(plan, memory);
  EXPECT_EQ(node.host.value(), 4 * (memory[0].host + memory[1].host).value());
}

TEST(Offload, AFastLinkHidesCopies) {
  Plan plan = data_parallel(1);
  const Simulation without = simulate(plan);
  stage_offload_of(plan).activations = 1;
  const Simulation hidden = simulate(with_link(plan, BytesPerSecond(1e14)));
  EXPECT_FALSE(hidden.breakdown.exposed_communication.contains("offload") &&
               hidden.breakdown.exposed_communication.at("offload").value() >
                   0.01 * hidden.iteration_time.value());
  EXPECT_NEAR(hidden.iteration_time.value(), without.iteration_time.value(),
              0.01 * without.iteration_time.value());
}

TEST(Offload, ASlowLinkSetsThePace) {
  Plan plan = data_parallel(1);
  stage_offload_of(plan).activations = 1;
  const BytesPerSecond link(2e9);
  const Simulation slow = simulate(with_link(plan, link));
  const double moved = static_cast<double>(slow.memory.front().host.value()) * 2 *
                       static_cast<double>(plan.num_micro_batches());
  const double rate = link.value() * plan.profile.host_copy.fraction;
  // Copies bound the passes; the step's end and the embedding and head come on top.
  EXPECT_GT(slow.iteration_time.value(), moved / rate);
  EXPECT_LT(slow.iteration_time.value(), 1.15 * moved / rate);
  EXPECT_GT(slow.breakdown.exposed_communication.at("offload").value(), 0.5 * moved / rate);
}

TEST(Offload, TheHostUpdatesAtTheRateOfItsMemory) {
  Plan plan = data_parallel(2);
  stage_offload_of(plan).gradients = Tier::Host;
  stage_offload_of(plan).optimizer = Tier::Host;
  HostUpdate update;
  update.parameters = kBillion;
  const double bandwidth = plan.cluster.node.host_memory_bandwidth.value() / 8;
  EXPECT_NEAR(host_update_time(plan, update, 1, 30).value(), 30e9 / bandwidth, 1e-9);
  // Cut into blocks, parameters come up under the update; only the last block's are left.
  HostUpdate with_copies = update;
  with_copies.up = ByteCount(2 * kBillion);
  const auto& node = plan.cluster.node;
  const double link = node.host_link_per_gpu.value() * plan.profile.host_copy.fraction /
                      std::max(1, node.gpus_per_pcie_switch);
  const double up = 2e9 / std::min(link, bandwidth);
  const double time = host_update_time(plan, with_copies, 10, 30).value();
  EXPECT_GT(time, std::max(30e9 / bandwidth, up));
  EXPECT_LT(time, 30e9 / bandwidth + up);
}

TEST(Offload, ADelayedUpdateHidesTheHost) {
  Plan plan = data_parallel(2);
  stage_offload_of(plan).gradients = Tier::Host;
  stage_offload_of(plan).optimizer = Tier::Host;
  const Simulation serial = simulate(plan);
  plan.execution.delayed_update = true;
  const Simulation delayed = simulate(plan);
  EXPECT_LT(delayed.iteration_time.value(), serial.iteration_time.value());
  EXPECT_GE(delayed.iteration_time.value(), serial.breakdown.optimizer.value());
}

// The host has updated them: what the last pass of a step left on the device is of no use to the
// next step, however much fits there (ZeRO-Offload: T = ... + H2D(2 Psi / d)).
TEST(Offload, TheFirstForwardOfAStepFetchesAllParameters) {
  Plan plan = with_link(data_parallel(0), BytesPerSecond(2e9));
  stage_offload_of(plan).parameters = stage_offload_of(plan).optimizer = Tier::Host;
  const StageContent content = stage_contents(plan).front();
  const double rate = 2e9 * plan.profile.host_copy.fraction;
  for (const int resident : {0, 2}) {
    plan.execution.gathers_in_flight = resident;
    BlockCosts costs(plan);
    const StageCost stage = simulate_stage(content, plan, costs);
    const SimTime alone = add_up_stage(content, plan, costs).forward;
    const double fetched = static_cast<double>(stage.states.fetched.value()) / rate;
    const double first = to_seconds(stage.gathered_forward).value();
    EXPECT_GT(first, fetched);
    EXPECT_LT(first, fetched + to_seconds(alone).value());
    EXPECT_EQ(stage.forward == alone, resident == 0);  // of the others all are there
    const Seconds waits = simulate(plan).breakdown.exposed_communication.at("offload");
    EXPECT_GE(waits, to_seconds(stage.gathered_forward - alone) * (1 - 1e-9));
  }
}

// However many blocks have their parameters there: of what they saved two blocks' is.
TEST(Offload, ActivationsHaveTwoBuffersBesideAnyWindow) {
  Plan plan = data_parallel(3);
  stage_offload_of(plan).parameters = stage_offload_of(plan).optimizer = Tier::Host;
  Plan away = plan;
  stage_offload_of(away).activations = 1;
  for (const int resident : {0, 1, 4}) {
    plan.execution.gathers_in_flight = away.execution.gathers_in_flight = resident;
    const StageMemory without = Simulator(plan).memory(plan).front();
    const StageMemory with = Simulator(away).memory(away).front();
    EXPECT_NEAR(static_cast<double>((with.workspace - without.workspace).value()),
                2.0 / 8 * static_cast<double>((with.host - without.host).value()), 8)
        << resident;
  }
}

// What waits for weight gradients stays; when that is most, nothing is in the buffers.
TEST(Offload, ActivationsThatLeaveNeverTakeMoreOfTheDevice) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.dp = 4;
  plan.blocks.front().layout.tp = 1;
  plan.schedule = "zb-h1";
  std::vector<StageMemory> before = Simulator(plan).memory(plan);
  for (const double share : {0.25, 0.5, 1.0}) {
    stage_offload_of(plan).activations = share;
    const std::vector<StageMemory> now = Simulator(plan).memory(plan);
    for (std::size_t stage = 0; stage < now.size(); ++stage) {
      EXPECT_LE(now[stage].total(), before[stage].total() + ByteCount(64)) << share << " " << stage;
    }
    before = now;
  }
}

// Superpipeline's k and k': more blocks on the device are more memory and fewer copies, and what
// all stay travel once a step; a group that is exchanged together waits for all of it.
TEST(Offload, ParametersStayInTheirWindow) {
  Plan plan = with_link(data_parallel(0), BytesPerSecond(2e9));
  stage_offload_of(plan).parameters = stage_offload_of(plan).optimizer = Tier::Host;
  const auto run = [&](int resident, int together) {
    plan.execution.gathers_in_flight = resident;
    plan.execution.fetched_together = together;
    check_plan(plan, "plan.json");
    return simulate(plan);
  };
  const auto blocks = static_cast<int>(plan.network.chain.size());
  Simulation before = run(1, 1);
  for (int resident = 2; resident <= blocks; ++resident) {
    const Simulation now = run(resident, 1);
    EXPECT_LT(now.iteration_time, before.iteration_time) << resident;
    EXPECT_GE(now.memory.front().total(), before.memory.front().total()) << resident;
    if (resident > 2 && resident < blocks) {
      EXPECT_GT(run(resident, resident).iteration_time, now.iteration_time) << resident;
    }
    before = now;
  }
  EXPECT_EQ(run(0, 1).iteration_time, before.iteration_time);  // any number: all of them
  Plan resident = plan;
  stage_offload_of(resident).parameters = Tier::Device;
  EXPECT_LT(run(1, 1).memory.front().total(), simulate(resident).memory.front().total());
  plan.execution.gathers_in_flight = 3;
  plan.execution.fetched_together = 4;
  EXPECT_THAT(problem(plan), ::testing::HasSubstr("fetched_together is 4, but gathers_in_flight"));
}

TEST(Offload, WhatIsFetchedTogetherIsParameters) {
  Plan plan = with_link(data_parallel(2), BytesPerSecond(2e9));
  stage_offload_of(plan) = {.activations = 1, .optimizer = Tier::Host};
  const Seconds alone = simulate(plan).iteration_time;
  plan.execution.fetched_together = 2;
  EXPECT_EQ(simulate(plan).iteration_time, alone);
}

TEST(Offload, DocumentsKeepIt) {
  Plan plan = data_parallel(3);
  plan.cluster = topologies::load_cluster("dgx-1v:1");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.precision = DType::Fp16;
  stage_offload_of(plan) = {.activations = 0.25,
                            .activations_tier = Tier::Disk,
                            .parameters = Tier::Host,
                            .gradients = Tier::Host,
                            .optimizer = Tier::Disk};
  plan.execution.backward_prefetch = BackwardPrefetch::Post;
  plan.execution.gathers_in_flight = 3;
  plan.execution.fetched_together = 2;
  plan.execution.first_bucket_bytes = 1 << 20;
  plan.execution.delayed_update = true;
  const Plan back = read_plan(to_json(plan), "test");
  EXPECT_EQ(back.blocks, plan.blocks);
  EXPECT_EQ(back.execution, plan.execution);
}

TEST(Offload, NamesBlockTensorAndTierThatAreMissing) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  Plan plan = data_parallel(3);
  const BlockRun all = plan.blocks.front();
  plan.blocks = {{3, all.layout}, {all.count - 3, all.layout}};
  plan.blocks[1].layout.offload.activations = 0.5;
  plan.cluster.node.host_memory = ByteCount();
  EXPECT_THAT(problem(plan), AllOf(HasSubstr("block 3"), HasSubstr("/blocks/1"),
                                   HasSubstr("activations"), HasSubstr("no host memory")));
  plan = data_parallel(3);
  plan.cluster.node.disk = ByteCount();
  stage_offload_of(plan).optimizer = Tier::Disk;
  EXPECT_THAT(problem(plan),
              AllOf(HasSubstr("block 0"), HasSubstr("optimizer"), HasSubstr("disk")));
  plan = data_parallel(3);
  stage_offload_of(plan).parameters = Tier::Host;
  EXPECT_THAT(problem(plan), AllOf(HasSubstr("parameters"), HasSubstr("offload.optimizer")));
  plan = data_parallel(1);
  stage_offload_of(plan) = {.gradients = Tier::Host, .optimizer = Tier::Host};
  EXPECT_THAT(problem(plan), AllOf(HasSubstr("gradients"), HasSubstr("zero_stage 2")));
  plan = data_parallel(1);
  stage_offload_of(plan).activations = 1.5;
  EXPECT_THAT(problem(plan), HasSubstr("between 0 and 1"));
}

TEST(Offload, DeepSpeedFilesKeepIt) {
  Plan plan = data_parallel(3);
  plan.micro_batch = 4;
  plan.execution.bucket_bytes = 4 << 20;
  plan.execution.overlap_grad_reduce = plan.execution.overlap_param_gather;
  stage_offload_of(plan) = {
      .activations = 1, .parameters = Tier::Host, .gradients = Tier::Host, .optimizer = Tier::Disk};
  plan.blocks.front().layout.recompute = Recompute::Full;
  const std::string text = find_exporter("deepspeed").write(plan);
  EXPECT_THAT(text, ::testing::HasSubstr("nvme"));
  const Plan back = find_importer("deepspeed").read(text, "ds.json", plan.cluster, &plan.network);
  EXPECT_EQ(back.blocks, plan.blocks);
  stage_offload_of(plan).activations = 0.5;
  EXPECT_THROW((void)find_exporter("deepspeed").write(plan), Error);
  EXPECT_THROW((void)find_exporter("torchtitan").write(plan), Error);
  // Stage 0 has no section of ZeRO that could say so.
  stage_offload_of(plan) = {.optimizer = Tier::Host};
  plan.blocks.front().layout.zero_stage = 0;
  EXPECT_THROW((void)find_exporter("deepspeed").write(plan), Error);
}

}  // namespace
}  // namespace orrery::plan
