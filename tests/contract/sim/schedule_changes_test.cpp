// SPDX-License-Identifier: Apache-2.0
// The change that a refused size names ("set FIELD to N", "leave FIELD out") meets all constraints
// of the schedule on that field, so that following the messages soon ends.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

// A field as messages name it, and how to set it; 0 leaves it out.
using Setter = std::function<void(ScheduleParams&, double)>;

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> kSetters = {
      {"stages", [](ScheduleParams& p, double n) { p.stages = static_cast<int>(n); }},
      {"micro-batches", [](ScheduleParams& p, double n) { p.micro_batches = static_cast<int>(n); }},
      {"chunks", [](ScheduleParams& p, double n) { p.chunks = static_cast<int>(n); }},
      {"slices", [](ScheduleParams& p, double n) { p.slices = static_cast<int>(n); }},
      {"warm-up", [](ScheduleParams& p, double n) { p.warm_up = static_cast<int>(n); }},
      {"replicas",
       [](ScheduleParams& p, double n) {
         p.replicas = static_cast<int>(n);
         p.replicas_of.clear();
       }},
      {"rollbacks", [](ScheduleParams& p, double n) { p.rollbacks = static_cast<int>(n); }},
      {"iterations", [](ScheduleParams& p, double n) { p.iterations = static_cast<int>(n); }},
      {"the cap", [](ScheduleParams& p, double n) { p.cap = n; }},
  };
  return kSetters;
}

struct Change {
  std::string field = {};
  double value = 0.0;
};

// What the message tells to do; no field if it tells nothing.
Change named_change(const std::string& message) {
  const std::size_t set = message.rfind(": set ");
  const std::size_t leave = message.rfind(": leave ");
  if (set != std::string::npos) {
    const std::size_t from = set + 6;
    const std::size_t to = message.find(" to ", from);
    return to == std::string::npos
               ? Change{}
               : Change{message.substr(from, to - from), std::stod(message.substr(to + 4))};
  }
  if (leave != std::string::npos && message.ends_with(" out")) {
    return {message.substr(leave + 8, message.size() - 4 - (leave + 8))};
  }
  return {};
}

// Within the limits on all passes of a run.
ScheduleParams any_sizes() {
  ScheduleParams params;
  params.stages = *rc::gen::inRange(1, 65);
  params.micro_batches = *rc::gen::inRange(1, 200);
  params.chunks = *rc::gen::element(1, 1, 2, 2, 3, 5);
  params.warm_up = *rc::gen::element(0, 0, 1, 2, 5);
  params.slices = *rc::gen::element(1, 1, 1, 2, 7);
  params.iterations = *rc::gen::element(0, 0, 0, 3);
  params.replicas = *rc::gen::element(1, 1, 2, 70);
  params.cap = *rc::gen::element(0.0, 0.0, 0.5, 3.0);
  params.rollbacks = *rc::gen::element(0, 0, 0, 2);
  params.replicas_of =
      *rc::gen::elementOf(std::vector<std::vector<int>>{{}, {}, {}, {3, 1}, {2, 5, 1}});
  return params;
}

class ScheduleChanges : public testing::TestWithParam<const Schedule*> {};

TEST_P(ScheduleChanges, MeetAllConstraintsOfTheirField) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    ScheduleParams params = any_sizes();
    std::string changed;
    constexpr int kFields = 9;
    std::string broken = schedule.check(params);
    for (int step = 0; !broken.empty() && step < 2 * kFields; ++step) {
      const Change change = named_change(broken);
      RC_ASSERT(setters().contains(change.field));
      RC_ASSERT(change.field != changed);
      changed = change.field;
      setters().at(changed)(params, change.value);
      broken = schedule.check(params);
    }
    RC_ASSERT(broken == std::string());
  }));
}

std::string schedule_name_of(const testing::TestParamInfo<const Schedule*>& schedule) {
  std::string name(schedule.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return "schedule_" + name;
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleChanges,
                         testing::ValuesIn(schedule_table().begin(), schedule_table().end()),
                         schedule_name_of);

}  // namespace
}  // namespace orrery::sim
