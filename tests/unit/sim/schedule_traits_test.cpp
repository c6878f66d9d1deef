// SPDX-License-Identifier: Apache-2.0
// The lists of a registered schedule, written as a document, have the traits that it states.
#include "sim/schedule_traits.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/json.hpp"
#include "sim/orders/schedule_document.hpp"
#include "tests/unit/sim/listed_document.hpp"

namespace orrery::sim {
namespace {

ScheduleTraits traits_of_text(const std::string& text) {
  return traits_of(read_schedule_document(parse_json(text, "mine.json"), "mine.json"));
}

TEST(ScheduleTraitsTest, ListsSayWhatTheScheduleStates) {
  const ScheduleParams params{.stages = 4, .micro_batches = 8};
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "chimera", "dualpipe", "pipedream"}) {
    const Schedule& schedule = find_schedule(name, "test");
    const ScheduleTraits listed = traits_of_text(document_of(schedule.order(params)));
    EXPECT_EQ(listed.synchronous, schedule.traits.synchronous) << name;
    EXPECT_EQ(listed.splits_backward, schedule.traits.splits_backward) << name;
    EXPECT_EQ(listed.two_directions, schedule.traits.two_directions) << name;
    EXPECT_EQ(listed.joins_passes, schedule.traits.joins_passes) << name;
    EXPECT_FALSE(listed.uses_times) << name;
    EXPECT_FALSE(listed.uses_slices) << name;
  }
}

TEST(ScheduleTraitsTest, RulesFollowTimes) {
  const ScheduleTraits rule = traits_of_text(
      R"({"schema": "orrery-schedule", "version": 1, "name": "mine", "placement": "loop",)"
      R"( "split_backward": true, "recompute": true})");
  EXPECT_TRUE(rule.synchronous);
  EXPECT_TRUE(rule.uses_times);
  EXPECT_TRUE(rule.splits_backward);
  EXPECT_TRUE(rule.cuts_every_backward);
  EXPECT_TRUE(rule.recomputes);
  EXPECT_FALSE(rule.lists_updates);
}

}  // namespace
}  // namespace orrery::sim
