// SPDX-License-Identifier: Apache-2.0
// DynaPipe's schedule of micro-batches that keep different amounts: no device ever holds more than
// its cap.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "sim/pipeline/pipeline.hpp"
#include "tests/property/sim/engine_programs.hpp"

namespace orrery::sim {
namespace {

TEST(DynaPipeProperty, CycleAdmitsWhatFits) {
  EXPECT_TRUE(rc::check([] {
    const Schedule& schedule = find_schedule("dynapipe", "test");
    ScheduleParams params{.stages = pick(1, 8), .micro_batches = pick(1, 30)};
    for (int j = 0; j < params.micro_batches; ++j) {
      params.weights.push_back(0.1 * pick(0, 20));
    }
    const double largest = *std::max_element(params.weights.begin(), params.weights.end());
    params.cap = std::max(1.0, largest) + 0.1 * pick(0, 80);
    RC_ASSERT(schedule.check(params).empty());
    const PipelineOrder order = schedule.order(params);
    RC_ASSERT(check_order(order, params.micro_batches).empty());
    double least = params.cap;  // room that is left
    for (const std::vector<Pass>& list : order.passes) {
      double held = 0;
      for (const Pass& pass : list) {
        held += params.weights[pass.micro_batch] * (pass.kind == PassKind::Forward ? 1 : -1);
        least = std::min(least, params.cap - held);
      }
    }
    RC_ASSERT(least >= -1e-9);
    params.weights.assign(params.weights.size(), 1.0);
    ScheduleParams alike = params;
    alike.weights.clear();
    alike.cap = std::floor(alike.cap);
    RC_ASSERT(schedule.order(params).passes == schedule.order(alike).passes);
  }));
}

TEST(DynaPipeProperty, SaysWhatACapMustHold) {
  const Schedule& schedule = find_schedule("dynapipe", "test");
  EXPECT_EQ(schedule.check({.stages = 2, .micro_batches = 2, .cap = 2, .weights = {1, 2.5}}),
            "a micro-batch keeps 2.5: set the cap to 2.5");
  EXPECT_NE(schedule.check({.stages = 2, .micro_batches = 2, .weights = {1}}), "");
  EXPECT_EQ(schedule.check({.stages = 2, .micro_batches = 2, .weights = {1, 2.5}}), "");
}

}  // namespace
}  // namespace orrery::sim
