// SPDX-License-Identifier: Apache-2.0
#include "sim/refusal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/schedule_changes.hpp"

namespace orrery::sim {
namespace {

TEST(Refusal, IsPrintedWithItsChanges) {
  EXPECT_EQ(to_text(Refusal()), "");
  EXPECT_EQ(to_text(Refusal{"it is odd"}), "it is odd");
  EXPECT_EQ(to_text(refused("stages must be even, not 3", Size::Stages, 4)),
            "stages must be even, not 3: set stages to 4");
  EXPECT_EQ(to_text(not_taken("activations are fixed", Size::Cap)),
            "activations are fixed: leave the cap out");
  EXPECT_EQ(to_text(not_taken("activations are fixed", Size::Cap), "--cap"),
            "activations are fixed: leave --cap out");
  Refusal all = refused("all is wrong", Size::Stages, 6);
  all.changes.push_back({Size::MicroBatches, 12'000'000});
  all.changes.push_back({Size::WarmUp, 1});
  all.changes.push_back({Size::Iterations, 0, true});
  all.changes.push_back({Size::Cap, 0, true});
  EXPECT_EQ(to_text(all),
            "all is wrong: set stages to 6, micro-batches to 12000000 and warm-up to 1, and leave "
            "iterations and the cap out");
}

// What is named is what is broken first; the changes meet the other constraints, too.
TEST(Refusal, NamesTheNearestSizes) {
  const ScheduleParams params{3, 5, 1, 0};
  const Schedule& chimera = find_schedule("chimera", "test");
  const Refusal one = chimera.check(params);
  ASSERT_EQ(one.changes.size(), 1U);
  EXPECT_EQ(one.changes[0].size, Size::Stages);
  EXPECT_EQ(one.changes[0].value, 4);
  EXPECT_FALSE(one.of_product);

  const Refusal all = refusal_of(chimera.check, params);
  EXPECT_EQ(all.constraint, one.constraint);
  ASSERT_EQ(all.changes.size(), 2U);
  EXPECT_EQ(all.changes[0].size, Size::Stages);
  EXPECT_EQ(all.changes[1].size, Size::MicroBatches);
  EXPECT_EQ(all.changes[1].value, 4);

  EXPECT_TRUE(refusal_of(chimera.check, {4, 4, 1, 0}).empty());
  EXPECT_TRUE(chimera.check({50'000, 2, 2, 0}).of_product);
}

TEST(Refusal, CallsTheCapAsItWasGiven) {
  ScheduleParams params{4, 8, 2, 0};
  params.cap = 2;
  const Schedule& schedule = find_schedule("zb-v", "test");
  EXPECT_THAT(refusal(schedule, params), testing::EndsWith(": set the cap to 4"));
  params.cap_name = "--cap";
  EXPECT_THAT(refusal(schedule, params), testing::EndsWith(": set --cap to 4"));
}

}  // namespace
}  // namespace orrery::sim
