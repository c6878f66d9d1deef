// SPDX-License-Identifier: Apache-2.0
// A forward and a backward that run as one block: what they hide of each other, in steps, in a
// pipeline and in the bounds of a search.
#include "plan/block/joined_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "tests/unit/plan/mixed_fixture.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

Step joined_kernel(double ms, std::vector<int> after = {}) {
  Step step;
  step.time = Seconds(ms * 1e-3);
  step.after = std::move(after);
  return step;
}

Step exchange(double ms, std::vector<int> after, Axis axis = Axis::Expert) {
  Step step = joined_kernel(ms, std::move(after));
  step.collective = true;
  step.comm = CommKind::AllToAll;
  step.axis = axis;
  step.cost_class = CostClass::InterNode;
  return step;
}

// Its kernels run as fast beside a collective as alone.
costmodel::DeviceModel undisturbed() {
  const topologies::Cluster cluster = topologies::load_cluster("dgx-a100:2");
  costmodel::Profile profile = costmodel::load_profile("", cluster.gpu);
  profile.collective_sms = 0;
  return {cluster.gpu, profile};
}

double joined_ms(const std::vector<Step>& forward, const std::vector<Step>& backward) {
  return to_seconds(join_passes(forward, backward, undisturbed()).time).value() * 1e3;
}

// Attention, dispatch, experts, combine; and back.
std::vector<Step> forward_of(double exchanged, Axis axis = Axis::Expert) {
  return {joined_kernel(4), exchange(exchanged, {0}, axis), joined_kernel(6, {1}),
          exchange(exchanged, {2}, axis)};
}
std::vector<Step> backward_of(double exchanged, Axis axis = Axis::Expert) {
  return {exchange(exchanged, {}, axis), joined_kernel(12, {0}), exchange(exchanged, {1}, axis),
          joined_kernel(8, {2})};
}

// Kernels 4 + 6 and 12 + 8 with every exchange beside one of the other pass: combine' | attention,
// dispatch | experts', dispatch' | experts, combine | attention'.
TEST(JoinedSteps, HideTheExchangesOfEachOther) {
  EXPECT_NEAR(joined_ms(forward_of(4), backward_of(4)), 30.0, 1e-6);
  EXPECT_EQ(join_passes(forward_of(4), backward_of(4), undisturbed()).exposed, SimTime{});
}

// 4 x 20 ms on one stream are longer than the kernels; the first waits for nobody.
TEST(JoinedSteps, TakeNoLessThanTheirExchanges) {
  EXPECT_GE(joined_ms(forward_of(20), backward_of(20)), 80.0);
  EXPECT_LT(joined_ms(forward_of(20), backward_of(20)), 110.0);
  const JoinedPasses joined = join_passes(forward_of(20), backward_of(20), undisturbed());
  EXPECT_EQ(joined.time - joined.exposed, to_sim_time(Seconds(0.030)));
}

// The short kernel first: its tokens travel beside the long one, whose own come after them. The
// other way round both exchanges wait for the end.
TEST(JoinedSteps, WhatLeadsToAnExchangeGoesFirst) {
  const std::vector<Step> forward = {joined_kernel(2), exchange(10, {0}), joined_kernel(2, {1})};
  const std::vector<Step> backward = {joined_kernel(10), exchange(10, {0}), joined_kernel(2, {1})};
  EXPECT_NEAR(joined_ms(forward, backward), 24.0, 1e-6);
}

// Nothing hides collectives of another axis: both passes one after the other.
TEST(JoinedSteps, HideNoOtherCollectives) {
  EXPECT_NEAR(joined_ms(forward_of(4, Axis::Tensor), backward_of(4, Axis::Tensor)), 46.0, 1e-6);
}

TEST(JoinedSteps, SlowDownBesideACollective) {
  const topologies::Cluster cluster = topologies::load_cluster("dgx-a100:2");
  const costmodel::DeviceModel device(cluster.gpu, costmodel::load_profile("", cluster.gpu));
  const double shared =
      to_seconds(join_passes(forward_of(4), backward_of(4), device).time).value() * 1e3;
  EXPECT_GT(shared, 30.0);
  EXPECT_LT(shared, 46.0);
}

