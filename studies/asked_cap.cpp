// SPDX-License-Identifier: Apache-2.0
#include "studies/asked_cap.hpp"

#include <fmt/format.h>

#include <string>

#include "base/error.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/schedule_changes.hpp"

namespace orrery::studies {

void check_asked_cap(const plan::Plan& plan, double cap, std::string_view name) {
  if (cap == 0.0) {
    return;
  }
  plan::Plan without = plan;
  without.activation_cap = 0;
  const std::string problem = plan::schedule_problem(plan, "schedule");
  if (problem.empty() || problem == plan::schedule_problem(without, "schedule")) {
    return;
  }
  sim::ScheduleParams params = plan::schedule_params(plan);
  params.cap_name = name;
  const std::string refused =
      plan.schedule_document != nullptr
          ? to_text(sim::check_document(*plan.schedule_document, params), name)
          : sim::refusal(sim::find_schedule(plan.schedule, "schedule"), params);
  if (!refused.empty()) {
    bad_input(fmt::format("schedule {}", plan.schedule), refused);
  }
}

}  // namespace orrery::studies
