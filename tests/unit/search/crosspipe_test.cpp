// SPDX-License-Identifier: Apache-2.0
// CrossPipe's exact orders against those of the greedy schedule.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

struct SplitPipeline {
  int stages;
  int micro_batches;
  int cap;
  std::array<int, 3> time;
  int latency;
};

Json exact_orders(const SplitPipeline& c) {
  std::string latency;
  for (int s = 0; s + 1 < c.stages; ++s) {
    latency += fmt::format("{}{}", s == 0 ? "" : ", ", c.latency);
  }
  return solve("crosspipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
      "stages": {}, "micro_batches": {}, "memory": {}, "forward": {}, "input_grad": {},
      "weight_grad": {}, "latency": [{}]}})",
                                        c.stages, c.micro_batches, c.cap, c.time[0], c.time[1],
                                        c.time[2], latency));
}

double greedy_span(const SplitPipeline& c) {
  sim::ScheduleParams params;
  params.stages = c.stages;
  params.micro_batches = c.micro_batches;
  params.cap = c.cap;
  params.times = {{{c.time[0]}, {c.time[1]}, {c.time[2]}, {c.latency}}};
  const auto stages = static_cast<std::size_t>(c.stages);
  sim::PipelineCosts costs;
  costs.forward.assign(stages, SimTime{c.time[0]});
  costs.input_grad.assign(stages, SimTime{c.time[1]});
  costs.weight_grad.assign(stages, SimTime{c.time[2]});
  costs.backward.assign(stages, SimTime{c.time[1] + c.time[2]});
  costs.send_forward.assign(stages - 1, SimTime{c.latency});
  costs.send_backward = costs.send_forward;
  const sim::PipelineResult result =
      evaluate_pipeline(sim::find_schedule("crosspipe", "test").order(params), costs);
  SimTime longest;
  for (const sim::DeviceUse& device : result.devices) {
    longest = std::max(longest, device.last_end - device.first_start);
  }
  return static_cast<double>(longest.ps);
}

// Also where the search cannot end: an answer there is, and none worse than the greedy one. More
// memory never makes a proven one worse.
TEST(CrossPipe, ExactIsNeverWorseThanGreedy) {
  for (const std::array<int, 3> time : {std::array{1, 1, 1}, {2, 1, 5}, {1, 3, 2}}) {
    for (const auto& [stages, micro_batches] : {std::pair{2, 8}, {3, 6}, {4, 4}, {8, 3}}) {
      for (const int latency : {0, 1, 4}) {
        double before = 0;
        for (const int cap : {1, stages / 2 + 1, 2 * stages}) {
          const SplitPipeline c{stages, micro_batches, cap, time, latency};
          const Json answer = exact_orders(c);
          const double span = number(answer, "longest_span");
          EXPECT_LE(span, greedy_span(c)) << stages << ", " << cap << ", " << latency;
          const bool proven = answer.find("proven")->as_bool();
          EXPECT_TRUE(before == 0 || !proven || span <= before);
          before = proven ? span : 0;
        }
      }
    }
  }
}

// Four stages, cap 2p and a latency of one: 5 units idle, as greedy, and no order idles less. Eight
// stages, three micro-batches: proven as well.
TEST(CrossPipe, BoundsProveOrdersOfManyPasses) {
  const Json four = exact_orders({4, 8, 8, {1, 1, 1}, 1});
  EXPECT_EQ(number(four, "idle"), 5);
  EXPECT_TRUE(four.find("proven")->as_bool());
  const Json eight = exact_orders({8, 3, 7, {2, 1, 5}, 1});
  EXPECT_EQ(number(eight, "longest_span"), 55);
  EXPECT_TRUE(eight.find("proven")->as_bool());
}

}  // namespace
}  // namespace orrery::search
