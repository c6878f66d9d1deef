// SPDX-License-Identifier: Apache-2.0
// Kernels and transfers of one device as demands on shared resources: the special cases of the
// intra-device model (overlap by a factor, buffers, copy engines) come out of max-min sharing.
#include <gtest/gtest.h>

#include <array>

#include "sim/engine/engine.hpp"

namespace orrery::sim {
namespace {

class Device {
 public:
  Device() : processors_(program_.add_resource(1.0, "streaming multiprocessors")) {}

  ResourceId resource(double capacity) { return program_.add_resource(capacity, "resource"); }
  StreamId stream(StreamKind kind) { return program_.add_stream(0, kind, "stream"); }

  // A kernel of `seconds` alone that uses `share` of the processors while it runs at full speed.
  NodeId kernel(double seconds, double share, StreamKind kind = StreamKind::Compute) {
    const Demand demand{processors_, share};
    return program_.add_shared_work(stream(kind), {}, Seconds(seconds), {&demand, 1}, {});
  }
  // One that holds its share whatever runs beside it: its rate reaches its bound first.
  NodeId reserving(double seconds, double share) {
    constexpr double kSmall = 1e-3;
    const Demand demand{processors_, share / kSmall};
    const StreamId stream_of = stream(StreamKind::Collective);
    return program_.add_shared_group({&stream_of, 1}, {}, seconds * kSmall, kSmall, {&demand, 1},
                                     {});
  }
  // One limited to the part of its speed that a share of the processors gives (a class curve).
  NodeId curved(double seconds, double share, double speed) {
    const Demand demand{processors_, share / speed};
    const StreamId stream_of = stream(StreamKind::Compute);
    return program_.add_shared_group({&stream_of, 1}, {}, seconds, speed, {&demand, 1}, {});
  }
  NodeId copy(double bytes, std::vector<ResourceId> route) {
    const StreamId engine = stream(StreamKind::CopyOut);
    return program_.add_flow({&engine, 1}, {}, Bytes(bytes), route, {});
  }
  Timeline run() {
    program_.finalize();
    return sim::run(program_);
  }
  ResourceId processors() const { return processors_; }

 private:
  Program program_;
  ResourceId processors_;
};

double end_of(const Timeline& timeline, NodeId node) {
  return to_seconds(timeline.end[node]).value();
}

// Two kernels that slow each other down by kappa: max + (kappa - 1) min.
TEST(Sharing, KappaOverlap) {
  for (const double kappa : {1.0, 1.3, 1.7, 2.0}) {
    Device device;
    const NodeId x = device.kernel(10, kappa / 2);
    const NodeId y = device.kernel(6, kappa / 2, StreamKind::Collective);
    const Timeline timeline = device.run();
    EXPECT_NEAR(end_of(timeline, y), 6 * kappa, 1e-9);
    EXPECT_NEAR(end_of(timeline, x), 10 + (kappa - 1) * 6, 1e-9);
  }
}

// A communication kernel on 16 of 132 processors leaves the rest to the GEMM.
TEST(Sharing, UserBufferOverlapReservesProcessors) {
  Device device;
  const double share = 16.0 / 132;
  const NodeId communication = device.reserving(4, share);
  const NodeId gemm = device.kernel(10, 1);
  const Timeline timeline = device.run();
  EXPECT_NEAR(end_of(timeline, communication), 4, 1e-9);
  EXPECT_NEAR(end_of(timeline, gemm), 4 + (10 - 4 * (1 - share)), 1e-9);
}

TEST(Sharing, CopyEnginesUseNoProcessors) {
  Device device;
  const ResourceId link = device.resource(1e9);
  const NodeId gemm = device.kernel(5, 1);
  const NodeId copy = device.copy(3e9, {link});
  const Timeline timeline = device.run();
  EXPECT_NEAR(end_of(timeline, gemm), 5, 1e-9);
  EXPECT_NEAR(end_of(timeline, copy), 3, 1e-9);
}

TEST(Sharing, HbmIsSharedByKernelsAndCopies) {
  Device device;
  const ResourceId hbm = device.resource(1e12);
  const ResourceId link = device.resource(0.8e12);
  const NodeId first = device.copy(0.8e12, {link, hbm});
  const NodeId second = device.copy(0.5e12, {hbm});
  const Timeline timeline = device.run();
  // Half each until the second has moved its part, then the first at the rate of its link.
  EXPECT_NEAR(end_of(timeline, second), 1, 1e-9);
  EXPECT_NEAR(end_of(timeline, first), 1 + 0.3 / 0.8, 1e-9);
}

TEST(Sharing, CollectivesOnOneNicShareIt) {
  Device device;
  const ResourceId nic = device.resource(50e9);
  const std::array<NodeId, 3> flows = {device.copy(10e9, {nic}), device.copy(20e9, {nic}),
                                       device.copy(30e9, {nic})};
  const Timeline timeline = device.run();
  EXPECT_NEAR(end_of(timeline, flows[0]), 0.6, 1e-9);
  EXPECT_NEAR(end_of(timeline, flows[1]), 1.0, 1e-9);
  EXPECT_NEAR(end_of(timeline, flows[2]), 1.2, 1e-9);
}

// A GEMM with 0.4 of the device at 0.4 of its speed, a memory-bound kernel with 0.4 at 0.8, a
// network kernel with 0.2 at 0.9 (NanoFlow's measured curve): each at the speed of its share.
TEST(Sharing, ClassCurvesBoundEveryKernel) {
  Device device;
  const NodeId gemm = device.curved(2, 0.4, 0.4);
  const NodeId memory = device.curved(2, 0.4, 0.8);
  const NodeId network = device.curved(2, 0.2, 0.9);
  const Timeline timeline = device.run();
  EXPECT_NEAR(end_of(timeline, gemm), 2 / 0.4, 1e-9);
  EXPECT_NEAR(end_of(timeline, memory), 2 / 0.8, 1e-9);
  EXPECT_NEAR(end_of(timeline, network), 2 / 0.9, 1e-9);
}

// Speeds rise when a competitor leaves, no work is lost, and the end lies between the longest
// kernel and the sum of all.
TEST(Sharing, ConservesWork) {
  Device device;
  const std::array<double, 4> seconds = {1, 2, 3, 4};
  std::array<NodeId, 4> nodes{};
  double sum = 0;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    nodes[index] = device.kernel(seconds[index], 1);
    sum += seconds[index];
  }
  const Timeline timeline = device.run();
  double before = 0;
  double slowest_speed = 0;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    const double end = end_of(timeline, nodes[index]);
    const double speed = 1.0 / (end - before);  // each interval finishes one more second of work
    EXPECT_GT(speed, slowest_speed);
    slowest_speed = speed;
    before = end;
  }
  EXPECT_NEAR(before, sum, 1e-9);  // all of them need the whole device
}

}  // namespace
}  // namespace orrery::sim
