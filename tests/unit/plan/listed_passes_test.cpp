// SPDX-License-Identifier: Apache-2.0
// Passes R and U of schedule documents in plans: what they take, what is held, and the documents
// that plans refuse.
#include "plan/stage/listed_passes.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/split_backward.hpp"
#include "sim/orders/schedule_document.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"
#include "tests/unit/sim/listed_document.hpp"

namespace orrery::plan {
namespace {

using sim::PassKind;
using testing::HasSubstr;

Plan with_schedule_text(Plan plan, const std::string& text) {
  plan.schedule_document = std::make_shared<const sim::ScheduleDocument>(
      sim::read_schedule_document(parse_json(text, "mine.json"), "mine.json"));
  plan.schedule = "mine";
  return plan;
}

Plan with_rule(const Plan& plan, const std::string& members) {
  return with_schedule_text(
      plan, R"({"schema": "orrery-schedule", "version": 1, "name": "mine", )" + members + "}");
}

Plan with_lists(const Plan& plan, const sim::PipelineOrder& order) {
  return with_schedule_text(plan, sim::document_of(order));
}

sim::PipelineOrder lists_of(const Plan& plan) {
  return schedule_order(plan, schedule_params(plan));
}

// An update of every stage after its last gradient, in each of so many iterations of the order.
sim::PipelineOrder updating(const sim::PipelineOrder& once, int iterations) {
  sim::PipelineOrder order = once;
  order.extended = true;
  order.iterations = iterations;
  order.micro_batches = once.micro_batches * iterations;
  for (std::size_t device = 0; device < once.passes.size(); ++device) {
    std::vector<sim::Pass>& list = order.passes[device];
    list.clear();
    for (int iteration = 0; iteration < iterations; ++iteration) {
      for (sim::Pass pass : once.passes[device]) {
        pass.micro_batch += static_cast<std::uint32_t>(iteration * once.micro_batches);
        list.push_back(pass);
      }
      for (std::size_t stage = 0; stage < once.device_of.size(); ++stage) {
        if (once.device_of[stage] == device) {
          list.emplace_back(PassKind::Optimizer, static_cast<std::uint16_t>(stage),
                            static_cast<std::uint32_t>(iteration));
        }
      }
    }
  }
  return order;
}

// Every pass in so many slices: forwards in order, gradients in reverse.
sim::PipelineOrder in_slices(sim::PipelineOrder order, int slices) {
  order.slices = slices;
  order.micro_batches *= slices;
  for (sim::Chain& chain : order.chains) {
    chain.units *= slices;
    chain.first_unit *= slices;
  }
  for (std::vector<sim::Pass>& list : order.passes) {
    std::vector<sim::Pass> cut;
    for (const sim::Pass& pass : list) {
      for (int k = 0; k < slices; ++k) {
        sim::Pass& slice = cut.emplace_back(pass);
        const int at = pass.kind == PassKind::Forward ? k : slices - 1 - k;
        slice.micro_batch =
            pass.micro_batch * static_cast<std::uint32_t>(slices) + static_cast<std::uint32_t>(at);
      }
    }
    list = std::move(cut);
  }
  return order;
}

constexpr const char* kEager = R"("placement": "loop", "warm_up": {"per_later_device": 1})";
constexpr const char* kEagerAgain =
    R"("placement": "loop", "warm_up": {"per_later_device": 1}, "recompute": true)";

// Untied, so that stages may update by themselves.
Plan untied() {
  Plan plan = small_plan();
  plan.network.spec.tied_embeddings = false;
  plan.network = models::build_network(plan.network.spec, "test");
  return plan;
}

// One stage: every micro-batch takes one forward more, and nothing else changes.
TEST(RecomputePasses, TakeWhatTheForwardTakes) {
  const Plan alone = in_pipeline(small_plan(), "1f1b", {.pp = 1, .dp = 8, .micro_batches = 8});
  const Simulation once = simulate(with_rule(alone, kEager), {.record_spans = true});
  const Simulation again = simulate(with_rule(alone, kEagerAgain), {.record_spans = true});
  EXPECT_EQ(again.passes.recompute, again.passes.forward);
  EXPECT_EQ(again.passes.backward, once.passes.backward);
  EXPECT_EQ((again.pipeline.makespan - once.pipeline.makespan).ps, 8 * once.passes.forward[0].ps);
  EXPECT_GT(again.breakdown.recompute, once.breakdown.recompute);
  // Forward, forward, backward: 8 of 6 flops a parameter and token, masked scores in all of them.
  EXPECT_EQ(once.hfu_fraction, once.mfu_fraction);
  EXPECT_NEAR(again.hfu_fraction / again.mfu_fraction, 4.0 / 3.0, 1e-12);
}

// On the list itself: from F to R the input, from R to the end of the backward the activation.
ByteCount most_held(const Plan& plan, const sim::PipelineOrder& order, std::size_t device) {
  BlockCosts costs(plan);
  SplitBackwards splits;
  std::vector<StageCost> stages;
  std::vector<SplitBackwards::Kept> kept;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(add_up_stage(content, plan, costs));
    kept.push_back(splits.kept(content, plan, costs));
  }
  const std::vector<bool> again = sim::recomputed_stages(order);
  ByteCount held;
  ByteCount most;
  for (const sim::Pass& pass : order.passes[device]) {
    const std::size_t s = pass.virtual_stage;
    const ByteCount whole = stages[s].saved + stages[s].saved_ends;
    const ByteCount input = s == 0 ? ByteCount() : stages[s - 1].boundary;
    const ByteCount left = kept[s].layers + kept[s].ends;
    if (pass.kind == PassKind::Forward) {
      held += again[s] ? input : whole;
    } else if (pass.kind == PassKind::Recompute) {
      held += whole - input;
    } else if (pass.kind == PassKind::InputGrad) {
      held += left - whole;
    } else {
      held = held - (pass.kind == PassKind::WeightGrad ? left : whole);
    }
    most = std::max(most, held);
  }
  EXPECT_EQ(held, ByteCount());
  return most;
}

TEST(RecomputePasses, KeepTheInputAlone) {
  for (const char* placement : {"loop", "v"}) {
    for (const int chunks : {1, 2}) {
      for (const bool split : {false, true}) {
        if (chunks == 1 && std::string_view(placement) == "v") {
          continue;
        }
        const Plan plan =
            with_rule(in_pipeline(small_plan(), "1f1b", {.chunks = chunks}),
                      fmt::format(R"("placement": "{}", "recompute": true, "split_backward": {})",
                                  placement, split));
        ASSERT_EQ(problem(plan), "");
        Simulator simulator(plan);
        const std::vector<StageMemory> memory = simulator.memory(plan);
        const sim::PipelineOrder order = simulator.order(plan);
        for (std::size_t device = 0; device < memory.size(); ++device) {
          EXPECT_EQ(memory[device].activations + memory[device].ends,
                    most_held(plan, order, device))
              << placement << chunks << split << device;
        }
      }
    }
  }
}

// What every bound promises, for one chunk and for two, of which a device never holds both whole.
TEST(RecomputePasses, StayWithinTheBounds) {
  for (const int chunks : {1, 2}) {
    const Plan plan =
        with_rule(in_pipeline(small_plan(), "1f1b", {.chunks = chunks}),
                  chunks == 1 ? kEagerAgain : R"("placement": "v", "recompute": true)");
    ASSERT_EQ(problem(plan), "");
    Simulator simulator(plan);
    const Simulation result = simulator.run(plan);
    EXPECT_LE(simulator.lower_bound(plan), simulator.list_bound(plan));
    EXPECT_LE(simulator.list_bound(plan), result.iteration_time);
    ByteCount fullest;
    for (const StageMemory& stage : result.memory) {
      fullest = std::max(fullest, stage.total());
    }
    LayoutBounds bounds = simulator.layout_bounds(plan, {1});
    const StagePlacement place = simulator.placement(plan);
    EXPECT_LE(bounds.memory(plan.stage_blocks, place).front(), fullest);
    EXPECT_LE(bounds.least_memory(0, true), fullest);
    EXPECT_LE(bounds.time_within(plan.stage_blocks, place, 0, fullest), result.iteration_time);
    EXPECT_EQ(simulate(read_plan(to_json(plan), "again")).iteration_time, result.iteration_time);
  }
}

TEST(RecomputePasses, AreReplayed) {
  const Plan plan = in_pipeline(small_plan(), "1f1b");
  const Plan again = with_rule(plan, kEagerAgain);
  const std::vector<MemoryPeak> all = replay_memory(plan);
  const std::vector<MemoryPeak> inputs = replay_memory(again);
  const std::vector<StageMemory> stages = Simulator(again).memory(again);
  const std::vector<StageMemory> plain = Simulator(plan).memory(plan);
  const ByteCount boundary(2048 * 1024 * 2);
  for (std::size_t device = 0; device + 1 < stages.size(); ++device) {
    EXPECT_LT(inputs[device].allocated, all[device].allocated) << device;
    // What lives shortly is no more: a layer at a time, and the input beside it.
    EXPECT_LE(inputs[device].allocated - stages[device].allocated(),
              all[device].allocated - plain[device].allocated() + boundary)
        << device;
    EXPECT_GT(inputs[device].allocated, stages[device].parameters + stages[device].gradients +
                                            stages[device].optimizer + stages[device].activations);
  }
  // One in flight: nothing is gained by running it again.
  EXPECT_NEAR(static_cast<double>(inputs.back().allocated.value()),
              static_cast<double>(all.back().allocated.value()), 1e6);
}

// One stage ends its step alone in either case.
TEST(ListedUpdates, TakeTheEndOfAStep) {
  const Plan alone = in_pipeline(untied(), "1f1b", {.pp = 1, .dp = 8, .micro_batches = 8});
  const Simulation meets = simulate(alone);
  for (const int iterations : {1, 3}) {
    const Plan plan = with_lists(alone, updating(lists_of(alone), iterations));
    ASSERT_EQ(problem(plan), "");
    const Simulation result = simulate(plan);
    EXPECT_TRUE(result.synchronous);
    EXPECT_EQ(result.staleness, 0);
    EXPECT_EQ(result.weight_versions, 1);
    EXPECT_NEAR(result.iteration_time.value(), meets.iteration_time.value(), 1e-11);
    EXPECT_EQ(result.memory.front().total(), meets.memory.front().total());
  }
}

// Stages that do not meet are ready for the next iteration before the slowest has updated.
TEST(ListedUpdates, LetIterationsOverlap) {
  const Plan plan = in_pipeline(untied(), "1f1b", {.micro_batches = 8});
  const sim::PipelineOrder order = lists_of(plan);
  const Seconds meets = simulate(plan).iteration_time;
  Seconds before = meets;
  for (const int iterations : {1, 4}) {
    const Plan listed = with_lists(plan, updating(order, iterations));
    ASSERT_EQ(problem(listed), "");
    Simulator simulator(listed);
    const Simulation result = simulator.run(listed);
    EXPECT_LE(result.iteration_time, before * (1 + 1e-9)) << iterations;
    EXPECT_LE(simulator.lower_bound(listed), result.iteration_time);
    EXPECT_LE(simulator.work_bound(listed), result.iteration_time);
    EXPECT_GE(result.bubble_fraction, 0);
    EXPECT_GT(result.breakdown.optimizer, Seconds());
    EXPECT_EQ(simulate(read_plan(to_json(listed), "again")).iteration_time, result.iteration_time);
    before = result.iteration_time;
  }
}

// Lists of asynchronous schedules cost what the schedules cost whose they are.
TEST(ListedUpdates, OfAsynchronousSchedulesTakeAsLong) {
  for (const char* name : {"pipedream", "pipedream-2bw", "pipedream-vertical-sync", "xpipe"}) {
    const Plan plan = in_pipeline(small_plan(), name, {.micro_batches = 8});
    const Plan listed = with_lists(plan, lists_of(plan));
    ASSERT_EQ(problem(listed), "") << name;
    const Simulation expected = simulate(plan);
    const Simulation result = simulate(listed);
    EXPECT_FALSE(result.synchronous);
    EXPECT_EQ(result.iteration_time, expected.iteration_time) << name;
    EXPECT_EQ(result.staleness, expected.staleness) << name;
    EXPECT_EQ(result.weight_versions, expected.weight_versions) << name;
    for (std::size_t device = 0; device < result.memory.size(); ++device) {
      EXPECT_EQ(result.memory[device].total(), expected.memory[device].total()) << name;
    }
  }
}

// A credit of one: a micro-batch begins when the one before it has been through all stages and the
// last one has said so.
TEST(ListedEdges, TakeAMessage) {
  const Plan plan = in_pipeline(small_plan(), "1f1b", {.micro_batches = 8});
  std::string text = sim::document_of(lists_of(plan));
  text.pop_back();
  const Plan listed =
      with_schedule_text(plan, text + R"(, "edges": [{"from": {"pass": "BW", "stage": 3},
                                   "to": {"pass": "F", "stage": 0}, "shift": 1}]})");
  ASSERT_EQ(problem(listed), "");
  Simulator simulator(listed);
  const Simulation result = simulator.run(listed, {.record_spans = true});
  EXPECT_GT(result.passes.edge_latency.front(), SimTime{});
  EXPECT_LT(result.passes.edge_latency.front(), result.passes.send_forward.front());
  const auto first = [&](std::size_t device, PassKind kind, std::uint32_t micro_batch) {
    const auto& spans = result.pipeline.spans[device];
    return *std::find_if(spans.begin(), spans.end(), [&](const sim::PassSpan& span) {
      return span.pass.kind == kind && span.pass.micro_batch == micro_batch;
    });
  };
  for (std::uint32_t micro_batch = 1; micro_batch < 8; ++micro_batch) {
    EXPECT_GE(
        first(0, PassKind::Forward, micro_batch).start,
        first(3, PassKind::Backward, micro_batch - 1).end + result.passes.edge_latency.front());
  }
  EXPECT_GT(result.iteration_time, simulate(plan).iteration_time);
  EXPECT_LE(simulator.lower_bound(listed), simulator.list_bound(listed));
  EXPECT_LE(simulator.list_bound(listed), result.iteration_time);
  EXPECT_EQ(simulate(read_plan(to_json(listed), "again")).iteration_time, result.iteration_time);
}

