// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "sim/collective_program.hpp"
#include "sim/engine/engine.hpp"
#include "tests/unit/sim/sizes.hpp"

namespace orrery::sim {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

CollectiveCosts plain(double bandwidth, SimTime latency = {}) {
  return {latency, BytesPerSecond(bandwidth), SimTime{}, {}};
}

SimTime time_of(std::string_view name, int ranks, std::int64_t size, const CollectiveCosts& costs) {
  return collective_time(find_collective(name, ""), ranks, ByteCount(size), costs).time;
}

TEST(Collectives, WhatNeverEndsIsSaid) {
  EXPECT_THROW(time_of("star-all-reduce", 4, kGiB, plain(1e-3)), BeyondSimulatedTime);
  EXPECT_THROW(time_of("ring-all-reduce", 4, kGiB, plain(1e-3)), BeyondSimulatedTime);
  // Each message takes 31 days, and each rank sends six.
  EXPECT_THROW(time_of("ring-all-reduce", 4, kGiB, plain(100)), BeyondSimulatedTime);
}

TEST(Collectives, AnUnknownNameSuggestsTheNearest) {
  try {
    find_collective("ring-allreduce", "plan.json: /collective");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_NE(std::string(error.what()).find("ring-all-reduce"), std::string::npos);
  }
}

TEST(Collectives, PiecesDifferByOneByteAndSumToTheWhole) {
  EXPECT_EQ(piece_bytes(ByteCount(11), 4, 0).value(), 3);
  EXPECT_EQ(piece_bytes(ByteCount(11), 4, 2).value(), 3);
  EXPECT_EQ(piece_bytes(ByteCount(11), 4, 3).value(), 2);
  EXPECT_EQ(bytes_of_pieces(ByteCount(11), 4, 1, 3).value(), 8);
  EXPECT_EQ(piece_bytes(ByteCount(2), 4, 3).value(), 0);
}

// Per-rank bytes of the bandwidth-optimal algorithms, sent and received.
TEST(Collectives, EveryRankCarriesItsShare) {
  const int n = 8;
  const ByteCount size(n * 1000);
  for (const auto& [name, share] : std::vector<std::pair<std::string, std::int64_t>>{
           {"ring-all-reduce", 2 * (n - 1) * 1000},
           {"recursive-all-reduce", 2 * (n - 1) * 1000},
           {"ring-all-gather", (n - 1) * 1000},
           {"ring-reduce-scatter", (n - 1) * 1000},
           {"direct-all-to-all", (n - 1) * 1000},
           {"pairwise-all-to-all", (n - 1) * 1000}}) {
    std::vector<std::int64_t> sent(n);
    std::vector<std::int64_t> received(n);
    for (const CollectiveMessage& message :
         collective_messages(find_collective(name, ""), n, size)) {
      sent[message.from] += message.bytes.value();
      received[message.to] += message.bytes.value();
    }
    EXPECT_EQ(sent, std::vector<std::int64_t>(n, share)) << name;
    EXPECT_EQ(received, std::vector<std::int64_t>(n, share)) << name;
  }
}

// A rank that is a leaf of one tree is an inner node of the other: nobody sends more than the
// size up and the size down.
TEST(Collectives, TheTwoTreesShareTheWork) {
  for (const int n : {2, 3, 6, 7, 16, 31}) {
    std::vector<std::int64_t> sent(static_cast<std::size_t>(n));
    for (const CollectiveMessage& message :
         collective_messages(find_collective("tree-all-reduce", ""), n, ByteCount(4 * kMiB))) {
      sent[message.from] += message.bytes.value();
    }
    for (const std::int64_t bytes : sent) {
      EXPECT_LE(bytes, 2 * 4 * kMiB) << n;
    }
  }
}

// The ring of a store-and-forward simulator: K steps of floor(latency + m/B), an end-point delay
// around each, and 3 floor(m / local bandwidth) per summed message.
CollectiveCosts whole_nanoseconds(std::int64_t message_bytes) {
  const double bandwidth = 50.0 * static_cast<double>(kGiB);
  const double in_ns = static_cast<double>(message_bytes) / (bandwidth * 1e-9);
  const double floored = std::floor(500.0 + in_ns) - in_ns;
  return {to_sim_time(Seconds(floored * 1e-9)), BytesPerSecond(bandwidth), SimTime{10'000},
          [](ByteCount bytes) { return SimTime{3'000 * (bytes.value() / 1600)}; }};
}

TEST(Collectives, RingClosedFormInNanoseconds) {
  for (const auto& [size, expected] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {64 * kMiB, 2'304'732}, {kGiB, 36'768'756}}) {
    EXPECT_EQ(time_of("ring-all-reduce", 8, size, whole_nanoseconds(size / 8)).ps, expected * 1000);
  }
}

TEST(Collectives, RingAllReduceIsReduceScatterThenAllGather) {
  const CollectiveCosts costs = plain(25e9, SimTime{700'000});
  for (const int n : {2, 5, 8, 64}) {
    const std::int64_t size = n * 123'456;
    EXPECT_EQ(time_of("ring-all-reduce", n, size, costs),
              time_of("ring-reduce-scatter", n, size, costs) +
                  time_of("ring-all-gather", n, size, costs));
  }
}

TEST(Collectives, LargeMessagesReachTheBandwidthTerm) {
  const CollectiveCosts costs = plain(50e9, SimTime{5'000'000});
  const std::int64_t size = 8 * kGiB;
  const double beta = static_cast<double>(size) / 50e9;
  const auto ratio = [&](std::string_view name, double factor) {
    return to_seconds(time_of(name, 16, size, costs)).value() / (factor * beta);
  };
  EXPECT_NEAR(ratio("ring-all-reduce", 2.0 * 15 / 16), 1.0, 0.01);
  EXPECT_NEAR(ratio("recursive-all-reduce", 2.0 * 15 / 16), 1.0, 0.01);
  EXPECT_NEAR(ratio("direct-all-to-all", 15.0 / 16), 1.0, 0.01);
  EXPECT_NEAR(ratio("pairwise-all-to-all", 15.0 / 16), 1.0, 0.01);
  // 256 chunks in a pipeline of 15 hops.
  EXPECT_NEAR(ratio("ring-broadcast", (256.0 + 14.0) / 256.0), 1.0, 0.01);
  EXPECT_NEAR(ratio("binomial-broadcast", 4.0), 1.0, 0.01);
}

// Logarithmic algorithms win with few bytes, rings with many.
TEST(Collectives, TreesWinWhenLatencyCounts) {
  const CollectiveCosts costs = plain(50e9, SimTime{5'000'000});
  EXPECT_LT(time_of("tree-all-reduce", 64, 1024, costs),
            time_of("ring-all-reduce", 64, 1024, costs));
  EXPECT_LT(time_of("recursive-all-reduce", 64, 1024, costs),
            time_of("tree-all-reduce", 64, 1024, costs));
  EXPECT_LT(time_of("binomial-broadcast", 64, 1024, costs),
            time_of("ring-broadcast", 64, 1024, costs));
  EXPECT_LT(time_of("ring-broadcast", 64, kGiB, costs),
            time_of("binomial-broadcast", 64, kGiB, costs));
}

TEST(Collectives, OnlyMeetingMessagesNeedTheNetwork) {
  const auto shared = [](std::string_view name) {
    return collective_time(find_collective(name, ""), 8, ByteCount(8000), plain(1e9)).shared;
  };
  EXPECT_FALSE(shared("ring-all-reduce"));
  EXPECT_FALSE(shared("recursive-all-reduce"));
  EXPECT_FALSE(shared("pairwise-all-to-all"));
  EXPECT_TRUE(shared("direct-all-to-all"));
  EXPECT_TRUE(shared("tree-all-reduce"));
}

class TwoCollectives : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  CollectiveRoutes routes() const {
    return [](std::uint32_t from, std::uint32_t to) {
      return std::vector<ResourceId>{from, kRanks + to};
    };
  }
  void add_ports() {
    for (int port = 0; port < 2 * kRanks; ++port) {
      program.add_resource(1e9, fmt::format("port {}", port));
    }
  }
  std::vector<StreamId> add_streams() {
    std::vector<StreamId> streams;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      streams.push_back(program.add_stream(rank, StreamKind::Collective, "communication"));
    }
    return streams;
  }
  SimTime makespan() {
    program.finalize();
    return run(program).makespan;
  }
  const CollectiveAlgorithm& ring = find_collective("ring-all-reduce", "");
  const ByteCount size{4000};
  Program program;
};

TEST_F(TwoCollectives, ShareTheirLinksAsGroups) {
  add_ports();
  for (int i = 0; i < 2; ++i) {
    add_collective_group(program, add_streams(), ring, kRanks, size, plain(1e9), routes(), Tag{});
  }
  EXPECT_EQ(makespan(), time_of("ring-all-reduce", kRanks, 4000, plain(1e9)) * 2);
}

TEST_F(TwoCollectives, ShareTheirLinksMessageByMessage) {
  add_ports();
  for (int i = 0; i < 2; ++i) {
    expand_collective(program, ring, kRanks, size, plain(1e9), routes(), Tag{});
  }
  EXPECT_EQ(makespan(), time_of("ring-all-reduce", kRanks, 4000, plain(1e9)) * 2);
}

TEST_F(TwoCollectives, FollowEachOtherRankByRank) {
  add_ports();
  const auto first = expand_collective(program, ring, kRanks, size, plain(1e9), routes(), Tag{});
  expand_collective(program, ring, kRanks, size, plain(1e9), routes(), Tag{}, first);
  EXPECT_EQ(makespan(), time_of("ring-all-reduce", kRanks, 4000, plain(1e9)) * 2);
}

TEST_F(TwoCollectives, ContentionFreeMessagesNeedNoLinks) {
  const CollectiveCosts costs = plain(1e9, SimTime{50'000});
  expand_collective(program, ring, kRanks, size, costs, {}, Tag{});
  EXPECT_EQ(makespan(), time_of("ring-all-reduce", kRanks, 4000, costs));
}

// Every port carries its share of the bytes, and the loads add up to all messages.
TEST_F(TwoCollectives, LoadsAreTheBytesOfThePorts) {
  const std::vector<Demand> loads = collective_loads(ring, kRanks, size, routes());
  ASSERT_EQ(loads.size(), 2u * kRanks);
  for (const Demand& demand : loads) {
    EXPECT_EQ(demand.amount, 2.0 * 3 * 1000);
  }
}

// Over an oversubscribed trunk the same collective takes longer than around a switch.
TEST_F(TwoCollectives, ReactToTheTopology) {
  add_ports();
  const ResourceId trunk = program.add_resource(0.25e9, "trunk");
  const CollectiveRoutes through_trunk = [&](std::uint32_t from, std::uint32_t to) {
    auto route = routes()(from, to);
    if (from / 2 != to / 2) {
      route.push_back(trunk);
    }
    return route;
  };
  add_collective_group(program, add_streams(), ring, kRanks, size, plain(1e9), through_trunk,
                       Tag{});
  // Two of four ring links cross the trunk: 2 x 6,000 bytes at 0.25 GB/s.
  EXPECT_EQ(makespan().ps, 48'000'000);
}

}  // namespace
}  // namespace orrery::sim
