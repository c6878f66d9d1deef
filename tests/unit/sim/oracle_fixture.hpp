// SPDX-License-Identifier: Apache-2.0
// Checked orders and random times of rapidcheck properties about schedules.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {

inline PipelineOrder order_of(const char* name, const ScheduleParams& params) {
  const Schedule& schedule = find_schedule(name, "test");
  EXPECT_EQ(to_text(schedule.check(params)), "") << name;
  PipelineOrder order = schedule.order(params);
  EXPECT_EQ(check_order(order, order.micro_batches), "") << name;
  return order;
}

inline PassTimes random_share(std::int64_t latency = 0) {
  return {{*rc::gen::inRange(1, 40)},
          {*rc::gen::inRange(1, 40)},
          {*rc::gen::inRange(1, 40)},
          {latency}};
}

inline std::vector<std::int64_t> random_times(int count) {
  std::vector<std::int64_t> times;
  for (int k = 0; k < count; ++k) {
    times.push_back(*rc::gen::inRange(1, 100));
  }
  return times;
}

}  // namespace orrery::sim
