// SPDX-License-Identifier: Apache-2.0
// Paths that stay at a stage of which only its set is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.hpp"
#include "search/per_block/peaks.hpp"
#include "search/per_block/split.hpp"
#include "search/per_block/tools.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

using StageList = std::vector<std::size_t>;

sim::PipelineOrder order_of(const std::string& schedule, int stages, int micro_batches,
                            int chunks) {
  sim::ScheduleParams params;
  params.stages = stages;
  params.micro_batches = micro_batches;
  params.chunks = chunks;
  return sim::find_schedule(schedule, "test").order(params);
}

// Whole picoseconds, so that sums are exact.
struct Durations {
  std::vector<double> forward, gradient, weight_grad, send;
};

double length_of(const PeakPath& path, const Durations& times, std::size_t stage) {
  double sum = path.forwards * times.forward[stage] + path.gradients * times.gradient[stage] +
               path.weight_grads * times.weight_grad[stage];
  for (std::size_t s = 0; s < times.forward.size(); ++s) {
    sum += path.common.forwards[s] * times.forward[s] +
           (path.common.backwards[s] + path.common.input_grads[s]) * times.gradient[s] +
           path.common.weight_grads[s] * times.weight_grad[s] +
           path.common.sends[s] * times.send[s];
  }
  return sum;
}

double makespan_of(const sim::PipelineOrder& order, const Durations& times) {
  const auto in_time = [](const std::vector<double>& values) {
    std::vector<SimTime> result;
    for (const double value : values) {
      result.push_back(SimTime{static_cast<std::int64_t>(value)});
    }
    return result;
  };
  sim::PipelineCosts costs;
  costs.forward = in_time(times.forward);
  costs.backward = costs.input_grad = in_time(times.gradient);
  costs.weight_grad = in_time(times.weight_grad);
  costs.send_forward = in_time(times.send);
  costs.send_forward.pop_back();
  costs.send_backward = costs.send_forward;
  return static_cast<double>(sim::evaluate_pipeline(order, costs).makespan.ps);
}

PeakTimes peak_times(const Durations& times, std::size_t stage) {
  return {times.forward,        times.gradient,        times.weight_grad,       times.send,
          times.forward[stage], times.gradient[stage], times.weight_grad[stage]};
}

// Also with fewer micro-batches than stages, where the schedule runs on them.
int some_micro_batches(Random& random, const std::string& schedule, int stages) {
  if (schedule == "interleaved") {
    return stages * (1 + static_cast<int>(random.below(3)));
  }
  return 1 + static_cast<int>(random.below(static_cast<std::size_t>(3 * stages)));
}

// Neighbours, or any.
StageList some_stages(Random& random, std::size_t count) {
  const std::size_t first = random.below(count);
  StageList set(1 + random.below(count - first));
  std::iota(set.begin(), set.end(), first);
  if (random.below(2) == 0) {
    std::erase_if(set, [&](std::size_t stage) { return stage > first && random.below(2) == 0; });
  }
  return set;
}

// Whichever stage of the set has the layers: no path is longer than the lists take.
TEST(PeakPaths, AreNoLongerThanTheLists) {
  Random random(5);
  const auto draw = [&](std::size_t count) {
    std::vector<double> values;
    for (std::size_t index = 0; index < count; ++index) {
      values.push_back(1.0 + static_cast<double>(random.below(9)));
    }
    return values;
  };
  int longest = 0;
  int few = 0;
  int gaps = 0;
  for (const char* name :
       {"1f1b", "gpipe", "zb-h1", "v-zb", "interleaved", "breadth-first", "zb-h2"}) {
    for (int round = 0; round < 80; ++round) {
      const bool chunks =
          std::string(name) == "interleaved" || std::string(name) == "breadth-first";
      const int stages = 2 + static_cast<int>(random.below(4));
      const int micro_batches = some_micro_batches(random, name, stages);
      const sim::PipelineOrder order = order_of(name, stages, micro_batches,
                                                std::string(name) == "v-zb" ? 2
                                                : chunks                    ? 3
                                                                            : 1);
      const PeakPaths paths(order);
      ASSERT_TRUE(paths.known()) << name;
      const auto count = static_cast<std::size_t>(order.num_virtual_stages);
      Durations times{draw(count), draw(count), draw(count), draw(count)};
      for (std::size_t stage = 0; stage + 1 < count; ++stage) {
        times.send[stage] *= order.device_of[stage] == order.device_of[stage + 1] ? 0 : 1;
      }
      const StageList set = some_stages(random, count);
      few += micro_batches < stages ? 1 : 0;
      gaps += set.back() - set.front() >= set.size() ? 1 : 0;
      const std::size_t chosen = set[random.below(set.size())];
      times.forward[chosen] += 20;
      const double makespan = makespan_of(order, times);
      for (const PeakPath& path : paths.longest(set, peak_times(times, chosen), 4)) {
        for (const std::size_t stage : set) {
          EXPECT_LE(length_of(path, times, stage), makespan) << name << " stage " << stage;
        }
        longest += length_of(path, times, chosen) > 0.9 * makespan ? 1 : 0;
      }
    }
  }
  EXPECT_GT(longest, 200);
  EXPECT_GT(few, 50);
  EXPECT_GT(gaps, 30);
}