TEST(ListedPasses, WhatAPlanCannotRunIsNamed) {
  const Plan plan = in_pipeline(untied(), "1f1b", {.micro_batches = 8});
  sim::PipelineOrder twice =
      updating(lists_of(in_pipeline(untied(), "1f1b", {.micro_batches = 4})), 2);
  twice.iterations = 1;
  EXPECT_THAT(problem(with_lists(plan, twice)), HasSubstr(R"(lists 2 updates "U")"));
  Plan tied = in_pipeline(small_plan(), "1f1b", {.micro_batches = 8});
  ASSERT_TRUE(tied.network.spec.tied_embeddings);
  EXPECT_THAT(problem(with_lists(tied, updating(lists_of(tied), 1))), HasSubstr("tied table"));
  Plan sliced = plan;
  sliced.slices = 4;
  EXPECT_THAT(problem(with_rule(sliced, R"("placement": "loop", "recompute": true,
      "warm_up": {"micro_batches": 1, "per_later_device": 1})")),
              HasSubstr("set slices to 1"));
  EXPECT_THAT(problem(with_rule(sliced, R"("placement": "loop", "split_backward": true,
      "warm_up": {"micro_batches": 3, "per_later_device": 4}, "weight_grads": {"late": 1})")),
              HasSubstr("set slices to 1, or leave \"split_backward\" out"));
  EXPECT_THAT(
      problem(with_lists(
          sliced, in_slices(lists_of(in_pipeline(untied(), "zb-h1", {.micro_batches = 8})), 4))),
      HasSubstr("list \"BW\" for each \"B\" and \"W\""));
  EXPECT_THAT(
      problem(with_lists(
          sliced, in_slices(lists_of(in_pipeline(untied(), "chimera", {.micro_batches = 8})), 4))),
      HasSubstr("set slices to 1, or list one direction"));
}

// Updates hold no slice, and slices cost what they do without them.
TEST(ListedUpdates, FollowSlices) {
  Plan plan = in_pipeline(untied(), "seq1f1b", {.micro_batches = 8});
  plan.slices = 4;
  const Plan listed = with_lists(plan, updating(lists_of(plan), 1));
  ASSERT_EQ(problem(listed), "");
  const Simulation expected = simulate(plan);
  const Simulation result = simulate(listed);
  EXPECT_GT(result.iteration_time.value(), expected.iteration_time.value() * 0.9);
  EXPECT_LT(result.iteration_time.value(), expected.iteration_time.value() * 1.1);
  for (std::size_t device = 0; device < result.memory.size(); ++device) {
    EXPECT_EQ(result.memory[device].total(), expected.memory[device].total()) << device;
  }
}

// What a pace is read off stays where it was asked for, with the order that it is of.
TEST(ListedUpdates, LeaveNoSpansThatNobodyAskedFor) {
  const Plan plan = in_pipeline(untied(), "1f1b", {.micro_batches = 8});
  for (const Plan& listed : {with_lists(plan, updating(lists_of(plan), 1)),
                             in_pipeline(untied(), "pipedream", {.micro_batches = 8})}) {
    EXPECT_TRUE(simulate(listed).pipeline.spans.empty());
    const Simulation recorded = simulate(listed, {.record_spans = true});
    EXPECT_EQ(recorded.pipeline.spans.size(), recorded.order.passes.size());
  }
}

// Its update on the host is part of the update.
TEST(ListedUpdates, OnTheHostTakeTheirTime) {
  Plan plan = in_pipeline(untied(), "pipedream-2bw", {.micro_batches = 8});
  const Seconds device = simulate(plan).iteration_time;
  plan.blocks.front().layout.offload.optimizer = Tier::Host;
  EXPECT_GT(simulate(plan).iteration_time, device);
}

// DualPipe cuts some of its backwards: each waits for the data ranks as one of its kind does.
TEST(ListedPasses, PartsOfAnIterationAreNoLongerThanIt) {
  for (const char* schedule : {"dualpipe", "dualpipe-v", "zb-h1"}) {
    for (const int zero : {2, 3}) {
      const int chunks = schedule == std::string("dualpipe-v") ? 2 : 1;
      Plan plan = in_pipeline(small_plan(small_spec(), "hgx-h100:1"), schedule,
                              {.pp = 2, .dp = 2, .tp = 2, .micro_batches = 32, .chunks = chunks});
      plan.blocks.front().layout.zero_stage = zero;
      const Simulation simulation = simulate(plan);
      const TimeBreakdown& parts = simulation.breakdown;
      Seconds sum = parts.compute + parts.recompute + parts.optimizer + parts.bubble;
      for (const auto& [axis, exposed] : parts.exposed_communication) {
        sum += exposed;
      }
      EXPECT_LE(sum.value(), simulation.iteration_time.value() * (1 + 1e-9)) << schedule << zero;
    }
  }
}

}  // namespace
}  // namespace orrery::plan
