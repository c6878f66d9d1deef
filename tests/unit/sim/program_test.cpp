// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace orrery::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Program, RowsKeepTheOrderInWhichEdgesWereAdded) {
  Program program;
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(1, StreamKind::Compute, "b");
  const NodeId n0 = program.add_work(a, {1}, {});
  const NodeId n1 = program.add_work(b, {1}, {});
  const std::array<StreamId, 2> both = {b, a};
  const NodeId n2 = program.add_group(both, {5}, {});
  const NodeId n3 = program.add_work(a, {2}, {});
  program.depend(n3, n1);
  program.depend(n3, n0);
  program.depend(n2, n1);
  program.finalize();
  EXPECT_THAT(program.predecessors(n3), ElementsAre(n1, n0));
  EXPECT_THAT(program.successors(n1), ElementsAre(n3, n2));
  EXPECT_THAT(program.successors(n3), IsEmpty());
  EXPECT_THAT(program.nodes_of(a), ElementsAre(n0, n2, n3));
  EXPECT_THAT(program.nodes_of(b), ElementsAre(n1, n2));
  EXPECT_THAT(program.streams_of(n2), ElementsAre(b, a));
  EXPECT_EQ(program.num_dependencies(), 3U);
}

TEST(Program, WorkWithoutDemandsBecomesAFixedDuration) {
  Program program;
  const StreamId stream = program.add_stream(0, StreamKind::Compute, "a");
  const NodeId shared = program.add_shared_work(stream, {5}, Seconds(1e-9), {}, {});
  const NodeId group = program.add_shared_group({}, {1}, 10.0, 1e12, {}, {});
  const NodeId flow = program.add_flow({}, {7}, Bytes(1e9), {}, {});
  program.finalize();
  EXPECT_EQ(program.latency(shared), SimTime{1005});
  EXPECT_EQ(program.latency(group), SimTime{11});
  EXPECT_EQ(program.latency(flow), SimTime{7});
  EXPECT_EQ(program.work(shared), 0.0);
  EXPECT_FALSE(program.has_shared_demands());
}

TEST(Program, EqualNamesShareAnIndex) {
  Program program;
  EXPECT_EQ(program.add_name(""), 0U);
  const std::uint32_t first = program.add_name("optimizer step");
  EXPECT_EQ(program.add_name("other"), first + 1);
  EXPECT_EQ(program.add_name("optimizer step"), first);
  EXPECT_EQ(program.names()[first], "optimizer step");
}

TEST(Program, VersionsBecomeDataDependenciesOnEveryWriter) {
  Program program;
  const StreamId stream = program.add_stream(0, StreamKind::Compute, "a");
  const VersionedId weights = program.add_versioned(0);
  const NodeId write1 = program.add_work(stream, {1}, {});
  const NodeId write2 = program.add_work(stream, {1}, {});
  const NodeId other_part_of_1 = program.add_work(stream, {1}, {});
  const NodeId reads_0 = program.add_work(stream, {1}, {});
  const NodeId reads_1 = program.add_work(stream, {1}, {});
  program.writes_version(write2, weights, 2);
  program.writes_version(write1, weights, 1);
  program.writes_version(other_part_of_1, weights, 1);
  program.reads_version(reads_0, weights, 0);
  program.reads_version(reads_1, weights, 1);
  program.finalize();
  EXPECT_THAT(program.predecessors(reads_0), IsEmpty());
  EXPECT_THAT(program.predecessors(reads_1), ElementsAre(write1, other_part_of_1));
  EXPECT_THAT(program.successors(write2), IsEmpty());
}

TEST(Program, BuffersKnowTheirProducerAndConsumers) {
  Program program;
  const StreamId stream = program.add_stream(0, StreamKind::Compute, "a");
  const PoolId pool = program.add_pool(0, ByteCount(100), "hbm");
  const NodeId n0 = program.add_work(stream, {1}, {});
  const NodeId n1 = program.add_work(stream, {1}, {});
  const BufferId fixed = program.add_buffer(pool, ByteCount(5), MemoryCategory::Parameters, kNone);
  const BufferId made = program.add_buffer(pool, ByteCount(7), MemoryCategory::Activations, n0);
  program.consume(made, n1);
  program.consume(made, n0);
  program.finalize();
  EXPECT_THAT(program.produced_buffers(n0), ElementsAre(made));
  EXPECT_THAT(program.consumers(made), ElementsAre(n1, n0));
  EXPECT_THAT(program.consumers(fixed), IsEmpty());
  EXPECT_THAT(program.consumed_buffers(n1), ElementsAre(made));
}

TEST(Program, NodeTextNamesPassAndPosition) {
  Program program;
  Tag tag{.pass = PassKind::Backward, .chunk = 1, .layer = 4, .micro_batch = 3};
  const NodeId plain = program.add_flow({}, {0}, Bytes(0), {}, tag);
  tag = {.pass = PassKind::Transfer, .comm = CommKind::SendReceive};
  const NodeId transfer = program.add_flow({}, {0}, Bytes(0), {}, tag);
  tag = {.name = program.add_name("router")};
  const NodeId named = program.add_flow({}, {0}, Bytes(0), {}, tag);
  program.finalize();
  EXPECT_EQ(node_text(program, plain), "backward of micro-batch 3, chunk 1, layer 4");
  EXPECT_EQ(node_text(program, transfer), "transfer (send-receive) of micro-batch 0");
  EXPECT_EQ(node_text(program, named), "router of micro-batch 0");
}

TEST(ProgramDeathTest, BadReferencesAreBugs) {
  Program program;
  const StreamId stream = program.add_stream(0, StreamKind::Compute, "a");
  const std::array<StreamId, 2> twice = {stream, stream};
  EXPECT_DEATH(program.add_group(twice, {1}, {}), "bad stream");
  EXPECT_DEATH(program.add_work(stream, {-1}, {}), "negative duration");
  EXPECT_DEATH(program.wait_for(0, 3, 1), "unknown counter");
  const NodeId node = program.add_work(stream, {1}, {});
  program.depend(node, 17);
  EXPECT_DEATH(program.finalize(), "never added");
}

TEST(ProgramDeathTest, ReadingAVersionThatNothingWritesIsABug) {
  Program program;
  const StreamId stream = program.add_stream(0, StreamKind::Compute, "a");
  const NodeId node = program.add_work(stream, {1}, {});
  program.reads_version(node, program.add_versioned(0), 1);
  EXPECT_DEATH(program.finalize(), "nothing writes");
}

}  // namespace
}  // namespace orrery::sim