// With one stage of all before the last chunk twice as long, all that it delays is on the path: the
// bound does not ask which one it is.
TEST(PeakPaths, SeeTheLongStageWhereverItIs) {
  const sim::PipelineOrder order = order_of("interleaved", 4, 8, 3);
  const PeakPaths paths(order);
  StageList set(8);
  std::iota(set.begin(), set.end(), std::size_t{0});
  Durations even{std::vector<double>(12, 10), std::vector<double>(12, 20),
                 std::vector<double>(12, 0), std::vector<double>(12, 0)};
  const double without = makespan_of(order, even);
  PeakTimes times = peak_times(even, 0);
  times.own_forward *= 2;
  times.own_gradient *= 2;
  const PeakPath path = paths.longest(set, times, 1).back();
  // Three of its forwards and three of its gradients are on the way beside those of the others.
  EXPECT_EQ(path.forwards, 3);
  EXPECT_EQ(path.gradients, 3);
  EXPECT_EQ(length_of(path, even, 0), without);
}

// Lists that are not of one chain say nothing.
TEST(PeakPaths, AreUnknownInTwoDirections) {
  EXPECT_FALSE(PeakPaths(order_of("chimera", 4, 4, 1)).known());
}

// Lists with passes that run as one say nothing of a stage that may be anywhere: devices are split.
TEST(SplitPart, AsksForAPeakWhereTheListsHavePathsThroughIt) {
  const plan::Plan base = base_plan(Shape{.spec = small_spec(10), .overrides = {"node.gpus=2"}});
  const auto first_of = [&](const std::string& schedule) {
    const Constraints constraints =
        fixed("tp=1,cp=1,pp=2,micro_batch=1,chunks=2,schedule=" + schedule);
    const PerBlockSpace space(base, constraints);
    plan::Simulator simulator(base);
    PipelineBounds bounds(space, simulator);
    const StageMesh& mesh = space.meshes().front();
    const Pipeline pipeline = space.pipelines(mesh).front();
    const MeshCosts costs = BlockPricer(space).price(mesh);
    const Shares shares{{{{1.0}, {2.5}}, {{2.5}}, {{2.5}}, {{2.5}, {1.0}}}};
    const auto parts = split_part(shares, pipeline, base.network, costs, 2, {},
                                  [&] { return bounds.knows_peaks(mesh, pipeline, costs); });
    EXPECT_EQ(parts.size(), 2U) << schedule;
    return parts.front().front().of;
  };
  EXPECT_EQ(first_of("interleaved"), StageRange::Of::One);
  EXPECT_EQ(first_of("v-zb"), StageRange::Of::One);
  EXPECT_EQ(first_of("dualpipe-v"), StageRange::Of::Together);
}

// A peak in stages all of which have fewer layers: there is no such plan.
TEST(PipelineBounds, RuleOutPeaksThatNoStageCanHave) {
  const plan::Plan base = base_plan(Shape{.spec = small_spec(10), .overrides = {"node.gpus=2"}});
  const Constraints constraints =
      fixed("tp=1,cp=1,pp=2,micro_batch=1,chunks=2,schedule=interleaved");
  const PerBlockSpace space(base, constraints);
  plan::Simulator simulator(base);
  const StageMesh& mesh = space.meshes().front();
  const Pipeline pipeline = space.pipelines(mesh).front();
  const MeshCosts costs = BlockPricer(space).price(mesh);
  PipelinePart part;
  part.ranges = {{{0, 1}, 3, 9, StageRange::Of::One}, {{0, 1}, 0, 2, StageRange::Of::Each}};
  const double until = 1e3;
  EXPECT_EQ(PipelineBounds(space, simulator).bound(mesh, pipeline, costs, until, 5, part).seconds,
            until);
}

