// SPDX-License-Identifier: Apache-2.0
// Random parameters and times for contract tests of schedules.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

inline ScheduleParams random_params(bool multiple) {
  ScheduleParams params;
  params.stages = *rc::gen::inRange(1, 13);
  params.micro_batches = *rc::gen::inRange(1, 41);
  params.chunks = *rc::gen::inRange(1, 5);
  params.warm_up = *rc::gen::inRange(0, 2);
  if (multiple) {
    params.micro_batches = std::max(1, params.micro_batches / params.stages) * params.stages;
  }
  return params;
}

// Fields that few schedules have, each kept where the schedule takes it.
inline void draw_rare_fields(const Schedule& schedule, ScheduleParams& params) {
  const auto keep_if_allowed = [&](auto ScheduleParams::*field, auto drawn) {
    std::swap(params.*field, drawn);
    if (!schedule.check(params).empty()) {
      std::swap(params.*field, drawn);
    }
  };
  keep_if_allowed(&ScheduleParams::micro_batches,
                  params.micro_batches + *rc::gen::inRange(0, params.stages));
  keep_if_allowed(&ScheduleParams::replicas, *rc::gen::inRange(1, 5));
  keep_if_allowed(&ScheduleParams::iterations, *rc::gen::inRange(0, 5));
  std::vector<int> slices;
  for (int j = 0; j < params.micro_batches; ++j) {  // divisors of the stages, too
    slices.push_back(*rc::gen::element(1, 1, 2, 3, params.stages));
  }
  keep_if_allowed(&ScheduleParams::slices_of, slices);
  for (int& count : slices) {
    count = params.stages % count == 0 ? count : 1;
  }
  keep_if_allowed(&ScheduleParams::slices_of, slices);
}

// Parameters that the schedule accepts; most constraints are met by these adjustments.
inline ScheduleParams allowed_params(const Schedule& schedule) {
  ScheduleParams params = random_params(true);
  if (schedule.traits.uses_slices) {
    params.slices = *rc::gen::inRange(1, 3) * (schedule.traits.uses_chunks ? params.stages : 1);
  }
  const auto adds_times = [&](std::size_t count) {
    for (std::size_t s = 0; s < count; ++s) {
      params.times.push_back({{*rc::gen::inRange(1, 50)},
                              {*rc::gen::inRange(1, 50)},
                              {*rc::gen::inRange(1, 50)},
                              {*rc::gen::inRange(0, 20)}});
    }
  };
  const std::vector<void (*)(ScheduleParams&)> adjustments = {
      [](ScheduleParams& p) { p.warm_up = 0; },
      [](ScheduleParams& p) { p.chunks = 1; },
      [](ScheduleParams& p) { p.chunks = 2; },
      [](ScheduleParams& p) {
        p.stages += p.stages % 2;
        p.micro_batches = p.stages * (2 + p.micro_batches / p.stages);
      },
      [](ScheduleParams& p) { p.chunks = 1; },
  };
  for (const auto& adjust : adjustments) {
    if (!schedule.check(params).empty()) {
      adjust(params);
    }
  }
  RC_PRE(schedule.check(params).empty());
  params.cap = params.stages * *rc::gen::inRange(0, 3);
  if (!schedule.check(params).empty()) {
    params.cap = 0;
  }
  draw_rare_fields(schedule, params);
  if (schedule.traits.uses_times) {  // of one share, or very unequal ones of all virtual stages
    adds_times(1);
    if (*rc::gen::inRange(0, 2) == 1) {
      const PipelineOrder order = schedule.order(params);
      adds_times(static_cast<std::size_t>(order.num_virtual_stages - 1));
    }
  }
  return params;
}

inline PassTimes random_share() {
  return {{*rc::gen::inRange(1, 100)},
          {*rc::gen::inRange(1, 100)},
          {*rc::gen::inRange(1, 100)},
          {*rc::gen::inRange(0, 30)}};
}

inline std::string schedule_test_name(const testing::TestParamInfo<const Schedule*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return "schedule_" + name;
}

}  // namespace orrery::sim
