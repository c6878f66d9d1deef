// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace orrery::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Tag pass(PassKind kind) { return {.pass = kind}; }
Tag communication(CommKind kind) { return {.pass = PassKind::Communication, .comm = kind}; }

// Last device of a pipeline of two: F0 [10,20) F1 [20,30) B0 [40,60) wait B1 [70,90).
TEST(StreamUse, SplitsIdleTimeByPhaseAndCause) {
  Program program;
  const StreamId other = program.add_stream(0, StreamKind::Compute, "other");
  const StreamId stream = program.add_stream(1, StreamKind::Compute, "stage");
  std::vector<NodeId> delays;
  for (const std::int64_t duration : {10, 30, 30}) {
    delays.push_back(program.add_work(other, {duration}, {}));
  }
  const NodeId f0 = program.add_work(stream, {10}, pass(PassKind::Forward));
  program.add_work(stream, {10}, pass(PassKind::Forward));
  const NodeId b0 = program.add_work(stream, {20}, pass(PassKind::Backward));
  const NodeId transfer = program.add_flow({}, {0}, Bytes(0), {}, communication(CommKind::Copy));
  const NodeId b1 = program.add_work(stream, {20}, pass(PassKind::Backward));
  program.depend(f0, delays[0]);
  program.depend(b0, delays[1]);
  program.depend(transfer, delays[2]);
  program.depend(b1, transfer);
  program.finalize();
  const StreamUse use = stream_use(program, run(program))[stream];
  EXPECT_EQ(use.first_start, SimTime{10});
  EXPECT_EQ(use.last_end, SimTime{90});
  EXPECT_EQ(use.busy, SimTime{60});
  EXPECT_EQ(use.idle_warm_up, SimTime{10});  // 30 to 40, before the first backward
  EXPECT_EQ(use.idle_steady, SimTime{0});
  EXPECT_EQ(use.idle_cool_down, SimTime{10});  // 60 to 70, after the last forward
  EXPECT_EQ(use.idle_for_data, SimTime{10});
  EXPECT_EQ(use.idle_for_transfer, SimTime{10});
  EXPECT_EQ(use.idle_for_peer, SimTime{0});
  EXPECT_EQ(use.idle_for_counter, SimTime{0});
}

TEST(StreamUse, WaitingForGroupsAndCountersIsToldApart) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const CounterId counter = program.add_counter(0);
  program.add_work(a, {1}, pass(PassKind::Forward));
  const NodeId slow = program.add_work(b, {5}, pass(PassKind::Forward));
  const std::array<StreamId, 2> both = {a, b};
  const NodeId group = program.add_group(both, {2}, communication(CommKind::AllReduce));
  const NodeId opener = program.add_work(b, {10}, {});
  program.adjust(opener, counter, 1, false);
  const NodeId held = program.add_work(a, {1}, {});
  program.wait_for(held, counter, 1);
  program.finalize();
  const Timeline timeline = run(program);
  const StreamUse use = stream_use(program, timeline)[a];
  EXPECT_EQ(use.idle_for_peer, SimTime{4});
  EXPECT_EQ(use.idle_for_counter, SimTime{10});
  EXPECT_EQ(start_bound(program, timeline, group).by, BoundBy::Stream);
  EXPECT_EQ(start_bound(program, timeline, group).node, slow);
  EXPECT_EQ(start_bound(program, timeline, held).by, BoundBy::Counter);
  EXPECT_EQ(start_bound(program, timeline, held).node, opener);
  EXPECT_EQ(start_bound(program, timeline, slow).by, BoundBy::Nothing);
}

