// SPDX-License-Identifier: Apache-2.0
// Memory tiers against the closed forms of Superpipeline (arXiv 2410.08791), the sliding windows of
// TPI-LLM (arXiv 2410.00531) and double buffers.
#include "sim/engine/tiers.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

constexpr double kRate = 1e9;  // bytes per second of a link
constexpr std::int64_t kBytesPerSecond = 1'000'000'000;

TierGraph two_tiers(bool half_duplex) {
  TierGraph graph;
  graph.tiers = {{"device", ByteCount(), {}}, {"host", ByteCount(), {}}};
  const int group = half_duplex ? 0 : -1;
  graph.channels = {{1, 0, BytesPerSecond(kRate), Seconds(), group},
                    {0, 1, BytesPerSecond(kRate), Seconds(), group}};
  return graph;
}

SimTime seconds(double value) { return to_sim_time(Seconds(value)); }

struct Partitions {
  int count = 12;
  double compute = 1;
  double load = 1;
  double store = 0;
};

// `cycles` rounds over all partitions.
TierRun run_cycles(const Partitions& parts, const TierPolicy& policy, int cycles,
                   bool half_duplex = false) {
  std::vector<TierObject> objects;
  std::vector<TierStep> steps;
  for (int part = 0; part < parts.count; ++part) {
    const ByteCount bytes(static_cast<std::int64_t>(parts.load * kBytesPerSecond));
    objects.push_back({"part", bytes, {{1, bytes}}});
  }
  for (int step = 0; step < cycles * parts.count; ++step) {
    TierStep one{step % parts.count, seconds(parts.compute), {}};
    if (parts.store > 0) {
      one.stores = {{1, ByteCount(static_cast<std::int64_t>(parts.store * kBytesPerSecond))}};
    }
    steps.push_back(one);
  }
  return run_tiers(two_tiers(half_duplex), 0, objects, steps, policy);
}

// Time of one partition once the window has filled.
double steady(const Partitions& parts, const TierPolicy& policy, bool half_duplex = false) {
  const TierRun run = run_cycles(parts, policy, 8, half_duplex);
  const auto at = [&](int cycle) {
    return to_seconds(run.ends[static_cast<std::size_t>(cycle * parts.count - 1)]).value();
  };
  return (at(7) - at(4)) / (3.0 * parts.count);
}

TEST(Tiers, SteadyStateIsTheStallFormula) {
  for (const double load : {0.25, 1.0, 1.5, 3.0}) {
    for (int resident = 1; resident <= 6; ++resident) {
      for (int batch = 1; batch <= resident; ++batch) {
        Partitions parts;
        parts.load = load;
        if (parts.count % batch != 0) {
          continue;
        }
        const Seconds expected =
            steady_partition_time(Seconds(1), Seconds(load), Seconds(), resident, batch, false);
        EXPECT_NEAR(steady(parts, {.resident = resident, .batch = batch}), expected.value(), 1e-9)
            << load << " " << resident << " " << batch;
      }
    }
  }
}

TEST(Tiers, StoresRunBesideLoadsOnAFullDuplexLink) {
  for (const double store : {0.5, 1.0, 2.5}) {
    Partitions parts;
    parts.load = 0.75;
    parts.store = store;
    for (const auto& [resident, batch] : {std::pair(2, 1), std::pair(4, 2), std::pair(6, 3)}) {
      const Seconds expected =
          steady_partition_time(Seconds(1), Seconds(0.75), Seconds(store), resident, batch, false);
      EXPECT_NEAR(steady(parts, {.resident = resident, .batch = batch}), expected.value(), 1e-9);
    }
  }
}

TEST(Tiers, AHalfDuplexLinkCarriesTheSum) {
  Partitions parts;
  parts.load = 1.5;
  parts.store = 1.0;
  EXPECT_NEAR(steady(parts, {.resident = 4, .batch = 1}, true), 2.5, 1e-9);
  EXPECT_NEAR(steady(parts, {.resident = 4, .batch = 1}, false), 1.5, 1e-9);
}

TEST(Tiers, OnePartitionAtATimeIsSerial) {
  Partitions parts;
  parts.load = 3;
  EXPECT_NEAR(steady(parts, {.resident = 1, .batch = 1}), 4, 1e-9);
  parts.store = 2;
  const TierPolicy in_place{.resident = 1, .batch = 1, .dirty = DirtySpace::OfObject};
  EXPECT_NEAR(steady(parts, in_place), 6, 1e-9);
}

