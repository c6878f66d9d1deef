// SPDX-License-Identifier: Apache-2.0
// Memory tiers on random programs: nothing is lost, steps and links are bounds, memory stays within
// the window.
#include "sim/engine/tiers.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

namespace orrery::sim {
namespace {

struct TierCase {
  TierGraph graph;
  std::vector<TierObject> objects;
  std::vector<TierStep> steps;
  TierPolicy policy;
  std::int64_t largest = 0;
  std::int64_t stored = 0;
};

std::int64_t pick(std::int64_t from, std::int64_t until) {
  return *rc::gen::inRange<std::int64_t>(from, until);
}

TierCase any_tier_case() {
  TierCase one;
  const bool half_duplex = pick(0, 2) == 0;
  const BytesPerSecond rate(static_cast<double>(pick(1, 100)) * 1e6);
  one.graph.tiers = {{"device", ByteCount(), {}},
                     {"host", ByteCount(), BytesPerSecond(pick(0, 2) == 0 ? 0.0 : 5e7)}};
  one.graph.channels = {{1, 0, rate, Seconds(), half_duplex ? 0 : -1},
                        {0, 1, rate, Seconds(), half_duplex ? 0 : -1}};
  const auto objects = static_cast<int>(pick(1, 8));
  for (int object = 0; object < objects; ++object) {
    const std::int64_t bytes = pick(1, 1'000'000);
    one.largest = std::max(one.largest, bytes);
    one.objects.push_back({"object", ByteCount(bytes), {{1, ByteCount(bytes)}}});
  }
  const auto steps = pick(1, 30);
  for (std::int64_t step = 0; step < steps; ++step) {
    TierStep next{static_cast<int>(pick(kNoObject, objects)), SimTime{pick(0, 20'000'000'000)}, {}};
    if (next.object != kNoObject && pick(0, 3) == 0) {
      const std::int64_t bytes = pick(1, 500'000);
      next.stores.push_back({1, ByteCount(bytes)});
      one.stored += bytes;
    }
    one.steps.push_back(std::move(next));
  }
  one.policy.resident = static_cast<int>(pick(1, 6));
  one.policy.batch = static_cast<int>(pick(1, one.policy.resident + 1));
  one.policy.dirty = pick(0, 2) == 0 ? DirtySpace::OfObject : DirtySpace::OwnBuffer;
  return one;
}

TEST(TiersProperty, BytesAreConserved) {
  EXPECT_TRUE(rc::check([] {
    const TierCase one = any_tier_case();
    const TierRun run = run_tiers(one.graph, 0, one.objects, one.steps, one.policy);
    RC_ASSERT(run.moved[1].value() == one.stored);
    // Every object that is used was loaded at least once, and only used ones.
    std::vector<bool> used(one.objects.size());
    std::int64_t least = 0;
    std::int64_t most = 0;
    for (const TierStep& step : one.steps) {
      if (step.object == kNoObject) {
        continue;
      }
      const auto slot = static_cast<std::size_t>(step.object);
      const std::int64_t bytes = one.objects[slot].resident.value();
      least += used[slot] ? 0 : bytes;
      most += bytes;
      used[slot] = true;
    }
    RC_ASSERT(run.moved[0].value() >= least);
    RC_ASSERT(run.moved[0].value() <= most);
  }));
}

TEST(TiersProperty, TheTimeLiesBetweenTheLongestPartAndTheSum) {
  EXPECT_TRUE(rc::check([] {
    const TierCase one = any_tier_case();
    const TierRun run = run_tiers(one.graph, 0, one.objects, one.steps, one.policy);
    const double rate = one.graph.channels[0].bandwidth.value();
    const double host = one.graph.tiers[1].bandwidth.value();
    const double slowest = host > 0 ? std::min(rate, host) : rate;
    const double in = static_cast<double>(run.moved[0].value()) / slowest;
    const double out = static_cast<double>(run.moved[1].value()) / slowest;
    const double busy = to_seconds(run.busy).value();
    const double drained = to_seconds(run.drained).value();
    RC_ASSERT(drained >= std::max({busy, in, out}) - 1e-9);
    RC_ASSERT(drained <= busy + in + out + 1e-9);
    RC_ASSERT(run.makespan <= run.drained);
    RC_ASSERT(std::is_sorted(run.ends.begin(), run.ends.end()));
  }));
}

TEST(TiersProperty, MemoryStaysWithinTheWindow) {
  EXPECT_TRUE(rc::check([] {
    TierCase one = any_tier_case();
    const TierRun run = run_tiers(one.graph, 0, one.objects, one.steps, one.policy);
    std::int64_t bound = one.policy.resident * one.largest;
    if (one.policy.dirty == DirtySpace::OwnBuffer) {
      bound += one.stored;  // at most everything that is dirty
    }
    RC_ASSERT(run.peak.value() <= bound);
    // A tier of that size holds it; one byte less than the peak does not.
    one.graph.tiers[0].capacity = run.peak;
    RC_ASSERT(run_tiers(one.graph, 0, one.objects, one.steps, one.policy).fits);
    if (run.peak.value() > 1) {
      one.graph.tiers[0].capacity = run.peak - ByteCount(1);
      RC_ASSERT(!run_tiers(one.graph, 0, one.objects, one.steps, one.policy).fits);
    }
  }));
}

}  // namespace
}  // namespace orrery::sim
