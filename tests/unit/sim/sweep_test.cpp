// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "sim/engine/engine.hpp"

namespace orrery::sim {
namespace {

void expect_same(const Timeline& actual, const Timeline& expected) {
  EXPECT_EQ(actual.start, expected.start);
  EXPECT_EQ(actual.end, expected.end);
  EXPECT_EQ(actual.makespan, expected.makespan);
  EXPECT_EQ(actual.deadlock.has_value(), expected.deadlock.has_value());
}

// 1F1B on two stages, three micro-batches, F = 1 and B = 2, transfers 0: by hand, makespan
// (m + p - 1)(F + B) = 12.
TEST(Sweep, EvaluatesASmallPipeline) {
  Program program;
  const StreamId first = program.add_stream(0, StreamKind::Compute, "stage 0");
  const StreamId last = program.add_stream(1, StreamKind::Compute, "stage 1");
  std::vector<NodeId> forward0;
  std::vector<NodeId> backward1;
  for (int i = 0; i < 3; ++i) {
    const NodeId forward1 = program.add_work(last, {1}, {});
    backward1.push_back(program.add_work(last, {2}, {}));
    forward0.push_back(forward1);  // its producer follows
  }
  std::vector<NodeId> order;
  for (const char* pass = "FFBFBB"; *pass != '\0'; ++pass) {
    order.push_back(program.add_work(first, {*pass == 'F' ? 1 : 2}, {}));
  }
  const std::array<std::size_t, 3> forwards = {0, 1, 3};
  const std::array<std::size_t, 3> backwards = {2, 4, 5};
  for (std::size_t i = 0; i < 3; ++i) {
    program.depend(forward0[i], order[forwards[i]]);
    program.depend(order[backwards[i]], backward1[i]);
  }
  program.finalize();
  EXPECT_EQ(sweep(program).makespan, SimTime{12});
  expect_same(sweep(program), run(program));
}

// A group whose members arrive at different times and which waits for an input in addition; its
// input comes from a chain of nodes without streams that starts on one of its own streams.
TEST(Sweep, GroupsWaitForMembersAndInputs) {
  Program program;
  std::vector<StreamId> streams;
  for (std::uint32_t device = 0; device < 3; ++device) {
    streams.push_back(program.add_stream(device, StreamKind::Collective, "ring"));
  }
  const NodeId early = program.add_work(streams[2], {4}, {});
  const NodeId late = program.add_work(streams[1], {9}, {});
  const NodeId group = program.add_group(streams, {5}, {});
  const NodeId after = program.add_work(streams[0], {1}, {});
  NodeId link = early;
  for (int i = 0; i < 3; ++i) {
    const NodeId next = program.add_flow({}, {2}, Bytes(0), {}, {});
    program.depend(next, link);
    link = next;
  }
  program.depend(group, link);
  program.finalize();
  const Timeline timeline = sweep(program);
  EXPECT_EQ(timeline.start[group], SimTime{10});  // 4 + 3 * 2 is later than 9
  EXPECT_EQ(timeline.end[late], SimTime{9});
  EXPECT_EQ(timeline.start[after], SimTime{15});
  expect_same(timeline, run(program));
}

// A loose node with many inputs, some of them reached twice, and a long chain: no recursion.
TEST(Sweep, DeepChainsOfLooseNodesNeedNoStack) {
  Program program;
  const StreamId stream = program.add_stream(0, StreamKind::Compute, "s");
  std::vector<NodeId> chain = {program.add_work(stream, {1}, {})};
  for (std::size_t i = 1; i < 200'000; ++i) {
    chain.push_back(program.add_flow({}, {1}, Bytes(0), {}, {}));
    program.depend(chain[i], chain[i - 1]);
    program.depend(chain[i], chain[i / 2]);
  }
  program.depend(program.add_work(stream, {1}, {}), chain.back());
  program.finalize();
  EXPECT_EQ(sweep(program).makespan, SimTime{200'001});
}

TEST(Sweep, DeadlocksAreThoseOfTheEventEngine) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const NodeId loose1 = program.add_flow({}, {1}, Bytes(0), {}, {});
  const NodeId loose2 = program.add_flow({}, {1}, Bytes(0), {}, {});
  program.depend(loose1, loose2);
  program.depend(loose2, loose1);
  const NodeId blocked = program.add_work(a, {1}, {});
  program.depend(blocked, loose1);
  program.add_work(b, {3}, {});
  program.finalize();
  const Timeline timeline = sweep(program);
  ASSERT_TRUE(timeline.deadlock);
  EXPECT_EQ(timeline.deadlock->nodes_left, 3U);
  EXPECT_EQ(timeline.makespan, SimTime{3});
}

}  // namespace
}  // namespace orrery::sim
