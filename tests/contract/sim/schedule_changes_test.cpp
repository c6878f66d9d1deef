// SPDX-License-Identifier: Apache-2.0
// What the message about refused sizes says to change ("set FIELD to N and FIELD to N, and leave
// FIELD out") meets all constraints of the schedule, and no part of it can be left undone.
#include "sim/schedule_changes.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/schedule.hpp"
#include "tests/contract/sim/schedule_params.hpp"

namespace orrery::sim {
namespace {

// A field as messages name it, and how to set it; 0 leaves it out.
using Setter = std::function<void(ScheduleParams&, double)>;

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> kSetters = {
      {"stages", [](ScheduleParams& p, double n) { p.stages = static_cast<int>(n); }},
      {"micro-batches", [](ScheduleParams& p, double n) { p.micro_batches = static_cast<int>(n); }},
      {"chunks", [](ScheduleParams& p, double n) { p.chunks = static_cast<int>(n); }},
      {"slices",
       [](ScheduleParams& p, double n) {
         p.slices = static_cast<int>(n);
         p.slices_of.clear();
       }},
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

struct NamedChange {
  std::string field = {};
  double value = 0.0;
};

std::vector<std::string> items_of(std::string text) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at != std::string::npos;) {
    const std::size_t comma = text.find(", ");
    const std::size_t both = text.find(" and ");
    at = std::min(comma, both);
    items.push_back(text.substr(0, at));
    text = at == std::string::npos ? "" : text.substr(at + (comma < both ? 2 : 5));
  }
  return items;
}

// What the message tells to do; nothing if it tells nothing that can be done.
std::vector<NamedChange> named_changes(const std::string& message) {
  std::string set;
  std::string leave;
  const std::size_t at_set = message.rfind(": set ");
  const std::size_t at_leave = std::min(message.rfind(": leave "), message.rfind(", and leave "));
  if (at_leave != std::string::npos && message.ends_with(" out")) {
    const std::size_t from = message.find("leave ", at_leave) + 6;
    leave = message.substr(from, message.size() - 4 - from);
  }
  if (at_set != std::string::npos) {
    set = message.substr(at_set + 6, std::min(at_leave, message.size()) - (at_set + 6));
  }
  std::vector<NamedChange> changes;
  for (const std::string& item : set.empty() ? std::vector<std::string>() : items_of(set)) {
    const std::size_t to = item.find(" to ");
    if (to == std::string::npos) {
      return {};
    }
    changes.push_back({item.substr(0, to), std::stod(item.substr(to + 4))});
  }
  for (const std::string& item : leave.empty() ? std::vector<std::string>() : items_of(leave)) {
    changes.push_back({item});
  }
  return changes;
}

// The parameters when all is done that the message says, but for one change; or nothing when it
// says something else.
std::optional<ScheduleParams> followed(const std::string& message, ScheduleParams params,
                                       std::size_t but = ~std::size_t{0}) {
  const std::vector<NamedChange> changes = named_changes(message);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (!setters().contains(changes[i].field)) {
      return std::nullopt;
    }
    if (i != but) {
      setters().at(changes[i].field)(params, changes[i].value);
    }
  }
  return changes.empty() ? std::nullopt : std::optional(params);
}

std::string sizes_text(const ScheduleParams& params) {
  return "p " + std::to_string(params.stages) + ", m " + std::to_string(params.micro_batches) +
         ", v " + std::to_string(params.chunks) + ", n " + std::to_string(params.slices);
}

// "" when the message is right, else what is wrong with it.
std::string problem_of_message(const Schedule& schedule, const ScheduleParams& params) {
  const std::string message = refusal(schedule, params);
  if (message.empty() != schedule.check(params).empty()) {
    return "refused by one of two: " + message;
  }
  if (message.empty()) {
    return "";
  }
  const auto done = followed(message, params);
  if (!done) {
    return "names no change: " + message;
  }
  if (const std::string broken = to_text(schedule.check(*done)); !broken.empty()) {
    return message + " -> " + broken;
  }
  for (std::size_t i = 0; i < named_changes(message).size(); ++i) {
    if (schedule.check(*followed(message, params, i)).empty()) {
      return "one change is not needed: " + message;
    }
  }
  return "";
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
  params.slices_of = *rc::gen::elementOf(std::vector<std::vector<int>>{{}, {}, {}, {3, 1}, {2, 0}});
  return params;
}

class ScheduleChanges : public testing::TestWithParam<const Schedule*> {};

TEST_P(ScheduleChanges, OfAnyFieldsMeetAllConstraints) {
  EXPECT_TRUE(
      rc::check([&] { RC_ASSERT(problem_of_message(*GetParam(), any_sizes()) == std::string()); }));
}

TEST_P(ScheduleChanges, OfSizesMeetAllConstraints) {
  const Schedule& schedule = *GetParam();
  for (const int p : {0, 1, 2, 3, 5, 7, 8, 9, 16, 100}) {
    for (const int m : {0, 1, 2, 3, 4, 7, 8, 9, 64}) {
      for (const int v : {0, 1, 2, 3}) {
        for (const int n : {0, 1, 2, 5, 8}) {
          ScheduleParams params{p, m, v, 0, n};
          EXPECT_EQ(problem_of_message(schedule, params), "") << sizes_text(params);
        }
      }
    }
  }
}

