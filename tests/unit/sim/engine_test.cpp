// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> ps(const std::vector<SimTime>& times) {
  std::vector<std::int64_t> result;
  for (const SimTime time : times) {
    result.push_back(time.ps);
  }
  return result;
}

TEST(Engine, AnEmptyProgramTakesNoTime) {
  Program program;
  program.add_stream(0, StreamKind::Compute, "idle");
  program.finalize();
  const Timeline timeline = run(program);
  EXPECT_EQ(timeline.makespan, SimTime{0});
  EXPECT_FALSE(timeline.deadlock);
  EXPECT_EQ(sweep(program).makespan, SimTime{0});
}

// a: [0,10) then [10,13); b waits for the first of a: [10,30).
TEST(Engine, StreamsRunInOrderAndConsumersWait) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const NodeId n0 = program.add_work(a, {10}, {});
  program.add_work(a, {3}, {});
  const NodeId n2 = program.add_work(b, {20}, {});
  program.depend(n2, n0);
  program.finalize();
  const Timeline timeline = run(program);
  EXPECT_THAT(ps(timeline.start), ElementsAre(0, 10, 10));
  EXPECT_THAT(ps(timeline.end), ElementsAre(10, 13, 30));
  EXPECT_EQ(timeline.makespan, SimTime{30});
}

// The group starts when both streams are free (at 7) and holds both for 5.
TEST(Engine, AGroupStartsAtTheHeadOfAllItsStreams) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Collective, "a");
  const StreamId b = program.add_stream(1, StreamKind::Collective, "b");
  program.add_work(a, {2}, {});
  program.add_work(b, {7}, {});
  const std::array<StreamId, 2> both = {a, b};
  program.add_group(both, {5}, {});
  program.add_work(a, {1}, {});
  program.add_work(b, {1}, {});
  program.finalize();
  for (const Timeline& timeline : {run(program), sweep(program)}) {
    EXPECT_THAT(ps(timeline.start), ElementsAre(0, 0, 7, 12, 12));
    EXPECT_EQ(timeline.makespan, SimTime{13});
  }
}

TEST(Engine, NodesWithoutDurationOrStreamAreLegal) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const NodeId n0 = program.add_work(a, {4}, {});
  const NodeId f1 = program.add_flow({}, {0}, Bytes(0), {}, {});
  const NodeId f2 = program.add_flow({}, {3}, Bytes(0), {}, {});
  const NodeId n3 = program.add_work(a, {0}, {});
  const NodeId n4 = program.add_work(a, {0}, {});
  program.depend(f1, n0);
  program.depend(f2, f1);
  program.depend(n3, f2);
  program.finalize();
  for (const Timeline& timeline : {run(program), sweep(program)}) {
    EXPECT_THAT(ps(timeline.start), ElementsAre(0, 4, 4, 7, 7));
    EXPECT_EQ(timeline.end[n4], SimTime{7});
  }
}

// One credit: the second forward (a) may start only after the backward of the first (b) returned
// it.
TEST(Engine, CountersHoldBackUntilTheyAreHighEnough) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const CounterId credits = program.add_counter(1);
  for (int i = 0; i < 2; ++i) {
    const NodeId forward = program.add_work(a, {10}, {});
    program.wait_for(forward, credits, 1);
    program.adjust(forward, credits, -1, true);
    const NodeId backward = program.add_work(b, {5}, {});
    program.depend(backward, forward);
    program.adjust(backward, credits, 1, false);
  }
  program.finalize();
  const Timeline timeline = run(program);
  EXPECT_THAT(ps(timeline.start), ElementsAre(0, 10, 15, 25));
  EXPECT_THAT(ps(sweep(program).start), ElementsAre(0, 10, 15, 25));
}

// Three nodes compete for one credit: they run one after the other in order of id.
TEST(Engine, CompetitorsForACreditGoInOrderOfId) {
  Program program;
  const CounterId lock = program.add_counter(1);
  for (int i = 0; i < 3; ++i) {
    const StreamId stream = program.add_stream(0, StreamKind::Host, "s");
    const NodeId node = program.add_work(stream, {10}, {});
    program.wait_for(node, lock, 1);
    program.adjust(node, lock, -1, true);
    program.adjust(node, lock, 1, false);
  }
  program.finalize();
  EXPECT_THAT(ps(run(program).start), ElementsAre(0, 10, 20));
}