TEST(JoinedSteps, AreOneListInTurn) {
  const std::vector<Step> list = in_turn({joined_kernel(1), joined_kernel(2, {0})}, backward_of(4));
  ASSERT_EQ(list.size(), 6U);
  EXPECT_EQ(list[2].after, std::vector<int>{1});  // nothing of a backward before it is rebuilt
  EXPECT_EQ(list[3].after, std::vector<int>{2});
  EXPECT_EQ(list[5].after, std::vector<int>{4});
}

Plan mixture_plan(const std::string& schedule, int chunks, int ep) {
  models::NetworkSpec spec = mixture(32, 4).spec;
  spec.layers = 8;
  Plan plan = in_pipeline(small_plan(spec, "hgx-h100:8"), schedule,
                          {.pp = 4, .dp = 16, .tp = 1, .micro_batches = 16, .chunks = chunks});
  plan.blocks.front().layout.ep = ep;
  plan.micro_batch = 4;
  plan.batch *= 4;
  return plan;
}

// Compute, bubble, optimizer and what of communication is exposed, of the iteration.
double parts_of(const Simulation& result) {
  Seconds parts = result.breakdown.compute + result.breakdown.bubble + result.breakdown.optimizer;
  for (const auto& [group, time] : result.breakdown.exposed_communication) {
    parts += time;
  }
  return parts / result.iteration_time;
}

// What hides is part of the report, and the parts still add up to the iteration, but for what
// kernels lose beside a collective, which is no part.
TEST(JoinedPasses, HideExpertParallelCommunication) {
  for (const auto& [schedule, chunks] : {std::pair("dualpipe", 1), std::pair("dualpipe-v", 2)}) {
    Plan plan = mixture_plan(schedule, chunks, 16);
    ASSERT_EQ(problem(plan), "") << schedule;
    const Simulation result = simulate(plan);
    Seconds hidden;
    for (const sim::DeviceUse& use : result.pipeline.devices) {
      hidden += to_seconds(use.hidden);
    }
    EXPECT_GT(hidden.value(), 0.02 * result.iteration_time.value()) << schedule;
    EXPECT_LE(parts_of(result), 1.001) << schedule;
    plan.profile.collective_sms = 0;
    EXPECT_NEAR(parts_of(simulate(plan)), 1.0, 0.02) << schedule;  // a device has unlike stages
  }
}

// What hides is taken off once: nothing of the iteration is missing or counted twice.
TEST(JoinedPasses, PartsAreTheIteration) {
  for (const auto& [schedule, chunks] :
       {std::pair("1f1b", 1), std::pair("combined-1f1b", 1), std::pair("combined-1f1b", 2)}) {
    Plan plan = mixture_plan(schedule, chunks, 16);
    plan.profile.collective_sms = 0;
    ASSERT_EQ(problem(plan), "") << schedule;
    const Simulation result = simulate(plan);
    EXPECT_EQ(result.pipeline.devices.front().hidden > SimTime{}, schedule != std::string("1f1b"));
    EXPECT_NEAR(parts_of(result), 1.0, 1e-6) << schedule;
  }
}

// A device of a mixed cluster hides what it does beside like ones; over slower GPUs, whose kernels
// take longer, as much of the same messages, and two replicas in step what both hide.
TEST(JoinedPasses, HideOnMixedClusters) {
  for (const int chunks : {1, 2}) {
    Plan plan = mixture_plan("combined-1f1b", chunks, 16);
    const Simulation plain = simulate(plan);
    MixedSimulator simulator(as_mixed(plan));
    EXPECT_EQ(simulator.run(as_mixed(plan)).iteration_time, plain.iteration_time) << chunks;
    plan.schedule = chunks == 1 ? "1f1b" : "interleaved";
    EXPECT_GT(simulate(plan).iteration_time, plain.iteration_time);
  }
  // Two pools, of which each has two of the four stages.
  Plan plan = mixture_plan("combined-1f1b", 1, 16);
  MixedPlan two = mixed_plan("hgx-h100:4+dgx-a100:4");
  two.shape = plan;
  two.shape.cluster = two.machine->cluster.pools.front().cluster;
  two.groups = {
      {.replicas = plan.dp, .micro_batches = plan.num_micro_batches(), .pools = {0, 0, 1, 1}}};
  check_mixed_plan(two, "plan");
  const Seconds joined = MixedSimulator(two).run(two).iteration_time;
  two.shape.schedule = "1f1b";
  EXPECT_LT(joined, MixedSimulator(two).run(two).iteration_time);
}

