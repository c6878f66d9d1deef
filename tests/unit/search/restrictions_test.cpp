// SPDX-License-Identifier: Apache-2.0
// Restrictions of a space that stand in a file, alone and beside those of the command line.
#include "search/space/restrictions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string restriction_file(const std::string& text) {
  const std::string path = testing::TempDir() + "/restrictions.json";
  write_file_atomically(path, text);
  return path;
}

Constraints restricted_by(const std::string& text) {
  Constraints constraints;
  read_restrictions(restriction_file(text), constraints);
  return constraints;
}

template <typename Action>
std::string message_of_restricting(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refused(const std::string& text) {
  return message_of_restricting([&] { (void)restricted_by(text); });
}

std::vector<std::string> texts_of(const Constraints& constraints) {
  std::vector<std::string> texts;
  for (const Restriction& one : constraints.restrictions()) {
    texts.push_back(one.kind + " " + one.text);
  }
  return texts;
}

TEST(Restrictions, TextsListsAndObjectsSayTheSame) {
  const auto expected = ElementsAre("fix tp=2", "fix recompute=full", "schedule 1f1b",
                                    "forbid zero=2", "forbid zero=3", "allow offload");
  EXPECT_THAT(texts_of(restricted_by(R"({"fix": "tp=2,recompute=full", "schedule": "1f1b",
                                         "forbid": "zero=2,zero=3", "allow": "offload"})")),
              expected);
  EXPECT_THAT(texts_of(restricted_by(R"({"fix": ["tp=2", "recompute=full"], "schedule": ["1f1b"],
                                         "forbid": ["zero=2", "zero=3"], "allow": ["offload"]})")),
              expected);
  EXPECT_THAT(texts_of(restricted_by(R"({"schema": "orrery-restrictions", "version": 1,
                                 "fix": {"tp": 2, "recompute": "full"}, "schedule": ["1f1b"],
                                 "forbid": {"zero": [2, 3]}, "allow": ["offload"]})")),
              expected);
}

// The same plans, the same best one, as with the options.
TEST(Restrictions, RestrictTheSpaceAsOptionsDo) {
  const plan::Plan base = base_plan();
  Options by_options;
  by_options.jobs = 1;
  by_options.constraints.fix("tp=2");
  by_options.constraints.forbid("zero=2,zero=3");
  by_options.constraints.choose_schedule("1f1b");
  Options by_file = by_options;
  by_file.constraints =
      restricted_by(R"({"fix": {"tp": 2}, "forbid": {"zero": [2, 3]}, "schedule": "1f1b"})");
  const Outcome one = search(base, by_options);
  const Outcome other = search(base, by_file);
  Options all;
  all.jobs = 1;
  EXPECT_EQ(one.plans, other.plans);
  EXPECT_LT(other.plans, search(base, all).plans);
  ASSERT_TRUE(one.best && other.best);
  EXPECT_EQ(plan::to_json(one.best->plan).dump(), plan::to_json(other.best->plan).dump());
}

TEST(Restrictions, ErrorsNameThePlaceInTheFile) {
  EXPECT_THAT(
      refused(R"({"fixx": ["tp=8"]})"),
      AllOf(HasSubstr("restrictions.json"), HasSubstr("unknown key \"fixx\""), HasSubstr("fix")));
  EXPECT_THAT(
      refused(R"({"fix": ["tp=8", "zer=1"]})"),
      AllOf(HasSubstr("restrictions.json: /fix/1: unknown field \"zer\""), HasSubstr("zero")));
  EXPECT_THAT(refused(R"({"forbid": {"zero": [1, 7]}})"),
              HasSubstr("restrictions.json: /forbid/zero/1"));
  EXPECT_THAT(refused(R"({"fix": {"tp": [1, 2]}})"), HasSubstr("/fix/tp: expected a number"));
  EXPECT_THAT(refused(R"({"allow": "ofload"})"), HasSubstr("/allow: unknown choice"));
  EXPECT_THAT(refused(R"({"schedule": ["1f2b"]})"), HasSubstr("/schedule/0"));
  EXPECT_THAT(refused("{}"), HasSubstr("restricts nothing"));
  EXPECT_THAT(refused(R"({"fix": "", "forbid": [" "]})"), HasSubstr("restricts nothing"));
  EXPECT_THAT(refused(R"({"schema": "orrery-plan", "version": 1, "fix": "tp=8"})"),
              HasSubstr("orrery-restrictions"));
}

TEST(Restrictions, ContradictionsWithTheCommandLineNameBoth) {
  Constraints fixed = restricted_by(R"({"fix": {"tp": 8}})");
  EXPECT_THAT(message_of_restricting([&] { fixed.fix("tp=4"); }),
              AllOf(HasSubstr("--fix: tp is fixed to 4, and to 8 by "),
                    HasSubstr("restrictions.json: /fix/tp")));
  Constraints forbidden = restricted_by(R"({"forbid": ["zero=1"]})");
  forbidden.fix("zero=1");
  EXPECT_THAT(message_of_restricting([&] { forbidden.check_contradictions(); }),
              AllOf(HasSubstr("--fix: zero=1 is fixed and excluded at once, by "),
                    HasSubstr("restrictions.json: /forbid/0")));
  Constraints scheduled = restricted_by(R"({"fix": ["schedule=gpipe"]})");
  scheduled.choose_schedule("1f1b");
  EXPECT_THAT(message_of_restricting([&] { scheduled.check_contradictions(); }),
              AllOf(HasSubstr("restrictions.json: /fix/0"), HasSubstr("by --schedule")));
  fixed.fix("pp=2,tp=8");  // the same once more is none
  EXPECT_NO_THROW(fixed.check_contradictions());
}

// What is asked for twice is one restriction: leaving it out leaves nothing of it.
TEST(Restrictions, WhatIsAskedForTwiceCountsOnce) {
  Constraints constraints =
      restricted_by(R"({"fix": {"tp": 2}, "forbid": "zero=2", "schedule": "1f1b"})");
  read_restrictions(restriction_file(R"({"fix": "tp=2", "allow": "offload"})"), constraints);
  constraints.fix("tp=2,pp=2");
  constraints.forbid("zero=2");
  constraints.choose_schedule("1f1b");
  EXPECT_THAT(texts_of(constraints), ElementsAre("fix tp=2", "schedule 1f1b", "forbid zero=2",
                                                 "allow offload", "fix pp=2"));
  EXPECT_THAT(constraints.restrictions().front().file, HasSubstr("restrictions.json"));
  EXPECT_EQ(constraints.restrictions().back().file, "");
  EXPECT_THAT(constraints.fixed_texts(), ElementsAre("tp=2", "pp=2", "schedule 1f1b"));
  EXPECT_FALSE(constraints.without_fixed(0).is_fixed("tp"));
  EXPECT_EQ(constraints.forbidden_text("zero"), "zero=2");
}

}  // namespace
}  // namespace orrery::search