TEST(Engine, TimesBeyond106DaysAreAnError) {
  Program program;
  const StreamId stream = program.add_stream(0, StreamKind::Compute, "s");
  program.add_work(stream, {SimTime::max().ps / 2 + 1}, {});
  program.add_work(stream, {SimTime::max().ps / 2 + 1}, {});
  program.finalize();
  EXPECT_THROW(run(program), Error);
  EXPECT_THROW(sweep(program), Error);
}

// Both transfers block both compute streams; each device sends first: the classic deadlock.
TEST(Engine, ARendezvousDeadlockIsExplained) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "stage 0 compute");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "stage 1 compute");
  const StreamId c = program.add_stream(2, StreamKind::Compute, "stage 2 compute");
  const std::array<StreamId, 1> only_a = {a};
  program.add_work(a, {1}, {.pass = PassKind::Forward});
  const NodeId activation =
      program.add_flow(only_a, {1}, Bytes(0), {}, {.pass = PassKind::Transfer, .micro_batch = 1});
  const NodeId backward = program.add_work(b, {1}, {.pass = PassKind::Backward, .micro_batch = 2});
  const NodeId last = program.add_work(c, {1}, {.pass = PassKind::Optimizer});
  program.depend(activation, backward);
  program.depend(backward, activation);
  program.depend(last, backward);
  program.finalize();
  const Timeline timeline = run(program);
  ASSERT_TRUE(timeline.deadlock);
  EXPECT_EQ(timeline.deadlock->nodes_left, 3U);
  EXPECT_THAT(
      timeline.deadlock->blocked,
      ElementsAre("stage 0 compute: transfer of micro-batch 1 waits for backward of micro-batch 2 "
                  "on stage 1 compute",
                  "stage 1 compute: backward of micro-batch 2 waits for transfer of micro-batch 1 "
                  "on stage 0 compute",
                  "stage 2 compute: optimizer of micro-batch 0 waits for backward of micro-batch 2 "
                  "on stage 1 compute"));
  EXPECT_THAT(ps(timeline.start), ElementsAre(0, -1, -1, -1));
  EXPECT_EQ(timeline.makespan, SimTime{1});
  EXPECT_EQ(sweep(program).deadlock->blocked, timeline.deadlock->blocked);
}

TEST(Engine, DeadlocksNameStreamsOfAGroupAndCounters) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const std::array<StreamId, 2> both = {a, b};
  const CounterId counter = program.add_counter(2);
  const NodeId blocked = program.add_work(b, {1}, {});
  program.wait_for(blocked, counter, 3);
  program.add_group(both, {1}, {.pass = PassKind::Communication, .comm = CommKind::AllReduce});
  program.finalize();
  const Timeline timeline = run(program);
  ASSERT_TRUE(timeline.deadlock);
  EXPECT_THAT(timeline.deadlock->blocked,
              ElementsAre("a: communication (all-reduce) of micro-batch 0 waits for b, which is at "
                          "other of micro-batch 0",
                          "b: other of micro-batch 0 waits for counter 0 to reach 3 (it is 2)"));
}

TEST(Engine, CyclesOfNodesWithoutStreamsAreReportedAndLongReportsAreCut) {
  Program program;
  std::vector<NodeId> nodes;
  for (std::uint32_t i = 0; i < 30; ++i) {
    nodes.push_back(program.add_flow({}, {1}, Bytes(0), {}, {.micro_batch = i}));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    program.depend(nodes[i], nodes[(i + 1) % nodes.size()]);
  }
  program.finalize();
  const Timeline timeline = sweep(program);
  ASSERT_TRUE(timeline.deadlock);
  EXPECT_EQ(timeline.deadlock->nodes_left, 30U);
  ASSERT_EQ(timeline.deadlock->blocked.size(), 20U);
  EXPECT_EQ(timeline.deadlock->blocked.back(), "and 11 more");
}

}  // namespace
}  // namespace orrery::sim