// Compute [0,10) and [30,40). All-reduce [5,25), all-gather [12,20) on other streams: exposed is
// 10 to 25, all of it for the all-reduce, which ends last; copy [40,45) after the end of compute.
TEST(CommunicationUse, CountsEachExposedInstantOnce) {
  Program program;
  const StreamId compute = program.add_stream(3, StreamKind::Compute, "compute");
  const StreamId ring = program.add_stream(3, StreamKind::Collective, "ring");
  const StreamId gather = program.add_stream(3, StreamKind::Collective, "gather");
  const StreamId elsewhere = program.add_stream(0, StreamKind::Host, "clock");
  const auto after = [&](NodeId node, std::int64_t delay) {
    const NodeId wait = program.add_flow({}, {delay}, Bytes(0), {}, {});
    program.depend(node, wait);
  };
  program.add_work(elsewhere, {1}, {});
  program.add_work(compute, {10}, {});
  after(program.add_work(ring, {20}, communication(CommKind::AllReduce)), 5);
  after(program.add_work(gather, {8}, communication(CommKind::AllGather)), 12);
  const NodeId second = program.add_work(compute, {10}, {});
  after(second, 30);
  const NodeId copy = program.add_work(gather, {5}, communication(CommKind::Copy));
  program.depend(copy, second);
  program.finalize();
  const std::vector<CommunicationUse> uses = communication_use(program, run(program));
  ASSERT_EQ(uses.size(), 3U);
  EXPECT_EQ(uses[0].kind, CommKind::AllReduce);
  EXPECT_EQ(uses[0].device, 3U);
  EXPECT_EQ(uses[0].total, SimTime{20});
  EXPECT_EQ(uses[0].exposed, SimTime{15});
  EXPECT_EQ(uses[1].kind, CommKind::AllGather);
  EXPECT_EQ(uses[1].total, SimTime{8});
  EXPECT_EQ(uses[1].exposed, SimTime{0});
  EXPECT_EQ(uses[2].kind, CommKind::Copy);
  EXPECT_EQ(uses[2].exposed, SimTime{5});
}

// A collective on the compute stream itself is exposed in full; a transfer without a stream belongs
// to the device that waits for it.
TEST(CommunicationUse, CoversBlockingCollectivesAndTransfers) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const NodeId work = program.add_work(a, {10}, {});
  program.add_work(a, {7}, {.comm = CommKind::AllReduce, .name = program.add_name("tp")});
  const NodeId transfer = program.add_flow({}, {4}, Bytes(0), {}, communication(CommKind::Copy));
  program.depend(transfer, work);
  program.depend(program.add_work(b, {1}, {}), transfer);
  program.finalize();
  const std::vector<CommunicationUse> uses = communication_use(program, run(program));
  ASSERT_EQ(uses.size(), 2U);
  EXPECT_EQ(program.names()[uses[0].name], "tp");
  EXPECT_EQ(uses[0].exposed, SimTime{7});
  EXPECT_EQ(uses[1].device, 1U);
  EXPECT_EQ(uses[1].exposed, SimTime{4});
}

// Versions 1 (at 10) and 2 (at 20) are written on one stream. Readers: version 0 at 15 (stale by
// 1, until 25), version 2 at 20.
TEST(VersionReports, CountStalenessAndKeptVersions) {
  Program program;
  const StreamId update = program.add_stream(0, StreamKind::Compute, "update");
  const StreamId reader = program.add_stream(0, StreamKind::Collective, "reader");
  const VersionedId weights = program.add_versioned(0);
  for (std::int64_t version = 1; version <= 2; ++version) {
    program.writes_version(program.add_work(update, {10}, {}), weights, version);
  }
  const NodeId late = program.add_work(update, {1}, {});
  program.reads_version(late, weights, 2);
  program.add_work(reader, {15}, {});
  const NodeId stale = program.add_work(reader, {10}, {});
  program.reads_version(stale, weights, 0);
  program.finalize();
  const std::vector<VersionReport> reports = version_reports(program, run(program));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_THAT(reports[0].reads_by_staleness, ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_EQ(reports[0].max_staleness, 1);
  // Version 0 until 25, version 1 from 10 to 20, version 2 from 20.
  EXPECT_EQ(reports[0].max_kept, 2);
}

}  // namespace
}  // namespace orrery::sim
