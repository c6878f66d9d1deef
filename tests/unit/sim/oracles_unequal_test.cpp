// SPDX-License-Identifier: Apache-2.0
// Stages of unequal times and memory: DAPPLE's latency model, caps of searched orders.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "sim/pipeline/share_costs.hpp"
#include "tests/unit/sim/oracle_fixture.hpp"

namespace orrery::sim {
namespace {

// As wide from the first draw on.
int drawn(int low, int high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}

std::vector<std::int64_t> times_between(int count, int low, int high) {
  std::vector<std::int64_t> times;
  for (int k = 0; k < count; ++k) {
    times.push_back(drawn(low, high));
  }
  return times;
}

// How far the largest L(Q) of DAPPLE's latency model stays below the simulated time of random
// stages, as a share of it; no L(Q) is above. Passes and reductions take `low` to `high`.
double latency_shortfall(int low, int high) {
  const int p = drawn(1, 8);
  const int m = p * drawn(1, 5);
  const PipelineOrder order = order_of("1f1b", {p, m, 1, 0});
  const std::vector<std::int64_t> forward = times_between(p, low, high);
  const std::vector<std::int64_t> backward = times_between(p, low, high);
  const std::vector<std::int64_t> reduce = times_between(p, low, high);
  PipelineCosts costs = share_costs(order, {}).costs;
  for (std::size_t s = 0; s < forward.size(); ++s) {
    costs.forward[s] = {forward[s]};
    costs.backward[s] = {backward[s]};
  }
  const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
  std::int64_t simulated = 0;  // reductions begin when their stage has run its last backward
  for (std::size_t s = 0; s < forward.size(); ++s) {
    simulated = std::max(simulated, result.devices[s].last_end.ps + reduce[s]);
  }
  std::int64_t largest = 0;
  for (std::size_t q = 0; q < forward.size(); ++q) {
    std::int64_t tail = std::numeric_limits<std::int64_t>::min();
    for (std::size_t s = 0; s < forward.size(); ++s) {
      std::int64_t between = 0;
      for (std::size_t a = std::min(s, q); a <= std::max(s, q); ++a) {
        between += backward[a];
      }
      tail = std::max(tail, reduce[s] + (s <= q ? between : -between));
    }
    std::int64_t fill = 0;
    for (std::size_t s = 0; s <= q; ++s) {
      fill += forward[s];
    }
    const std::int64_t latency = fill + (m - 1) * (forward[q] + backward[q]) + tail;
    RC_ASSERT(latency <= simulated);
    largest = std::max(largest, latency);
  }
  return 1.0 - static_cast<double>(largest) / static_cast<double>(simulated);
}

// O22, whatever the times.
TEST(UnequalOracles, DappleLatencyModelIsALowerBound) {
  EXPECT_TRUE(rc::check([] { latency_shortfall(1, 100); }));
}

// At most 17 % below but for one draw in a thousand, in the median 2 %, where times differ up to
// threefold; with times up to a hundredfold there are draws 23 % below.
TEST(UnequalOracles, DappleLatencyModelIsClose) {
  std::vector<double> shortfalls;
  EXPECT_TRUE(rc::check([&] {
    for (int k = 0; k < 100; ++k) {
      shortfalls.push_back(latency_shortfall(50, 150));
    }
  }));
  std::sort(shortfalls.begin(), shortfalls.end());
  EXPECT_LE(shortfalls[shortfalls.size() * 999 / 1000], 0.17);
  EXPECT_NEAR(shortfalls[shortfalls.size() / 2], 0.02, 0.005);
}

// Memory of very unequal virtual stages counts by what each keeps.
TEST(UnequalOracles, CapsHoldForUnequalActivations) {
  EXPECT_TRUE(rc::check([] {
    const int p = *rc::gen::inRange(1, 7);
    for (const auto& [name, chunks] :
         {std::pair{"zb-1p", 1}, {"zb-2p", 1}, {"zb-v", 2}, {"crosspipe", 1}, {"crosspipe", 2}}) {
      ScheduleParams params{p, *rc::gen::inRange(1, 20), chunks, 0};
      params.activation = 10;
      params.weight_grad_activation = 10;
      for (int s = 0; s < p * chunks; ++s) {
        params.times.push_back(random_share(*rc::gen::inRange(0, 30)));
        params.activations.push_back(*rc::gen::inRange(1, 11));
        params.weight_grad_activations.push_back(
            *rc::gen::inRange(0, static_cast<int>(params.activations.back()) + 1));
      }
      const PipelineOrder order = order_of(name, params);
      PipelineCosts costs = stage_costs(order, params);
      for (std::size_t s = 0; s < costs.forward.size(); ++s) {
        costs.activation.emplace_back(params.activations[s]);
        costs.weight_grad_activation.emplace_back(params.weight_grad_activations[s]);
      }
      const double cap = find_schedule(name, "test").most_activations(params) * 10 * chunks;
      for (const DeviceUse& use : evaluate_pipeline(order, costs).devices) {
        RC_ASSERT(static_cast<double>(use.peak_activation.value()) <=
                  (params.micro_batches < p ? 10.0 * p * chunks : cap));
      }
    }
  }));
}

// A schedule plans its chunks and slices with what they and their transfers then take: as with
// times of every stage.
TEST(UnequalOracles, TransfersOfPiecesArePlannedAsLongAsTheyTake) {
  const PassTimes share{.forward = {4}, .input_grad = {4}, .weight_grad = {4}, .send = {6}};
  for (const auto& [name, chunks, slices] : {std::tuple{"crosspipe", 2, 1},
                                             {"hanayo", 4, 1},
                                             {"dip", 3, 2},
                                             {"zb-v", 2, 1},
                                             {"tessel", 2, 1}}) {
    ScheduleParams params{.stages = 4, .micro_batches = 8, .chunks = chunks, .slices = slices};
    params.times = {share};
    const PipelineOrder first = order_of(name, params);
    params.times = {planning_times(first, share)};
    const PipelineOrder planned = order_of(name, params);
    const PipelineCosts costs = share_costs(first, share).costs;
    params.times.clear();
    for (std::size_t s = 0; s < costs.forward.size(); ++s) {
      params.times.push_back({costs.forward[s], costs.input_grad[s], costs.weight_grad[s],
                              s < costs.send_forward.size() ? costs.send_forward[s] : SimTime{}});
    }
    EXPECT_TRUE(planned.passes == order_of(name, params).passes) << name;
    EXPECT_LE(evaluate_pipeline(planned, costs).makespan, evaluate_pipeline(first, costs).makespan)
        << name;
  }
}

// Else a heuristic would wait for ever.
TEST(UnequalOracles, RefusesWhatOneMicroBatchDoesNotFit) {
  for (const auto& [name, chunks] : {std::pair{"zb-1p", 1},
                                     {"zb-2p", 1},
                                     {"zb-v", 2},
                                     {"crosspipe", 1},
                                     {"crosspipe", 2},
                                     {"tessel", 1},
                                     {"tessel", 2}}) {
    ScheduleParams params{3, 4, chunks, 0};
    params.activation = 10;
    params.activations.assign(static_cast<std::size_t>(3 * chunks), 5);
    params.cap = 3;
    params.activations[1] = 30 * chunks - 5 * (chunks - 1);  // device 1 is just full
    const Schedule& schedule = find_schedule(name, "test");
    EXPECT_EQ(to_text(schedule.check(params)), "") << name;
    EXPECT_EQ(order_of(name, params).passes.size(), 3U) << name;
    ++params.activations[1];
    const std::string broken = to_text(schedule.check(params));
    EXPECT_NE(broken.find("on device 1"), std::string::npos) << name << ": " << broken;
    EXPECT_NE(broken.find("set the cap to 4"), std::string::npos) << name << ": " << broken;
  }
}

}  // namespace
}  // namespace orrery::sim
