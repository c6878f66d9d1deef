// SPDX-License-Identifier: Apache-2.0
// Asynchronous pipelines whose stages are on several devices each.
#include "sim/orders/replicated_stages.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "sim/engine/engine.hpp"
#include "sim/pipeline/versions.hpp"

namespace orrery::sim {
namespace {

ScheduleParams dealt_params(std::vector<int> replicas, int rounds = 1) {
  ScheduleParams params;
  params.stages = static_cast<int>(replicas.size());
  params.replicas_of = std::move(replicas);
  params.micro_batches = static_cast<int>(turns_of(params)) * rounds;
  return params;
}

PipelineOrder dealt_order(const char* name, const ScheduleParams& params) {
  const Schedule& schedule = find_schedule(name, "test");
  EXPECT_EQ(to_text(schedule.check(params)), "");
  PipelineOrder order = schedule.order(params);
  EXPECT_EQ(check_order(order, order.micro_batches), "");
  return order;
}

// By stage of the model; transfers and all-reduces take the same.
PipelineCosts dealt_costs(const PipelineOrder& order, const std::vector<std::int64_t>& forward,
                          const std::vector<std::int64_t>& backward, std::int64_t send = 0) {
  PipelineCosts costs;
  for (std::size_t s = 0; s < order.device_of.size(); ++s) {
    const auto own = static_cast<std::size_t>(stage_of_copy(order, s));
    costs.forward.push_back({forward[own]});
    costs.backward.push_back({backward[own]});
    costs.activation.emplace_back(1);
  }
  costs.send_forward.assign(order.device_of.size() - 1, {send});
  costs.send_backward = costs.send_forward;
  costs.input_grad.assign(costs.forward.size(), {});
  costs.weight_grad = costs.input_grad;
  costs.edge_latency.assign(order.edges.size(), {send});
  return costs;
}

// Micro-batch b is on device b mod r of a stage with both passes; updates follow rounds.
TEST(ReplicatedStages, MicroBatchesGoToReplicasInTurn) {
  const PipelineOrder order = dealt_order("pipedream", dealt_params({15, 1}));
  ASSERT_EQ(order.passes.size(), 16u);
  const PassInputs inputs(order);
  for (std::size_t device = 0; device < 16; ++device) {
    std::vector<int> forwards;
    std::vector<int> backwards;
    int updates = 0;
    for (const Pass& pass : order.passes[device]) {
      EXPECT_EQ(stage_of_copy(order, pass.virtual_stage), device < 15 ? 0 : 1);
      updates += pass.kind == PassKind::Optimizer ? 1 : 0;
      if (pass.kind != PassKind::Optimizer) {
        (pass.kind == PassKind::Forward ? forwards : backwards).push_back(inputs.number_of(pass));
      }
    }
    EXPECT_EQ(forwards, backwards);
    EXPECT_EQ(updates, static_cast<int>(backwards.size()));
    for (std::size_t n = 0; n < forwards.size(); ++n) {
      const auto at = static_cast<int>(n);
      EXPECT_EQ(forwards[n], device < 15 ? static_cast<int>(device) + 15 * at : at);
    }
  }
  // Two rounds are in flight on the first stage, as many as PipeDream's runtime admits.
  EXPECT_EQ(in_flight(dealt_params({15, 1})), (std::vector<int>{2, 1}));
  EXPECT_EQ(in_flight(dealt_params({13, 2, 1})), (std::vector<int>{2, 2, 1}));
  EXPECT_EQ(in_flight(dealt_params({1, 1, 1})), (std::vector<int>{3, 2, 1}));
}

// An update waits for the gradients of all replicas in its round, which arrive one transfer later.
TEST(ReplicatedStages, UpdatesWaitForTheRound) {
  const PipelineOrder order = dealt_order("pipedream", dealt_params({3, 1}));
  const PipelineResult result =
      evaluate_pipeline(order, dealt_costs(order, {30, 10}, {60, 20}, 4), {.record_spans = true});
  const auto spans_of = [&](std::size_t device, PassKind kind) {
    std::vector<PassSpan> spans;
    std::copy_if(result.spans[device].begin(), result.spans[device].end(),
                 std::back_inserter(spans),
                 [kind](const PassSpan& span) { return span.pass.kind == kind; });
    return spans;
  };
  for (std::size_t device = 0; device < 3; ++device) {
    const std::vector<PassSpan> updates = spans_of(device, PassKind::Optimizer);
    ASSERT_EQ(updates.size(), static_cast<std::size_t>(order.micro_batches));
    for (std::size_t round = 0; round < updates.size(); ++round) {
      SimTime arrives;
      for (std::size_t other = 0; other < 3; ++other) {
        const SimTime end = spans_of(other, PassKind::Backward)[round].end;
        arrives = std::max(arrives, other == device ? end : end + SimTime{4});
      }
      EXPECT_EQ(updates[round].start, arrives);
    }
  }
}

// The slowest stage sets the period, its time over its replicas, where a round may be late: of
// more stages a round waits for the way of its last micro-batch.
TEST(ReplicatedStages, SlowestStageSetsThePeriod) {
  struct Case {
    std::vector<int> replicas;
    std::vector<std::int64_t> forward, backward;
    double period;
  };
  const std::vector<Case> cases = {{{15, 1}, {150, 10}, {300, 20}, 30},
                                   {{15, 1}, {150, 12}, {300, 24}, 36},
                                   {{3, 1}, {60, 5}, {90, 10}, 50},
                                   {{3, 3}, {30, 24}, {60, 48}, 30}};
  for (const Case& one : cases) {
    const PipelineOrder order = dealt_order("pipedream", dealt_params(one.replicas));
    const PipelineResult result = evaluate_pipeline(
        order, dealt_costs(order, one.forward, one.backward), {.record_spans = true});
    EXPECT_DOUBLE_EQ(steady_period(order, result), one.period);
  }
}

// Any replicas: complete, in order, no deadlock; the engine agrees; what stages hold is what they
// may, and versions and staleness follow from it.
TEST(ReplicatedStages, RunForAnyReplicas) {
  EXPECT_TRUE(rc::check([] {
    std::vector<int> replicas;
    for (int left = *rc::gen::inRange(1, 6); left > 0; --left) {
      replicas.push_back(*rc::gen::inRange(1, 7));
    }
    const ScheduleParams params = dealt_params(replicas);
    const PipelineOrder order = dealt_order("pipedream", params);
    std::vector<std::int64_t> forward;
    std::vector<std::int64_t> backward;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      forward.push_back(*rc::gen::inRange(1, 40));
      backward.push_back(*rc::gen::inRange(1, 40));
    }
    const PipelineCosts costs = dealt_costs(order, forward, backward, *rc::gen::inRange(0, 9));
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    const Timeline timeline = run(expand_pipeline(order, costs));
    RC_ASSERT(!timeline.deadlock.has_value());
    RC_ASSERT(timeline.makespan == result.makespan);
    const std::vector<int> held = in_flight(params);
    const std::vector<VersionUseOfStage> use = count_versions(order);
    for (std::size_t s = 0; s < order.device_of.size(); ++s) {
      const auto own = static_cast<std::size_t>(stage_of_copy(order, s));
      RC_ASSERT(result.devices[order.device_of[s]].peak_chunks == held[own]);
      RC_ASSERT(use[s].staleness == held[own] - 1);
      RC_ASSERT(use[s].versions == held[own]);
    }
    // Nothing is faster than the slowest stage.
    double bound = 0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      bound = std::max(bound, static_cast<double>(forward[i] + backward[i]) / replicas[i]);
    }
    RC_ASSERT(steady_period(order, result) >= bound * (1 - 1e-9));
  }));
}