// The first half of the layers has no experts.
Plan unlike_plan(const std::string& schedule, int chunks) {
  Plan plan = mixture_plan(schedule, chunks, 16);
  models::NetworkSpec spec = plan.network.spec;
  spec.moe.first_dense_layers = spec.layers / 2;
  plan.network = models::build_network(spec, "test");
  return plan;
}

std::vector<BlockCosts::LayerRun> layers(const Plan& plan, int position, int count) {
  return {{plan.network.chain[static_cast<std::size_t>(position)], plan.layout_of(position),
           plan.micro_batch, count}};
}

// Tokens of layers with experts travel beside the kernels of layers without.
TEST(JoinedPasses, UnlikeStagesHideBesideEachOther) {
  const Plan plan = unlike_plan("dualpipe", 1);
  BlockCosts costs(plan);
  const auto dense = layers(plan, 1, 2);
  const auto experts = layers(plan, 8, 2);
  ASSERT_NE(dense.front().block, experts.front().block);
  EXPECT_EQ(costs.joined_stages(dense, dense).hidden, SimTime{});
  EXPECT_EQ(costs.joined_stages({}, experts).hidden, SimTime{});
  const auto exchanges = [&](bool backward) {
    const BlockCost& cost = costs.of(experts.front().block, plan.layout_of(8), plan.micro_batch);
    return to_sim_time((backward ? cost.backward : cost.forward).routed) * 2;
  };
  const SimTime forward = costs.joined_stages(experts, dense).hidden;
  const SimTime backward = costs.joined_stages(dense, experts).hidden;
  EXPECT_GT(forward * 4, exchanges(false));
  EXPECT_LE(forward, exchanges(false));
  EXPECT_GT(backward * 4, exchanges(true));
  EXPECT_LE(backward, exchanges(true));
}

// Replayed step by step or from one and two layers: the same.
TEST(JoinedPasses, ReplayedStagesAgreeWithLikeOnes) {
  const Plan plan = mixture_plan("dualpipe", 1, 16);
  BlockCosts costs(plan);
  const auto two = layers(plan, 2, 2);
  std::vector<BlockCosts::LayerRun> apart = layers(plan, 2, 1);
  apart.push_back(apart.front());
  const double closed = to_seconds(costs.joined_stages(two, two).hidden).value();
  ASSERT_GT(closed, 0);
  EXPECT_NEAR(to_seconds(costs.joined_stages(apart, apart).hidden).value() / closed, 1.0, 1e-6);
}

TEST(JoinedPasses, HideNothingWhereNoTokensTravel) {
  const Plan plan = mixture_plan("dualpipe", 1, 1);
  ASSERT_EQ(problem(plan), "");
  for (const sim::DeviceUse& use : simulate(plan).pipeline.devices) {
    EXPECT_EQ(use.hidden, SimTime{});
  }
}

TEST(JoinedPasses, StayAboveTheBoundsOfASearch) {
  for (const bool unlike : {false, true}) {
    for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
      for (const auto& [schedule, chunks] :
           {std::pair("dualpipe", 1), std::pair("dualpipe-v", 2), std::pair("combined-1f1b", 1),
            std::pair("combined-1f1b", 2)}) {
        Plan plan = unlike ? unlike_plan(schedule, chunks) : mixture_plan(schedule, chunks, 16);
        plan.blocks.front().layout.recompute = recompute;
        Simulator simulator(plan);
        const Seconds time = simulator.run(plan).iteration_time;
        EXPECT_LE(simulator.work_bound(plan), simulator.lower_bound(plan));
        EXPECT_LE(simulator.lower_bound(plan), simulator.list_bound(plan));
        EXPECT_LE(simulator.list_bound(plan), time);
        const StagePlacement place = simulator.placement(plan);
        EXPECT_TRUE(place.joins_passes);
        const LayoutBounds bounds = simulator.layout_bounds(plan, {1});
        EXPECT_LE(bounds.time(plan.stage_blocks, place, simulator.transfer_times()),
                  simulator.lower_bound(plan));
        EXPECT_LE(bounds.least_time(false, true), simulator.work_bound(plan));
        Plan kept = plan;  // the bound of a group is that of no recomputation
        kept.blocks.front().layout.recompute = Recompute::None;
        EXPECT_LE(simulator.layout_bounds(kept, {1}).least_time(false, true),
                  bounds.least_time(false, true));
      }
    }
  }
}

}  // namespace
}  // namespace orrery::plan