// What is split by a peak, or into stages, is not asked for it again: it goes on with the peaks of
// its chunks, and where these are known, too, with stages.
TEST(SplitPart, AsksForAPeakOnce) {
  const models::Network network = base_plan(Shape{.spec = small_spec(10)}).network;
  Pipeline pipeline;
  pipeline.chunks = 2;
  pipeline.placement.device_of = {0, 1, 0, 1};
  const Shares shares{{{{2.5}}, {{2.5}}, {{2.5}}, {{2.5}}}};
  const auto never = [] {
    ADD_FAILURE() << "asked for peaks";
    return true;
  };
  const StageRange first{{0, 1}, 3, 9, StageRange::Of::One};
  const auto chunks = split_part(shares, pipeline, network, {}, 4, {first}, never);
  ASSERT_EQ(chunks.size(), 2U);
  for (const std::vector<StageRange>& ranges : chunks) {
    ASSERT_EQ(ranges.size(), 2U);
    EXPECT_EQ(ranges.back().stages, (StageList{2, 3}));
  }
  EXPECT_EQ(chunks[0].back().of, StageRange::Of::Each);
  EXPECT_EQ(chunks[0].back().most, 2);
  EXPECT_EQ(chunks[1].back().of, StageRange::Of::One);
  EXPECT_EQ(chunks[1].back().least, 3);
  for (const std::vector<StageRange>& ranges : chunks) {
    const auto parts = split_part(shares, pipeline, network, {}, 4, ranges, never);
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_EQ(parts.front().back().of, StageRange::Of::Together);
  }
}

// The chunk with most blocks first; without a peak none.
TEST(SplitChunks, AsksForTheChunkWithMostBlocks) {
  Pipeline pipeline;
  pipeline.chunks = 3;
  const Shares shares{{{{1.0}}, {{2.0}}, {{1.5}}, {{2.5}}, {{1.0}}, {{2.0}}}};
  EXPECT_TRUE(split_chunks(shares, pipeline, {}).empty());
  const StageRange peak{{0, 1, 2, 3}, 2, 9, StageRange::Of::One};
  const auto parts = split_chunks(shares, pipeline, {peak});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts.front().back().stages, (StageList{2, 3}));
  // One of a set of which all others have fewer has the peak: that is not asked.
  const auto behind = split_chunks(shares, pipeline, {peak, {{2, 3}, 0, 1, StageRange::Of::Each}});
  ASSERT_EQ(behind.size(), 2U);
  EXPECT_EQ(behind.front().back().stages, (StageList{4, 5}));
  // All of these have fewer: nothing is left to ask of them.
  const StageRange fewer{{0, 1, 2, 3}, 0, 1, StageRange::Of::Each};
  const StageRange last{{4, 5}, 2, 9, StageRange::Of::One};
  EXPECT_TRUE(split_chunks(shares, pipeline, {fewer, last}).empty());
}

// Ten layers in four stages: some stage has three, before the last chunk or in it.
TEST(SplitPeak, AsksForTheStageWithMostLayers) {
  const models::Network network = base_plan(Shape{.spec = small_spec(10)}).network;
  Pipeline pipeline;
  pipeline.chunks = 2;
  pipeline.placement.device_of = {0, 1, 0, 1};
  const auto parts = split_peak(network, pipeline, 4, 4);
  ASSERT_EQ(parts.size(), 2U);
  ASSERT_EQ(parts[0].size(), 1U);
  EXPECT_EQ(parts[0][0].of, StageRange::Of::One);
  EXPECT_EQ(parts[0][0].stages, (StageList{0, 1}));
  EXPECT_EQ(parts[0][0].least, 3);
  ASSERT_EQ(parts[1].size(), 2U);
  EXPECT_EQ(parts[1][0].of, StageRange::Of::Each);
  EXPECT_EQ(parts[1][0].most, 2);
  EXPECT_EQ(parts[1][1].of, StageRange::Of::One);
  EXPECT_EQ(parts[1][1].stages, (StageList{2, 3}));
  // Where there are many micro-batches, those that pass the stage alone are few of them.
  EXPECT_TRUE(split_peak(network, pipeline, 4, 64).empty());
  // A whole mean says nothing.
  EXPECT_TRUE(split_peak(base_plan(Shape{.spec = small_spec(8)}).network, pipeline, 4, 4).empty());
  pipeline.chunks = 1;
  EXPECT_TRUE(split_peak(network, pipeline, 4, 4).empty());
}

}  // namespace
}  // namespace orrery::search
