// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::sim {
namespace {

using ::testing::ElementsAre;

constexpr auto kActivations = static_cast<std::size_t>(MemoryCategory::Activations);
constexpr auto kParameters = static_cast<std::size_t>(MemoryCategory::Parameters);

class MemoryTest : public ::testing::Test {
 protected:
  NodeId work(std::int64_t duration) { return program_.add_work(stream_, {duration}, {}); }
  BufferId buffer(std::int64_t bytes, NodeId producer, NodeId consumer) {
    const BufferId id =
        program_.add_buffer(pool_, ByteCount(bytes), MemoryCategory::Activations, producer);
    if (consumer != kNone) {
      program_.consume(id, consumer);
    }
    return id;
  }
  Timeline evaluate() {
    program_.finalize();
    return run(program_);
  }
  Program program_;
  StreamId stream_ = program_.add_stream(0, StreamKind::Compute, "s");
  PoolId pool_ = program_.add_pool(0, ByteCount(100), "hbm");
};

// At 10 the 60 bytes go before the 50 come: never 110.
TEST_F(MemoryTest, ReleasesComeBeforeAllocationsAtEqualTimes) {
  const NodeId n0 = work(10);
  const NodeId n1 = work(10);
  const BufferId first = buffer(60, n0, n0);
  buffer(50, n1, n1);
  const Timeline timeline = evaluate();
  EXPECT_EQ(timeline.peaks[0].bytes, ByteCount(60));
  EXPECT_EQ(timeline.peaks[0].at, SimTime{0});
  EXPECT_THAT(timeline.peaks[0].owners, ElementsAre(first));
  EXPECT_FALSE(timeline.out_of_memory);
}

TEST_F(MemoryTest, ABufferLivesUntilItsLastConsumerEnds) {
  const NodeId n0 = work(10);
  const NodeId n1 = work(10);
  const NodeId n2 = work(10);
  const BufferId shared = buffer(30, n0, n2);
  program_.consume(shared, n1);
  const BufferId late = buffer(40, n2, kNone);
  const BufferId fixed =
      program_.add_buffer(pool_, ByteCount(5), MemoryCategory::Parameters, kNone);
  const Timeline timeline = evaluate();
  const PoolPeak& peak = timeline.peaks[0];
  EXPECT_EQ(peak.bytes, ByteCount(75));
  EXPECT_EQ(peak.at, SimTime{20});
  EXPECT_EQ(peak.by_category[kActivations], ByteCount(70));
  EXPECT_EQ(peak.by_category[kParameters], ByteCount(5));
  EXPECT_THAT(peak.owners, ElementsAre(late, shared, fixed));
}

TEST_F(MemoryTest, OutOfMemoryNamesTheFirstInstant) {
  const NodeId n0 = work(10);
  const NodeId n1 = work(10);
  const NodeId n2 = work(10);
  const BufferId a = buffer(60, n0, n2);
  const BufferId b = buffer(41, n1, n2);
  buffer(100, n2, kNone);
  const Timeline timeline = evaluate();
  ASSERT_TRUE(timeline.out_of_memory);
  EXPECT_EQ(timeline.out_of_memory->at, SimTime{10});
  EXPECT_EQ(timeline.out_of_memory->needed, ByteCount(101));
  EXPECT_THAT(timeline.out_of_memory->owners, ElementsAre(a, b));
  EXPECT_EQ(timeline.peaks[0].bytes, ByteCount(201));
}

TEST_F(MemoryTest, EmptyAndInstantaneousBuffersOccupyNothing) {
  const NodeId n0 = work(0);
  const NodeId n1 = work(5);
  buffer(1000, n0, n0);
  buffer(0, n1, n1);
  const Timeline timeline = evaluate();
  EXPECT_EQ(timeline.peaks[0].bytes, ByteCount(0));
  EXPECT_TRUE(timeline.peaks[0].owners.empty());
  EXPECT_FALSE(timeline.out_of_memory);
}

TEST_F(MemoryTest, OwnersAreTheSixteenLargest) {
  for (int i = 0; i < 20; ++i) {
    program_.add_buffer(pool_, ByteCount(i + 1), MemoryCategory::Other, kNone);
  }
  const Timeline timeline = evaluate();
  ASSERT_EQ(timeline.peaks[0].owners.size(), 16U);
  EXPECT_EQ(timeline.peaks[0].owners.front(), 19U);
  EXPECT_EQ(timeline.peaks[0].owners.back(), 4U);
  EXPECT_EQ(timeline.peaks[0].bytes, ByteCount(210));
}

// The second node never runs: what it would allocate is not there, what it would release stays.
TEST_F(MemoryTest, NodesThatNeverRanHaveNoEffect) {
  const NodeId n0 = work(10);
  const NodeId n1 = work(10);
  program_.depend(n1, n1);
  buffer(7, n0, n1);
  buffer(50, n1, kNone);
  const Timeline timeline = evaluate();
  ASSERT_TRUE(timeline.deadlock);
  EXPECT_EQ(timeline.peaks[0].bytes, ByteCount(7));
  const std::vector<BufferLife> lives = buffer_lives(program_, timeline.start, timeline.end);
  EXPECT_EQ(lives[0].until, SimTime::max());
  EXPECT_EQ(lives[1].from, lives[1].until);
}

}  // namespace
}  // namespace orrery::sim
