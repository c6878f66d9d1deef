// SPDX-License-Identifier: Apache-2.0
// DynaPipe's schedule of micro-batches that keep different amounts: no device ever holds more than
// its cap.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

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

// The cycles as they are defined, with a look at every stage in each half.
std::vector<std::vector<Pass>> cycles_of_all_stages(const ScheduleParams& params) {
  const auto p = static_cast<std::size_t>(params.stages);
  const auto m = static_cast<std::uint32_t>(params.micro_batches);
  std::vector<std::vector<Pass>> lists(p);
  std::vector<std::uint32_t> forwards(p, 0);
  std::vector<std::uint32_t> backwards(p, 0);
  const auto held = [&](std::size_t i) {
    return std::accumulate(params.weights.begin() + backwards[i],
                           params.weights.begin() + forwards[i] + 1, 0.0);
  };
  for (std::size_t half = 0; backwards.front() < m; ++half) {
    for (std::size_t i = 0; i < p; ++i) {
      const auto stage = static_cast<std::uint16_t>(i);
      const std::uint32_t arrived = i == 0 ? m : forwards[i - 1];
      const std::uint32_t returned = i + 1 == p ? forwards[i] : backwards[i + 1];
      if ((half + i) % 2 == 0) {
        if (forwards[i] < arrived && held(i) <= params.cap) {
          lists[i].emplace_back(PassKind::Forward, stage, forwards[i]++);
        }
      } else if (backwards[i] < returned) {
        lists[i].emplace_back(PassKind::Backward, stage, backwards[i]++);
      }
    }
  }
  return lists;
}

TEST(DynaPipeProperty, SleepingStagesMissNothing) {
  EXPECT_TRUE(rc::check([] {
    const Schedule& schedule = find_schedule("dynapipe", "test");
    ScheduleParams params{.stages = pick(1, 12), .micro_batches = pick(1, 40)};
    for (int j = 0; j < params.micro_batches; ++j) {
      params.weights.push_back(pick(1, 8));  // whole ones, so that sums are exact
    }
    params.cap = 8 + pick(0, 60);
    RC_ASSERT(schedule.order(params).passes == cycles_of_all_stages(params));
  }));
}

TEST(DynaPipeProperty, SaysWhatACapMustHold) {
  const Schedule& schedule = find_schedule("dynapipe", "test");
  EXPECT_EQ(
      to_text(schedule.check({.stages = 2, .micro_batches = 2, .cap = 2, .weights = {1, 2.5}})),
      "a micro-batch keeps 2.5: set the cap to 2.5");
  EXPECT_NE(to_text(schedule.check({.stages = 2, .micro_batches = 2, .weights = {1}})), "");
  EXPECT_EQ(to_text(schedule.check({.stages = 2, .micro_batches = 2, .weights = {1, 2.5}})), "");
}

}  // namespace
}  // namespace orrery::sim
