// SPDX-License-Identifier: Apache-2.0
// Nodes that share resources: times derived by hand from max-min shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "sim/engine/engine.hpp"

namespace orrery::sim {
namespace {

using ::testing::Each;

constexpr double kLinkRate = 50e9;  // bytes per second
constexpr double kMebibyte = 1048576.0;

// Hosts around one switch; every flow crosses the sender's uplink and the receiver's downlink.
class Star {
 public:
  explicit Star(int hosts) {
    for (int host = 0; host < hosts; ++host) {
      up_.push_back(program_.add_resource(kLinkRate, "up"));
      down_.push_back(program_.add_resource(kLinkRate, "down"));
    }
  }
  NodeId send(std::size_t from, std::size_t to, double mebibytes) {
    const std::array<ResourceId, 2> route = {up_[from], down_[to]};
    return program_.add_flow({}, {0}, Bytes(mebibytes * kMebibyte), route, {});
  }
  std::vector<double> microseconds() {
    program_.finalize();
    timeline_ = run(program_);
    std::vector<double> times;
    for (const SimTime end : timeline_.end) {
      times.push_back(to_seconds(end).value() * 1e6);
    }
    return times;
  }
  Program program_;
  Timeline timeline_;
  std::vector<ResourceId> up_;
  std::vector<ResourceId> down_;
};

// Seven senders share one downlink: 7 * 8 MiB / 50 GB/s.
TEST(EngineShared, IncastSharesTheDownlink) {
  Star star(8);
  for (std::size_t from = 1; from < 8; ++from) {
    star.send(from, 0, 8);
  }
  EXPECT_THAT(star.microseconds(), Each(::testing::DoubleNear(1174.405, 1e-3)));
  EXPECT_THAT(star.timeline_.bottleneck, Each(star.down_[0]));
}

TEST(EngineShared, AllToAllFillsEveryLink) {
  Star star(8);
  for (std::size_t from = 0; from < 8; ++from) {
    for (std::size_t to = 0; to < 8; ++to) {
      if (from != to) {
        star.send(from, to, 8);
      }
    }
  }
  EXPECT_THAT(star.microseconds(), Each(::testing::DoubleNear(1174.405, 1e-3)));
}

TEST(EngineShared, ShiftsDoNotShare) {
  Star star(8);
  for (std::size_t from = 0; from < 4; ++from) {
    star.send(from, from + 4, 2.0 * static_cast<double>(from + 1));
  }
  const std::vector<double> times = star.microseconds();
  const std::array<double, 4> expected = {41.943, 83.886, 125.829, 167.772};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(times[i], expected[i], 1e-3);
  }
}

TEST(EngineShared, RatesRiseWhenOthersEnd) {
  Star star(5);
  star.send(1, 0, 8);
  star.send(2, 0, 8);
  star.send(1, 3, 8);
  star.send(4, 3, 2);
  const std::vector<double> times = star.microseconds();
  EXPECT_NEAR(times[0], 335.544, 1e-3);
  EXPECT_NEAR(times[1], 335.544, 1e-3);
  EXPECT_NEAR(times[2], 335.544, 1e-3);
  EXPECT_NEAR(times[3], 83.886, 1e-3);
}

// The long flow crosses all three links and takes half of each.
TEST(EngineShared, AChainIsSharedByHopsAndTheLongFlow) {
  Program program;
  std::vector<ResourceId> links;
  for (int i = 0; i < 3; ++i) {
    links.push_back(program.add_resource(kLinkRate, "link"));
  }
  program.add_flow({}, {0}, Bytes(8 * kMebibyte), links, {});
  for (const ResourceId& link : links) {
    program.add_flow({}, {0}, Bytes(8 * kMebibyte), {&link, 1}, {});
  }
  program.finalize();
  const Timeline timeline = run(program);
  for (const SimTime end : timeline.end) {
    EXPECT_NEAR(to_seconds(end).value() * 1e6, 335.544, 1e-3);
  }
}

// A flow alone: latency, then bytes / bandwidth (cut-through over both links).
TEST(EngineShared, LatencyComesBeforeTheBytes) {
  Program program;
  const std::array<ResourceId, 2> route = {program.add_resource(1e9, "a"),
                                           program.add_resource(2e9, "b")};
  program.add_flow({}, {5000}, Bytes(1000), route, {});
  program.add_flow({}, {7000}, Bytes(0), route, {});
  program.finalize();
  const Timeline timeline = run(program);
  EXPECT_EQ(timeline.end[0], SimTime{5000 + 1'000'000});
  EXPECT_EQ(timeline.end[1], SimTime{7000});
  EXPECT_EQ(timeline.bottleneck[0], route[0]);
  EXPECT_EQ(timeline.bottleneck[1], kNone);
}

// Work of 1 us needs the full HBM rate; a second one in between halves both. Alone until 0.5 us,
// then half speed: the first has 0.5 us of work left and takes 1 us for it; the second then has
// 0.5 us left, alone.
TEST(EngineShared, WorkSlowsDownWhenItsDemandIsNotMet) {
  Program program;
  const ResourceId hbm = program.add_resource(3e12, "hbm");
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(0, StreamKind::Collective, "b");
  const std::array<Demand, 1> all = {Demand{hbm, 3e12}};
  const NodeId first = program.add_shared_work(a, {0}, Seconds(1e-6), all, {});
  program.add_work(b, {500'000}, {});
  const NodeId second = program.add_shared_work(b, {0}, Seconds(1e-6), all, {});
  const std::array<Demand, 1> little = {Demand{program.add_resource(2.0, "sms"), 1.0}};
  const NodeId third = program.add_shared_work(a, {0}, Seconds(1e-6), little, {});
  program.finalize();
  const Timeline timeline = run(program);
  EXPECT_EQ(timeline.end[first], SimTime{1'500'000});
  EXPECT_NEAR(static_cast<double>(timeline.end[second].ps), 2'000'000, 2);
  EXPECT_EQ(timeline.end[third], SimTime{2'500'000});
  EXPECT_EQ(timeline.bottleneck[third], kNone);  // its own rate bound
}

// A rendezvous holds both streams while its bytes move, and two of them share the link.
TEST(EngineShared, ARendezvousHoldsItsStreams) {
  Program program;
  const ResourceId link = program.add_resource(1e12, "link");
  std::vector<StreamId> streams;
  for (std::uint32_t device = 0; device < 4; ++device) {
    streams.push_back(program.add_stream(device, StreamKind::Compute, "s"));
  }
  program.add_flow(std::span(streams).first(2), {0}, Bytes(100), {&link, 1}, {});
  program.add_flow(std::span(streams).last(2), {0}, Bytes(100), {&link, 1}, {});
  const NodeId after = program.add_work(streams[1], {10}, {});
  program.finalize();
  const Timeline timeline = sweep(program);  // hands over to run
  EXPECT_EQ(timeline.end[0], SimTime{200});
  EXPECT_EQ(timeline.start[after], SimTime{200});
}

TEST(EngineShared, AGroupLoadsTheLinksOfItsAlgorithm) {
  Program program;
  const ResourceId link = program.add_resource(1e12, "link");
  const StreamId stream = program.add_stream(0, StreamKind::Collective, "s");
  const std::array<Demand, 1> twice = {Demand{link, 2.0}};
  program.add_shared_group({&stream, 1}, {10}, 100.0, 1e12, twice, {});
  program.add_shared_group({&stream, 1}, {10}, 100.0, 0.25e12, twice, {});
  program.finalize();
  const Timeline timeline = run(program);
  EXPECT_EQ(timeline.end[0], SimTime{210});
  EXPECT_EQ(timeline.end[1], SimTime{210 + 410});
}

}  // namespace
}  // namespace orrery::sim