TEST(Tiers, NothingMovesWhenEverythingFits) {
  Partitions parts;
  const TierRun run = run_cycles(parts, {.resident = parts.count}, 3);
  EXPECT_EQ(run.moved[0].value(), parts.count * kBytesPerSecond);  // once each
  EXPECT_EQ(run.moved[1].value(), 0);
  EXPECT_NEAR(to_seconds(run.makespan).value(), 1 + 3 * parts.count, 1e-9);
}

TEST(Tiers, MemoryIsLinearInTheWindow) {
  for (int resident = 1; resident <= 12; ++resident) {
    const TierRun run = run_cycles({}, {.resident = resident}, 3);
    EXPECT_EQ(run.peak.value(), resident * kBytesPerSecond);
  }
}

TEST(Tiers, TheTurnOfTrainingKeepsWhatIsNeededNext) {
  std::vector<TierObject> objects;
  std::vector<TierStep> steps;
  constexpr int kParts = 6;
  for (int part = 0; part < kParts; ++part) {
    objects.push_back({"part", ByteCount(kBytesPerSecond), {{1, ByteCount(kBytesPerSecond)}}});
  }
  for (int step = 0; step < 2 * kParts; ++step) {
    steps.push_back({std::min(step, 2 * kParts - 1 - step), seconds(2), {}});
  }
  const TierRun run = run_tiers(two_tiers(false), 0, objects, steps, {.resident = 2});
  // Forward loads all six; backward the four that were dropped.
  EXPECT_EQ(run.moved[0].value(), 10 * kBytesPerSecond);
  EXPECT_NEAR(to_seconds(run.stalls()).value(), 1, 1e-9);  // the first load alone
}

TEST(Tiers, DisksAreReachedThroughTheHost) {
  TierGraph graph = two_tiers(false);
  graph.tiers.push_back({"disk", ByteCount(), {}});
  graph.channels.push_back({2, 1, BytesPerSecond(kRate / 4), Seconds(0.5), 3});
  EXPECT_EQ(graph.path(2, 0), (std::vector<int>{2, 0}));
  const std::vector<TierObject> objects = {
      {"weights", ByteCount(kBytesPerSecond), {{2, ByteCount(kBytesPerSecond)}}}};
  const TierRun run = run_tiers(graph, 0, objects, {{0, seconds(1), {}}}, {});
  EXPECT_NEAR(to_seconds(run.makespan).value(), 0.5 + 4 + 1, 1e-9);  // the slowest link counts
  EXPECT_THROW(graph.path(0, 2), Error);
}

TEST(Tiers, ATierThatIsTooSmallIsReported) {
  TierGraph graph = two_tiers(false);
  graph.tiers[0].capacity = ByteCount(3 * kBytesPerSecond / 2);
  const std::vector<TierObject> objects(
      2, {"part", ByteCount(kBytesPerSecond), {{1, ByteCount(kBytesPerSecond)}}});
  const std::vector<TierStep> steps = {{0, seconds(1), {}}, {1, seconds(1), {}}};
  EXPECT_FALSE(run_tiers(graph, 0, objects, steps, {.resident = 2}).fits);
  EXPECT_TRUE(run_tiers(graph, 0, objects, steps, {.resident = 1}).fits);
}

TEST(Tiers, RefusesAnEmptyWindow) {
  EXPECT_THROW(run_cycles({}, {.resident = 0}, 1), Error);
  EXPECT_THROW(run_cycles({}, {.resident = 2, .batch = 3}, 1), Error);
}

// TPI-LLM's measured blocks (milliseconds): attention 11, FFN 17, all-reduce 14 after each, loads
// 18 and 30, four blocks resident: no stalls from the second layer on; 45 instead of 30 makes every
// layer take what its loads take.
TEST(Tiers, SlidingWindowOfAttentionAndFfnBlocks) {
  const auto layer_time = [](double ffn_load) {
    std::vector<TierObject> objects;
    std::vector<TierStep> steps;
    constexpr int kLayers = 32;
    for (int block = 0; block < 2 * kLayers; ++block) {
      const bool attention = block % 2 == 0;
      const auto bytes = static_cast<std::int64_t>((attention ? 18 : ffn_load) * 1e6);
      objects.push_back({"block", ByteCount(bytes), {{1, ByteCount(bytes)}}});
      steps.push_back({block, seconds((attention ? 11 : 17) * 1e-3 + 14e-3), {}});
    }
    const TierRun run = run_tiers(two_tiers(false), 0, objects, steps, {.resident = 4});
    return to_seconds(run.ends[60] - run.ends[20]).value() / 20 * 1e3;
  };
  EXPECT_NEAR(layer_time(30), 56, 1e-9);
  EXPECT_NEAR(layer_time(45), 63, 1e-9);
}

}  // namespace
}  // namespace orrery::sim