// One version a batch, also where replicas share it.
TEST(ReplicatedStages, TwoVersionsOfCoalescedGradients) {
  for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {3, 2, 1}, {4, 4}}) {
    const ScheduleParams params = dealt_params(replicas, 3);
    const PipelineOrder order = dealt_order("pipedream-2bw", params);
    const VersionUseOfStage worst = worst_of(count_versions(order));
    EXPECT_EQ(worst.staleness, 1);
    EXPECT_EQ(worst.versions, 2);
    std::int64_t updates = 0;
    for (const auto& list : order.passes) {
      updates += std::count_if(list.begin(), list.end(),
                               [](const Pass& pass) { return pass.kind == PassKind::Optimizer; });
    }
    EXPECT_EQ(updates, std::int64_t{order.iterations} *
                           std::accumulate(replicas.begin(), replicas.end(), 0));
  }
}

TEST(ReplicatedStages, RefuseWhatCannotBeDealt) {
  const Schedule& schedule = find_schedule("pipedream", "test");
  ScheduleParams params = dealt_params({15, 1});
  params.micro_batches = 16;
  EXPECT_EQ(to_text(schedule.check(params)),
            "micro-batches must be a multiple of 15 (least common multiple of the replicas), but "
            "16 is not: set micro-batches to 15");
  params = dealt_params({15, 1});
  params.stages = 3;
  EXPECT_EQ(to_text(schedule.check(params)), "replicas of 2 stages are given: set stages to 2");
  EXPECT_EQ(to_text(find_schedule("1f1b", "test").check(dealt_params({2, 1}))),
            "stages on different numbers of devices are not possible here: set replicas to 1");
  EXPECT_EQ(to_text(find_schedule("hetpipe", "test").check(dealt_params({2, 1}))),
            "stages on different numbers of devices are not possible here: set replicas to 1");
  params = dealt_params({2, 1});
  params.replicas_of = {64, 63, 61, 59};
  params.stages = 4;
  EXPECT_NE(to_text(schedule.check(params)).find("repeat too late"), std::string::npos);
  EXPECT_EQ(to_text(find_schedule("pipedream-2bw", "test").check(dealt_params({2, 1}))),
            "at least 4 micro-batches per update are required, not 2: set micro-batches to 4");
}

}  // namespace
}  // namespace orrery::sim
