// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/critical_path.hpp"

namespace orrery::sim {
namespace {

using ::testing::ElementsAre;

std::vector<NodeId> nodes_of(const std::vector<PathStep>& path) {
  std::vector<NodeId> nodes;
  for (const PathStep& step : path) {
    nodes.push_back(step.node);
  }
  return nodes;
}

// a: n0 [0,10) n1 [10,12); b: n2 [0,3), n3 [10,30) after n0; n4 [30,31) on a after n3.
class CriticalPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const StreamId a = program_.add_stream(0, StreamKind::Compute, "a");
    const StreamId b = program_.add_stream(1, StreamKind::Compute, "b");
    const NodeId n0 = program_.add_work(a, {10}, {});
    program_.add_work(a, {2}, {});
    program_.add_work(b, {3}, {});
    const NodeId n3 = program_.add_work(b, {20}, {});
    const NodeId n4 = program_.add_work(a, {1}, {});
    program_.depend(n3, n0);
    program_.depend(n4, n3);
    program_.finalize();
  }
  Program program_;
};

TEST_F(CriticalPathTest, FollowsWhatDeterminedEachStart) {
  const std::vector<PathStep> path = critical_path(program_, run(program_));
  EXPECT_THAT(nodes_of(path), ElementsAre(0, 3, 4));
  EXPECT_EQ(path[0].by, BoundBy::Nothing);
  EXPECT_EQ(path[1].by, BoundBy::Data);
  EXPECT_EQ(path[1].from, SimTime{10});
  EXPECT_EQ(path[1].to, SimTime{30});
  EXPECT_EQ(path[2].to, SimTime{31});
}

// n1 may start at 28 at the latest (before n4), n2 at 7 (before n3).
TEST_F(CriticalPathTest, SlackIsTheDelayThatCostsNothing) {
  EXPECT_THAT(slack(program_, run(program_)),
              ElementsAre(SimTime{0}, SimTime{18}, SimTime{7}, SimTime{0}, SimTime{0}));
}

// The second node is released at the start of the third one, which is on the path with no length.
TEST(CriticalPath, GoesThroughCounterReleases) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const CounterId counter = program.add_counter(0);
  program.add_work(a, {10}, {});
  const NodeId opener = program.add_work(a, {5}, {});
  const NodeId held = program.add_work(b, {20}, {});
  program.wait_for(held, counter, 1);
  program.adjust(opener, counter, 1, true);
  program.finalize();
  const std::vector<PathStep> path = critical_path(program, run(program));
  EXPECT_THAT(nodes_of(path), ElementsAre(0, 1, 2));
  EXPECT_EQ(path[1].from, SimTime{10});
  EXPECT_EQ(path[1].to, SimTime{10});
  EXPECT_EQ(path[2].by, BoundBy::Counter);
  EXPECT_EQ(path[2].to, SimTime{30});
}

// Backward 7, then a transfer of 3 over its link, then forward 2.
TEST(CriticalPath, SharesAddUpByKindAndResource) {
  Program program;
  const ResourceId link = program.add_resource(1e12, "link");
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const NodeId before = program.add_work(a, {7}, {.pass = PassKind::Backward});
  const NodeId transfer = program.add_flow(
      {}, {1}, Bytes(2), {&link, 1}, {.pass = PassKind::Transfer, .comm = CommKind::SendReceive});
  const NodeId after = program.add_work(a, {2}, {.pass = PassKind::Backward});
  program.depend(transfer, before);
  program.depend(after, transfer);
  program.finalize();
  const Timeline timeline = run(program);
  const auto shares = path_shares(program, timeline, critical_path(program, timeline));
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].pass, PassKind::Backward);
  EXPECT_EQ(shares[0].bottleneck, kNone);
  EXPECT_EQ(shares[0].time, SimTime{9});
  EXPECT_EQ(shares[1].comm, CommKind::SendReceive);
  EXPECT_EQ(shares[1].bottleneck, link);
  EXPECT_EQ(shares[1].time, SimTime{3});
}

TEST(CriticalPath, OfAnEmptyProgramIsEmpty) {
  Program program;
  program.finalize();
  EXPECT_TRUE(critical_path(program, run(program)).empty());
  EXPECT_TRUE(slack(program, run(program)).empty());
}

}  // namespace
}  // namespace orrery::sim
