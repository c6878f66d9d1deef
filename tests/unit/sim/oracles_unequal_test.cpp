// SPDX-License-Identifier: Apache-2.0
// Stages of unequal times and memory: DAPPLE's latency model, caps of searched orders.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "sim/pipeline/share_costs.hpp"
#include "tests/unit/sim/oracle_fixture.hpp"

namespace orrery::sim {
namespace {

// O22: L(Q) of a pivot stage is a lower bound, with what stages add at their end; the largest is
// close.
TEST(UnequalOracles, DappleLatencyModelIsALowerBound) {
  std::vector<double> shortfalls;
  EXPECT_TRUE(rc::check([&] {
    const int p = *rc::gen::inRange(1, 9);
    const int m = p * *rc::gen::inRange(1, 6);
    const PipelineOrder order = order_of("1f1b", {p, m, 1, 0});
    const std::vector<std::int64_t> forward = random_times(p);
    const std::vector<std::int64_t> backward = random_times(p);
    const std::vector<std::int64_t> reduce = random_times(p);
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
    shortfalls.push_back(1.0 - static_cast<double>(largest) / static_cast<double>(simulated));
  }));
  std::sort(shortfalls.begin(), shortfalls.end());
  EXPECT_LE(shortfalls.back(), 0.25);
  EXPECT_LE(shortfalls[shortfalls.size() / 2], 0.04);
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
    EXPECT_EQ(schedule.check(params), "") << name;
    EXPECT_EQ(order_of(name, params).passes.size(), 3U) << name;
    ++params.activations[1];
    const std::string broken = schedule.check(params);
    EXPECT_NE(broken.find("on device 1"), std::string::npos) << name << ": " << broken;
    EXPECT_NE(broken.find("set the cap to 4"), std::string::npos) << name << ": " << broken;
  }
}

}  // namespace
}  // namespace orrery::sim
