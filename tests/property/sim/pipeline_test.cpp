// SPDX-License-Identifier: Apache-2.0
// evaluate_pipeline against the event engine on the expanded program, against an independent
// accounting of the spans, and with the steady-state shortcut against without.
#include "sim/pipeline/pipeline.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "pipeline_inputs.hpp"

namespace orrery::sim {
namespace {

PipelineOrder random_registered_order(Random& random, int max_stages, int max_micro_batches) {
  while (true) {
    const auto table = schedule_table();
    const Schedule& schedule = *table[random.below(table.size())];
    ScheduleParams params;
    params.stages = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(max_stages)));
    params.micro_batches =
        1 + static_cast<int>(random.below(static_cast<std::uint64_t>(max_micro_batches)));
    params.chunks = 1 + static_cast<int>(random.below(4));
    params.warm_up = static_cast<int>(random.below(2));
    if (random.below(2) == 0) {
      params.micro_batches = std::max(1, params.micro_batches / params.stages) * params.stages;
    }
    if (schedule.check(params).empty()) {
      return schedule.order(params);
    }
  }
}

PipelineOrder any_order(Random& random, int max_stages, int max_micro_batches) {
  const int devices = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(max_stages)));
  const int stages = devices * (1 + static_cast<int>(random.below(3)));
  const int m = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(max_micro_batches)));
  switch (random.below(3)) {
    case 0:
      return random_registered_order(random, max_stages, max_micro_batches);
    case 1:
      return random_periodic_order(random, devices, stages, m);
    default:
      return random_order(random, devices, stages, std::min(m, 8));
  }
}

void expect_same(const PipelineResult& a, const PipelineResult& b) {
  RC_ASSERT(a.makespan == b.makespan);
  RC_ASSERT(a.last_backward_end == b.last_backward_end);
  RC_ASSERT(a.passes_total == b.passes_total);
  RC_ASSERT(a.devices.size() == b.devices.size());
  for (std::size_t d = 0; d < a.devices.size(); ++d) {
    const DeviceUse& x = a.devices[d];
    const DeviceUse& y = b.devices[d];
    RC_ASSERT(x.first_start == y.first_start);
    RC_ASSERT(x.last_end == y.last_end);
    RC_ASSERT(x.busy == y.busy);
    RC_ASSERT(x.idle_warm_up == y.idle_warm_up);
    RC_ASSERT(x.idle_steady == y.idle_steady);
    RC_ASSERT(x.idle_cool_down == y.idle_cool_down);
    RC_ASSERT(x.waiting_for_transfer == y.waiting_for_transfer);
    RC_ASSERT(x.peak_activation == y.peak_activation);
    RC_ASSERT(x.peak_chunks == y.peak_chunks);
  }
}

void expect_engine_agrees(const PipelineOrder& order, const PipelineResult& result,
                          const Program& program, const Timeline& timeline) {
  RC_ASSERT(!timeline.deadlock.has_value());
  RC_ASSERT(timeline.makespan == result.makespan);
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    const auto nodes = program.nodes_of(static_cast<StreamId>(d));
    // A joined pass and the one after it are one node.
    std::size_t node = 0;
    for (std::size_t k = 0; k < result.spans[d].size(); ++k, ++node) {
      RC_ASSERT(node < nodes.size());
      RC_ASSERT(timeline.start[nodes[node]] == result.spans[d][k].start);
      while (result.spans[d][k].pass.joined) {
        ++k;
      }
      RC_ASSERT(timeline.end[nodes[node]] == result.spans[d][k].end);
    }
    RC_ASSERT(node == nodes.size());
    RC_ASSERT(timeline.peaks[d].bytes == result.devices[d].peak_activation);
  }
}

TEST(PipelineProperty, AgreesWithTheEngineOnTheExpandedProgram) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    const PipelineOrder order = any_order(random, 6, 20);
    RC_ASSERT(check_order(order, order.micro_batches).empty());
    const PipelineCosts costs = random_costs(random, order, random.below(500), random.below(3000));
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    const Program program = expand_pipeline(order, costs);
    expect_engine_agrees(order, result, program, run(program));
    expect_engine_agrees(order, result, program, sweep(program));
  }));
}

// Shards of an output layer that meet for every slice, whose gradients run backward.
TEST(PipelineProperty, MeetingsOfSlicesAgreeWithTheEngine) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    ScheduleParams params{2 + static_cast<int>(random.below(8)),
                          1 + static_cast<int>(random.below(4)),
                          1 + static_cast<int>(random.below(2)), 0};
    params.slices = params.stages + static_cast<int>(random.below(4));
    const PipelineOrder order = find_schedule("slimpipe-vocab", "test").order(params);
    RC_ASSERT(check_order(order, order.micro_batches).empty());
    const PipelineCosts costs = random_costs(random, order, 300, random.below(2) * 200);
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    const Program program = expand_pipeline(order, costs);
    expect_engine_agrees(order, result, program, run(program));
  }));
}

