// SPDX-License-Identifier: Apache-2.0
// What list heuristics and policies copy is what they would have decided, and of several runs those
// that they leave out or end early would not have won.
#include "sim/orders/list_repetition.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "base/random.hpp"

namespace orrery::sim {
namespace {

constexpr const char* kPlanned[] = {"hanayo", "crosspipe", "dip",     "zb-1p",   "zb-2p",
                                    "zb-v",   "vocab-1",   "vocab-2", "flexpipe"};

// Equal stages repeat soon, nearly equal ones late, others never within so few micro-batches.
std::vector<PassTimes> random_times(Random& random, std::size_t stages) {
  const std::int64_t spread = static_cast<std::int64_t>(random.below(3)) * 7;
  const auto draw = [&](std::int64_t least) {
    return SimTime{least +
                   static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(spread) + 1))};
  };
  const std::int64_t forward = 1 + static_cast<std::int64_t>(random.below(9));
  const std::int64_t grad = static_cast<std::int64_t>(random.below(9));
  std::vector<PassTimes> times;
  for (std::size_t s = 0; s < stages; ++s) {
    times.push_back({draw(forward), draw(1 + grad), draw(grad), draw(0), SimTime{0}});
  }
  return times;
}

TEST(ListRepetitionProperty, CopiesWhatWouldBeDecided) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    ScheduleParams params;
    params.stages = 1 + static_cast<int>(random.below(6));
    params.micro_batches = 1 + static_cast<int>(random.below(70));
    params.chunks = 1 + static_cast<int>(random.below(2));
    params.cap = random.below(2) == 0 ? 0.0 : 1.0 + static_cast<double>(random.below(12));
    params.activation = 1 + static_cast<std::int64_t>(random.below(4));
    params.weight_grad_activation =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(params.activation) + 1));
    if (random.below(4) > 0) {
      params.times = random_times(random, static_cast<std::size_t>(params.stages * params.chunks));
    }
    for (const char* name : kPlanned) {
      const Schedule& schedule = find_schedule(name, "test");
      if (!schedule.check(params).empty()) {
        continue;
      }
      ScheduleParams all = params;
      all.decides_all = true;
      RC_ASSERT(schedule.order(params).passes == schedule.order(all).passes);
    }
  }));
}

// Nearly equal stages move apart, each at its own pace, until one waits for another.
TEST(ListRepetitionProperty, CopiesWhileDevicesMoveApart) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto draw = [&](std::int64_t least) {
      return SimTime{least + static_cast<std::int64_t>(random.below(9))};
    };
    ScheduleParams params{2 + static_cast<int>(random.below(6)),
                          60 + static_cast<int>(random.below(120)), 1, 0};
    const std::int64_t forward = 60 + static_cast<std::int64_t>(random.below(60));
    const std::int64_t send = static_cast<std::int64_t>(random.below(60));
    for (int s = 0; s < 2 * params.stages; ++s) {
      params.times.push_back({draw(forward), draw(forward), draw(forward), draw(send), SimTime{0}});
    }
    params.cap = params.stages + static_cast<double>(random.below(2) * 2);
    for (const char* name : {"zb-1p", "zb-2p", "zb-v"}) {
      const Schedule& schedule = find_schedule(name, "test");
      params.chunks = schedule.traits.uses_chunks ? 2 : 1;
      ScheduleParams all = params;
      all.decides_all = true;
      RC_ASSERT(schedule.order(params).passes == schedule.order(all).passes);
    }
  }));
}

// Slices go backward within a micro-batch, so that lists repeat by micro-batches.
TEST(ListRepetitionProperty, SlicesRepeatByMicroBatches) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    ScheduleParams params;
    params.stages = 1 + static_cast<int>(random.below(5));
    params.micro_batches = 1 + static_cast<int>(random.below(20));
    params.chunks = 1 + static_cast<int>(random.below(2));
    params.slices = params.stages + static_cast<int>(random.below(3));
    const std::size_t shards = random.below(2) * static_cast<std::size_t>(params.stages);
    params.times =
        random_times(random, static_cast<std::size_t>(params.stages * params.chunks) + shards);
    ScheduleParams all = params;
    all.decides_all = true;
    const Schedule& schedule = find_schedule("slimpipe-vocab", "test");
    RC_ASSERT(schedule.order(params).passes == schedule.order(all).passes);
  }));
}

// Patterns whose middle is repeated, with 3 to 40 times as many micro-batches as stages.
TEST(ListRepetitionProperty, PatternsOnlyHaveALongerMiddle) {
  EXPECT_TRUE(rc::check([] {
    const int p = *rc::gen::inRange(1, 14);
    ScheduleParams params{p, *rc::gen::inRange(3 * p, 3 * p + 37 * p), 2, *rc::gen::inRange(0, 2)};
    ScheduleParams all = params;
    all.decides_all = true;
    for (const char* name : {"v-min", "v-half", "v-zb"}) {
      const Schedule& schedule = find_schedule(name, "test");
      RC_ASSERT(schedule.order(params).passes == schedule.order(all).passes);
    }
    const Schedule& within = find_schedule("v-cap", "test");
    params.cap = all.cap = 1 + p / 2 + *rc::gen::inRange(0, p + 1);
    RC_ASSERT(within.order(params).passes == within.order(all).passes);
    params.cap = all.cap = 0;
    params.warm_up = all.warm_up = 0;
    for (const char* name : {"vocab-1", "vocab-2"}) {
      const Schedule& schedule = find_schedule(name, "test");
      RC_ASSERT(schedule.order(params).passes == schedule.order(all).passes);
    }
  }));
}

// Shards of an output layer wait for each other's messages, which are not all alike.
TEST(ListRepetition, ShardsKnowOfEachOtherAfterACopy) {
  for (const int stages : {2, 3, 8}) {
    ScheduleParams params{stages, 70, 1, 0};
    for (int stage = 0; stage < 2 * stages; ++stage) {  // the second half: shards
      params.times.push_back({SimTime{4}, SimTime{5}, SimTime{3}, SimTime{stage % 3}, SimTime{0}});
    }
    ScheduleParams all = params;
    all.decides_all = true;
    for (const char* name : {"vocab-1", "vocab-2"}) {
      const Schedule& schedule = find_schedule(name, "test");
      EXPECT_EQ(schedule.order(params).passes, schedule.order(all).passes) << name << stages;
    }
  }
}

// Equal stages: most of a long run is copied, so that it takes hardly longer than a short one; here
// the copies themselves are looked at.
TEST(ListRepetition, CopiesShiftUnits) {
  const Schedule& schedule = find_schedule("zb-2p", "test");
  const PipelineOrder order = schedule.order({4, 400, 1, 0});
  for (const std::vector<Pass>& list : order.passes) {
    ASSERT_EQ(list.size(), 1200U);
    for (std::size_t at = 400; at < 800; ++at) {
      EXPECT_EQ(list[at].kind, list[at - 3].kind);
      EXPECT_EQ(list[at].micro_batch, list[at - 3].micro_batch + 1);
    }
  }
}

}  // namespace
}  // namespace orrery::sim
