// SPDX-License-Identifier: Apache-2.0
#include "traces/adapters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "sim/pipeline/share_costs.hpp"

namespace orrery::traces {
namespace {

using sim::CommKind;
using sim::MemoryCategory;
using sim::PassKind;
using sim::StreamKind;

// Work on device 0, a transfer of 5 ps, work on device 1; one buffer from the first to the second.
sim::Program two_devices() {
  sim::Program program;
  const auto first = program.add_stream(0, StreamKind::Compute, "compute");
  const auto second = program.add_stream(1, StreamKind::Compute, "compute");
  const auto pool = program.add_pool(0, ByteCount(100), "HBM");
  const auto producer = program.add_work(first, {10}, {.pass = PassKind::Forward});
  const auto flow = program.add_flow({}, {5}, Bytes(0), {},
                                     {.pass = PassKind::Transfer, .comm = CommKind::SendReceive});
  const auto consumer = program.add_work(second, {7}, {.pass = PassKind::Forward});
  program.depend(flow, producer);
  program.depend(consumer, flow);
  const auto buffer =
      program.add_buffer(pool, ByteCount(40), MemoryCategory::Activations, producer);
  program.consume(buffer, consumer);
  program.add_buffer(pool, ByteCount(2), MemoryCategory::Parameters, sim::kNone);
  program.finalize();
  return program;
}

TEST(ProgramTrace, SpansSitOnTheTrackOfTheirStream) {
  const sim::Program program = two_devices();
  const Trace trace = trace_of(program, sim::run(program));
  ASSERT_EQ(trace.spans.size(), 2U);
  EXPECT_EQ(trace.spans[0].track, 0U);
  EXPECT_EQ(trace.spans[0].end, SimTime{10});
  EXPECT_EQ(trace.spans[1].start, SimTime{15});
  EXPECT_EQ(trace.spans[1].category, "forward");
  EXPECT_EQ(trace.processes, (std::vector<std::string>{"device 0", "device 1"}));
}

TEST(ProgramTrace, BufferedTransferIsAnArrow) {
  const sim::Program program = two_devices();
  const Trace trace = trace_of(program, sim::run(program), {"stage 0", "stage 1"});
  ASSERT_EQ(trace.arrows.size(), 1U);
  EXPECT_EQ(trace.arrows[0].from, 0U);
  EXPECT_EQ(trace.arrows[0].to, 1U);
  EXPECT_EQ(trace.processes[1], "stage 1");
}

TEST(ProgramTrace, RendezvousShowsOnBothStreams) {
  sim::Program program;
  const auto send = program.add_stream(0, StreamKind::Send, "send");
  const auto receive = program.add_stream(1, StreamKind::Receive, "receive");
  program.add_flow(std::vector{send, receive}, {5}, Bytes(0), {}, {.pass = PassKind::Transfer});
  program.finalize();
  const Trace trace = trace_of(program, sim::run(program));
  ASSERT_EQ(trace.spans.size(), 2U);
  EXPECT_EQ(trace.spans[1].track, 1U);
  ASSERT_EQ(trace.arrows.size(), 1U);
}

TEST(ProgramTrace, MemoryFollowsBuffers) {
  const sim::Program program = two_devices();
  const Trace trace = trace_of(program, sim::run(program));
  ASSERT_EQ(trace.counters.size(), 2U);  // at 0: both buffers; at 22: the activation is gone
  const auto activations = [](const Counter& counter) {
    const auto found =
        std::ranges::find(counter.series, "activations", &std::pair<std::string, double>::first);
    return found->second;
  };
  EXPECT_EQ(trace.counters[0].at, SimTime{0});
  EXPECT_EQ(activations(trace.counters[0]), 40.0);
  EXPECT_EQ(trace.counters[1].at, SimTime{22});
  EXPECT_EQ(activations(trace.counters[1]), 0.0);
  EXPECT_EQ(trace.counters[1].series.size(), 2U);
}

TEST(ProgramTrace, NodesThatNeverRanAreLeftOut) {
  sim::Program program;
  const auto stream = program.add_stream(0, StreamKind::Compute, "compute");
  const auto counter = program.add_counter(0);
  const auto stuck = program.add_work(stream, {1}, {});
  program.wait_for(stuck, counter, 1);
  program.finalize();
  const sim::Timeline timeline = sim::run(program);
  ASSERT_TRUE(timeline.deadlock.has_value());
  EXPECT_TRUE(trace_of(program, timeline).spans.empty());
}

// Two stages, one micro-batch: F0 F0 B0 B0 with transfers of 1.
struct Pipeline {
  sim::PipelineOrder order;
  sim::PipelineCosts costs;
  Pipeline() {
    order.num_virtual_stages = 2;
    order.micro_batches = 1;
    order.device_of = {0, 1};
    order.passes = {{{PassKind::Forward, 0, 0}, {PassKind::Backward, 0, 0}},
                    {{PassKind::Forward, 1, 0}, {PassKind::Backward, 1, 0}}};
    costs.forward = {{10}, {10}};
    costs.backward = {{20}, {20}};
    costs.input_grad = {{10}, {10}};
    costs.weight_grad = {{10}, {10}};
    costs.send_forward = {{1}};
    costs.send_backward = {{1}};
    costs.activation = {ByteCount(5), ByteCount(7)};
  }
};

TEST(PipelineTrace, PassesTransfersAndActivations) {
  const Pipeline pipeline;
  const auto result = sim::evaluate_pipeline(pipeline.order, pipeline.costs,
                                             {.steady_state = true, .record_spans = true});
  const Trace trace = trace_of(
      pipeline.order, result, {.costs = &pipeline.costs, .resident = {ByteCount(3), ByteCount(4)}});
  ASSERT_EQ(trace.spans.size(), 4U);
  EXPECT_EQ(trace.spans[0].name, "F0");
  EXPECT_EQ(trace.spans[1].name, "B0");
  EXPECT_EQ(trace.spans[2].start, SimTime{11});
  EXPECT_EQ(trace.arrows.size(), 2U);  // one activation down, one gradient up
  ASSERT_EQ(trace.counters.size(), 4U);
  EXPECT_EQ(trace.counters[0].series[0].second, 3.0);
  EXPECT_EQ(trace.counters[0].series[1].second, 5.0);
  EXPECT_EQ(trace.counters[1].series[1].second, 0.0);
  EXPECT_EQ(trace.counters[1].at, result.spans[0][1].end);
}

TEST(PipelineTrace, ChunksOfOneDeviceNeedNoArrow) {
  Pipeline pipeline;
  pipeline.order.device_of = {0, 0};
  pipeline.order.passes = {{{PassKind::Forward, 0, 0},
                            {PassKind::Forward, 1, 0},
                            {PassKind::Backward, 1, 0},
                            {PassKind::Backward, 0, 0}}};
  pipeline.costs.send_forward = {{0}};
  pipeline.costs.send_backward = {{0}};
  const auto result = sim::evaluate_pipeline(pipeline.order, pipeline.costs,
                                             {.steady_state = true, .record_spans = true});
  const Trace trace = trace_of(pipeline.order, result);
  EXPECT_TRUE(trace.arrows.empty());
  EXPECT_EQ(trace.spans[1].args[2].second, Json(1));  // chunk
}

// No two passes of a list have one name.
TEST(PipelineTrace, ShardsHaveNamesOfTheirOwn) {
  const sim::ScheduleParams params{2, 3, 1, 0};
  const sim::PipelineOrder order = sim::find_schedule("vocab-1", "test").order(params);
  const auto costs = sim::share_costs(order, {SimTime{2}, SimTime{2}, SimTime{2}}).costs;
  const Trace trace = trace_of(order, sim::evaluate_pipeline(order, costs, {.record_spans = true}));
  std::set<std::pair<std::uint32_t, std::string>> names;
  for (const Span& span : trace.spans) {
    EXPECT_TRUE(names.emplace(span.track, span.name).second) << span.name;
  }
  for (const char* name : {"F0", "B2", "S0", "T2", "IF0", "IB2"}) {
    EXPECT_TRUE(names.contains({0U, name})) << name;
  }
}

// Those of the run: updates, which have numbers of their own, keep nothing longer, and what is on
// the host or on another device is not here.
TEST(PipelineTrace, ActivationsAreThoseOfTheRun) {
  for (const char* name : {"1f1b", "zb-h1", "pipedream", "pipedream-2bw", "seq1f1b", "pipeoffload",
                           "layerpipe", "chimera"}) {
    const sim::ScheduleParams params{.stages = 8, .micro_batches = 16};
    const sim::PipelineOrder order = sim::find_schedule(name, "test").order(params);
    auto costs = sim::share_costs(order, {SimTime{2}, SimTime{2}, SimTime{2}}).costs;
    costs.activation.assign(static_cast<std::size_t>(order.num_virtual_stages), ByteCount(5));
    const sim::PipelineResult result = sim::evaluate_pipeline(order, costs, {.record_spans = true});
    std::vector<double> peaks(order.passes.size());
    for (const Counter& counter : trace_of(order, result, {.costs = &costs}).counters) {
      peaks[counter.process] = std::max(peaks[counter.process], counter.series[1].second);
    }
    for (std::size_t device = 0; device < peaks.size(); ++device) {
      EXPECT_EQ(peaks[device], result.devices[device].peak_activation.bytes().value()) << name;
    }
  }
}

// A slice is no micro-batch.
TEST(PipelineTrace, SlicesAreToldFromMicroBatches) {
  const sim::PipelineOrder order =
      sim::find_schedule("seq1f1b", "test").order({.stages = 2, .micro_batches = 3, .slices = 2});
  const auto costs = sim::share_costs(order, {SimTime{2}, SimTime{2}, SimTime{2}}).costs;
  const Trace trace = trace_of(order, sim::evaluate_pipeline(order, costs, {.record_spans = true}));
  const auto found = std::find_if(trace.spans.begin(), trace.spans.end(),
                                  [](const Span& span) { return span.name == "F2.1"; });
  ASSERT_NE(found, trace.spans.end());
  const Json args(found->args);
  EXPECT_EQ(*args.find("micro_batch"), Json(2));
  EXPECT_EQ(*args.find("slice"), Json(1));
  EXPECT_EQ(trace.arrows[1].name, "activations of slice 1 of micro-batch 0");
}

// Times of runs on multiplied costs are those of the costs; joined traces keep what belongs
// together.
TEST(PipelineTrace, TracesOfSeveralRunsAreJoined) {
  const sim::PipelineOrder order = sim::find_schedule("interleaved", "test")
                                       .order({.stages = 2, .micro_batches = 2, .chunks = 2});
  const auto [costs, scale] = sim::share_costs(order, {SimTime{10}, SimTime{10}, SimTime{10}});
  ASSERT_EQ(scale, 2);
  const sim::PipelineResult result = sim::evaluate_pipeline(order, costs, {.record_spans = true});
  const Trace trace = trace_of(order, result, {.time_divisor = scale});
  EXPECT_EQ(trace.spans.front().end, SimTime{5});
  Trace all;
  append(all, trace, "one");
  append(all, trace, "two");
  ASSERT_EQ(all.processes.size(), 4U);
  EXPECT_EQ(all.processes[1], "one: stage 1");
  EXPECT_EQ(all.processes[2], "two: stage 0");
  ASSERT_EQ(all.spans.size(), 2 * trace.spans.size());
  for (std::size_t k = 0; k < all.spans.size(); ++k) {
    const Span& single = trace.spans[k % trace.spans.size()];
    EXPECT_EQ(all.spans[k].name, single.name);
    EXPECT_EQ(all.tracks[all.spans[k].track].process,
              trace.tracks[single.track].process + (k < trace.spans.size() ? 0 : 2));
  }
  ASSERT_EQ(all.arrows.size(), 2 * trace.arrows.size());
  EXPECT_EQ(all.arrows.back().to, trace.arrows.back().to + trace.spans.size());
}

}  // namespace
}  // namespace orrery::traces