// Every unit has passes and transfers of its own; where those are all alike, nothing changes.
TEST(PipelineProperty, UnitsOfDifferentLengthAgreeWithTheEngine) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    const PipelineOrder order = any_order(random, 5, 12);
    PipelineCosts costs = random_costs(random, order, random.below(500), random.below(3000));
    costs.kind_of.clear();
    costs.hidden.clear();
    costs.kinds = 0;
    const auto units = static_cast<std::size_t>(order.micro_batches);
    PipelineCosts alike = costs;
    const auto spread = [&](const std::vector<SimTime>& stages, std::vector<SimTime>& all,
                            std::vector<SimTime>& differing) {
      for (std::size_t s = 0; s < costs.forward.size(); ++s) {
        const SimTime usual = s < stages.size() ? stages[s] : SimTime{};
        all.insert(all.end(), units, usual);
        for (std::size_t unit = 0; unit < units; ++unit) {
          differing.push_back(usual == SimTime{} ? usual : random_time(random, 1, 2000));
        }
      }
    };
    spread(costs.send_forward, alike.unit_send_forward, costs.unit_send_forward);
    spread(costs.send_backward, alike.unit_send_backward, costs.unit_send_backward);
    PipelineCosts plain = costs;
    plain.unit_send_forward.clear();
    plain.unit_send_backward.clear();
    RC_ASSERT(evaluate_pipeline(order, alike).makespan == evaluate_pipeline(order, plain).makespan);
    spread(costs.forward, alike.unit_forward, costs.unit_forward);
    spread(costs.backward, alike.unit_backward, costs.unit_backward);
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    const Program program = expand_pipeline(order, costs);
    expect_engine_agrees(order, result, program, run(program));
  }));
}

// Idle time by phase and the time in which only a transfer was missing, from the spans alone.
void expect_accounting(const PipelineOrder& order, const PipelineResult& result) {
  std::map<std::tuple<bool, int, std::uint32_t>, SimTime> end;  // (forward?, stage, micro-batch)
  for (const auto& spans : result.spans) {
    for (const PassSpan& span : spans) {
      if (span.pass.kind != PassKind::WeightGrad) {
        end[{span.pass.kind == PassKind::Forward, span.pass.virtual_stage, span.pass.micro_batch}] =
            span.end;
      }
    }
  }
  for (std::size_t d = 0; d < result.spans.size(); ++d) {
    const auto& spans = result.spans[d];
    const DeviceUse& use = result.devices[d];
    SimTime busy;
    SimTime first_backward = SimTime::max();
    SimTime last_forward;
    for (const PassSpan& span : spans) {
      busy += span.end - span.start;
      if (span.pass.kind == PassKind::Forward) {
        last_forward = span.end;
      } else {
        first_backward = std::min(first_backward, span.start);
      }
    }
    SimTime idle[3];
    SimTime waiting;
    for (std::size_t k = 1; k < spans.size(); ++k) {
      const SimTime from = spans[k - 1].end;
      const SimTime to = spans[k].start;
      idle[to <= first_backward ? 0 : from >= last_forward ? 2 : 1] += to - from;
      const Pass& pass = spans[k].pass;
      const int producer = pass.virtual_stage + (pass.kind == PassKind::Forward ? -1 : 1);
      if (pass.kind != PassKind::WeightGrad && producer >= 0 &&
          producer < order.num_virtual_stages) {
        const SimTime sent = end[{pass.kind == PassKind::Forward, producer, pass.micro_batch}];
        waiting += to - std::min(to, std::max(from, sent));
      }
    }
    RC_ASSERT(use.first_start == spans.front().start);
    RC_ASSERT(use.last_end == spans.back().end);
    RC_ASSERT(use.busy == busy);
    RC_ASSERT(use.idle_warm_up == idle[0]);
    RC_ASSERT(use.idle_steady == idle[1]);
    RC_ASSERT(use.idle_cool_down == idle[2]);
    RC_ASSERT(use.waiting_for_transfer == waiting);
    RC_ASSERT(busy + idle[0] + idle[1] + idle[2] == use.last_end - use.first_start);
  }
}

TEST(PipelineProperty, AccountsForEveryMoment) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    const PipelineOrder order = any_order(random, 8, 40);
    RC_PRE(order.is_plain());  // the books below know one chain of layers
    const PipelineCosts costs = random_costs(random, order, random.below(500), random.below(3000));
    expect_accounting(order, evaluate_pipeline(order, costs, {.record_spans = true}));
  }));
}