// Products beyond a limit, with what the schedule asks of a size besides.
TEST_P(ScheduleChanges, OfTooManyPassesMeetAllConstraints) {
  for (const int p : {3, 60}) {
    for (const int m : {6, 2000, 1'000'001}) {
      for (const int v : {1, 2, 40}) {
        for (const int n : {1, 100}) {
          ScheduleParams params{p, m, v, 0, n};
          EXPECT_EQ(problem_of_message(*GetParam(), params), "") << sizes_text(params);
        }
      }
    }
  }
}

// As many micro-batches as stages ask for would be too many.
TEST_P(ScheduleChanges, OfTooManyStagesMeetAllConstraints) {
  for (const int m : {1, 7, 1000}) {
    for (const int v : {1, 2}) {
      const ScheduleParams params{5000, m, v, 0};
      EXPECT_EQ(problem_of_message(*GetParam(), params), "") << sizes_text(params);
    }
  }
}

// Allowed but for one or two fields.
ScheduleParams nearly_allowed(const Schedule& schedule) {
  ScheduleParams params = allowed_params(schedule);
  const ScheduleParams other = any_sizes();
  for (int k = *rc::gen::inRange(1, 3); k > 0; --k) {
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
        params.stages = other.stages;
        break;
      case 1:
        params.micro_batches = other.micro_batches;
        break;
      case 2:
        params.chunks = other.chunks;
        break;
      case 3:
        params.slices = other.slices;
        break;
      case 4:
        params.warm_up = other.warm_up;
        break;
      case 5:
        params.iterations = other.iterations;
        break;
      case 6:
        params.replicas_of = other.replicas_of;
        break;
      default:
        params.cap = other.cap;
    }
  }
  return params;
}

// Where several changes are named, none of a single field does.
TEST_P(ScheduleChanges, AreSeveralOnlyWhereOneIsNotEnough) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = nearly_allowed(schedule);
    const std::string message = refusal(schedule, params);
    if (named_changes(message).size() < 2) {
      return;
    }
    for (const auto& [field, set] : setters()) {
      for (int value = 0; value <= 130; value += value < 20 ? 1 : 10) {
        ScheduleParams changed = params;
        set(changed, value);
        RC_LOG() << field << " to " << value << " does: " << message;
        RC_ASSERT(!schedule.check(changed).empty());
      }
    }
  }));
}

// What a pattern of V takes grows with the square of the stages; v-cap makes ten at least.
TEST(ScheduleChangesNamed, AreStagesOfPatternsThatAreSoonMade) {
  const auto told = [](const char* name, int stages, int micro_batches) {
    const std::string message = refusal(find_schedule(name, "test"), {stages, micro_batches, 2, 0});
    return message.substr(std::min(message.rfind("must be at most"), message.size()));
  };
  EXPECT_EQ(told("v-zb", 8000, 60), "must be at most 60000000, not 128480000: set stages to 5462");
  EXPECT_EQ(told("v-cap", 4000, 60), "must be at most 6000000, not 32240000: set stages to 1717");
  EXPECT_EQ(told("vocab-1", 7500, 4),
            "must be at most 60000000, not 112530000: set stages to 5476");
  EXPECT_EQ(told("v-zb", 5462, 60), "");
  EXPECT_EQ(told("v-cap", 1717, 60), "");
}

// Both neighbours of an odd number are even: the one is named with which nothing else changes.
TEST(ScheduleChangesNamed, AreTheFewest) {
  const auto told = [](const char* name, int stages, int micro_batches, int chunks) {
    const std::string message =
        refusal(find_schedule(name, "test"), {stages, micro_batches, chunks, 0});
    const std::size_t colon = message.rfind(": ");
    return colon == std::string::npos ? message : message.substr(colon + 2);
  };
  EXPECT_EQ(told("dualpipe", 5, 8, 1), "set stages to 4");
  EXPECT_EQ(told("chimera", 5, 4, 1), "set stages to 4");
  EXPECT_EQ(told("chimera", 7, 6, 1), "set stages to 6");
  EXPECT_EQ(told("chimera", 7, 8, 1), "set stages to 8");
  EXPECT_EQ(told("bitpipe", 5, 4, 2), "set stages to 4");
  EXPECT_EQ(told("chimera-doubling", 5, 8, 1), "set stages to 4");
  EXPECT_EQ(told("diffusionpipe-cascaded", 5, 4, 2), "set stages to 4");
  EXPECT_EQ(told("bitpipe", 3, 3, 2), "set stages to 4 and micro-batches to 4");
  EXPECT_EQ(told("dualpipe", 1, 1, 1), "set stages to 2 and micro-batches to 4");
  EXPECT_EQ(told("dualpipe", 1, 1, 3), "set chunks to 1, stages to 2 and micro-batches to 4");
  EXPECT_EQ(told("diffusionpipe-cascaded", 15, 8, 2), "set stages to 16");
  // Twice the stages would be too many micro-batches.
  EXPECT_EQ(told("dualpipe-v", 4096, 5, 2), "set stages to 2");
  EXPECT_EQ(told("chimera", 5000, 1, 1), "set stages to 2500 and micro-batches to 2500");
}

// A size is made smaller by no more than the other changes leave to it.
TEST(ScheduleChangesNamed, LeaveAsMuchAsTheOthersLetThem) {
  const std::string message = refusal(find_schedule("layerpipe", "test"), {5000, 2000, 1, 0, 2});
  EXPECT_TRUE(message.ends_with(": set slices to 1 and stages to 1666")) << message;
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleChanges,
                         testing::ValuesIn(schedule_table().begin(), schedule_table().end()),
                         schedule_test_name);

}  // namespace
}  // namespace orrery::sim