TEST(PipelineProperty, TimesAloneAreThoseOfTheBooks) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    const PipelineOrder order = any_order(random, 8, 40);
    RC_PRE(order.is_plain());
    PipelineCosts costs = random_costs(random, order, random.below(500), random.below(3000));
    costs.first_forward_extra.clear();
    costs.last_backward_extra.clear();
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    const std::vector<std::vector<SimTime>> ends = pass_ends(order, costs);
    for (std::size_t d = 0; d < ends.size(); ++d) {
      RC_ASSERT(ends[d].size() == result.spans[d].size());
      for (std::size_t at = 0; at < ends[d].size(); ++at) {
        RC_ASSERT(ends[d][at] == result.spans[d][at].end);
      }
    }
    std::vector<std::int64_t> idle;  // of each device, from time 0 on
    for (const DeviceUse& use : result.devices) {
      idle.push_back((use.last_end - use.busy).ps + 1);
    }
    RC_ASSERT(makespan_within(order, costs, idle) == result.makespan);
    --idle[random.below(idle.size())];
    RC_ASSERT(!makespan_within(order, costs, idle).has_value());
  }));
}

// Differences between stages from none over tiny (the steady state comes late) to large.
std::uint64_t random_spread(Random& random) {
  constexpr std::uint64_t kSpreads[] = {0, 1, 2, 5, 40, 1000};
  return kSpreads[random.below(6)];
}

// Whether it was taken.
bool expect_shortcut_exact(Random& random, const PipelineOrder& order) {
  const PipelineCosts costs =
      random_costs(random, order, random_spread(random), random.below(2) * random.below(2000));
  const PipelineResult full = evaluate_pipeline(order, costs, {.steady_state = false});
  const PipelineResult fast = evaluate_pipeline(order, costs);
  RC_ASSERT(full.passes_evaluated == full.passes_total);
  RC_ASSERT(fast.passes_evaluated <= fast.passes_total);
  RC_CLASSIFY(fast.passes_evaluated < fast.passes_total, "passes skipped");
  expect_same(full, fast);
  return fast.passes_evaluated < fast.passes_total;
}

TEST(PipelineProperty, SteadyStateIsExactForSchedules) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    expect_shortcut_exact(random, random_registered_order(random, 16, 500));
  }));
}

TEST(PipelineProperty, SteadyStateIsExactForRandomPeriodicOrders) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    const int devices = 1 + static_cast<int>(random.below(6));
    const int stages = devices * (1 + static_cast<int>(random.below(3)));
    const int m = 1 + static_cast<int>(random.below(400));
    expect_shortcut_exact(random, random_periodic_order(random, devices, stages, m));
  }));
}

// Attachments between any lanes, with lags and latencies.
TEST(PipelineProperty, SteadyStateIsExactWithEdges) {
  int taken = 0;
  EXPECT_TRUE(rc::check([&taken](std::uint64_t seed) {
    Random random(seed);
    const int devices = 1 + static_cast<int>(random.below(6));
    const int stages = devices * (1 + static_cast<int>(random.below(3)));
    const int m = 1 + static_cast<int>(random.below(400));
    const int edges = 1 + static_cast<int>(random.below(8));
    const PipelineOrder order = random_periodic_order(random, devices, stages, m, edges);
    RC_ASSERT(check_order(order, m).empty());
    taken += expect_shortcut_exact(random, order) ? 1 : 0;
  }));
  EXPECT_GT(taken, 30);
}

// Barriers over shards of the output layer, also with the times by which the lists were made.
TEST(PipelineProperty, SteadyStateIsExactForSharedOutputLayers) {
  int taken = 0;
  EXPECT_TRUE(rc::check([&taken](std::uint64_t seed) {
    Random random(seed);
    constexpr const char* kNames[] = {"vocab-1", "vocab-2", "interlaced"};
    const Schedule& schedule = find_schedule(kNames[random.below(3)], "test");
    ScheduleParams params{2 + static_cast<int>(random.below(10)),
                          100 + static_cast<int>(random.below(300)),
                          1 + static_cast<int>(random.below(2)), 0};
    params.times = {{random_time(random, 100, 200), random_time(random, 100, 200),
                     random_time(random, 100, 200), random_time(random, 0, 9)}};
    taken += expect_shortcut_exact(random, schedule.order(params)) ? 1 : 0;
  }));
  EXPECT_GT(taken, 50);
}

TEST(PipelineProperty, SteadyStateIsExactForAnyOrder) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    expect_shortcut_exact(random, any_order(random, 8, 60));
  }));
}

// P21: all times multiplied by a power of two.
TEST(PipelineProperty, ScalesWithItsTimes) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Random random(seed);
    const PipelineOrder order = any_order(random, 8, 60);
    PipelineCosts costs = random_costs(random, order, 100, 1000);
    const PipelineResult one = evaluate_pipeline(order, costs);
    for (auto* times : {&costs.edge_latency, &costs.forward, &costs.input_grad, &costs.weight_grad,
                        &costs.backward, &costs.send_forward, &costs.send_backward,
                        &costs.first_forward_extra, &costs.last_backward_extra, &costs.hidden}) {
      for (SimTime& time : *times) {
        time.ps *= 8;
      }
    }
    RC_ASSERT(evaluate_pipeline(order, costs).makespan == one.makespan * 8);
  }));
}

}  // namespace
}  // namespace orrery::sim
