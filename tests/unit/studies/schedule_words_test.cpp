// SPDX-License-Identifier: Apache-2.0
// Schedules by the classes of torch.distributed.pipelining, with what their cell adds, and by names
// of what no plan has.
#include <gmock/gmock.h>

#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::row_of;

std::string schedule(const std::string& cell) { return row_of({{"schedule", cell}}).schedule; }

TEST(ScheduleWords, ClassesOfTorch) {
  EXPECT_EQ(schedule("Schedule1F1B"), "1f1b");
  EXPECT_EQ(schedule("ScheduleGPipe"), "gpipe");
  EXPECT_EQ(schedule("ScheduleInterleaved1F1B"), "interleaved");
  EXPECT_EQ(schedule("ScheduleLoopedBFS"), "breadth-first");
  EXPECT_EQ(schedule("ScheduleZBVZeroBubble"), "zb-v");
  EXPECT_EQ(schedule("ScheduleDualPipeV"), "dualpipe-v");
  EXPECT_EQ(schedule("schedule"), "schedule");
  EXPECT_EQ(schedule("Zero-Bubble V"), "zb-v");
}

TEST(ScheduleWords, FamiliesBracketsAndSynonyms) {
  EXPECT_EQ(schedule("Zero-bubble V-Min"), "v-min");
  EXPECT_EQ(schedule("zero bubble 1p"), "zb-1p");
  EXPECT_EQ(schedule("Zero Bubble (ZB-H1)"), "zb-h1");
  EXPECT_EQ(schedule("zero-bubble 1F1B"), "zero-bubble 1f1b");
  EXPECT_EQ(schedule("PP (GPipe)"), "gpipe");
  EXPECT_EQ(schedule("AFAB / GPipe"), "gpipe");
  EXPECT_EQ(schedule("GPipe / 1F1B"), "gpipe / 1f1b");  // of two rows
}

TEST(ScheduleWords, FoldsHaveTwoChunksWhereOneIsStated) {
  for (const char* name : {"zb-v", "hanayo", "bitpipe"}) {
    const Measurement row = row_of({{"schedule", name}, {"vpp", "1"}});
    EXPECT_EQ(row_plan(row).value().chunks, 2) << name;
  }
  EXPECT_EQ(row_plan(row_of({{"schedule", "hanayo"}, {"vpp", "4"}})).value().chunks, 4);
}

TEST(ScheduleWords, SlicesOfASequence) {
  const auto slices = [](const std::string& notes) {
    return row_plan(row_of({{"schedule", "Seq1F1B"}, {"notes", notes}})).value().slices;
  };
  EXPECT_EQ(slices("sequence split into 4"), 4);
  EXPECT_EQ(slices(""), 1);
}

// What no plan has stands in as the one with as many chunks.
TEST(ScheduleWords, UnknownOnesKeepTheirChunks) {
  const auto assumed = [](const std::string& name, const std::string& vpp) {
    return testing::predicted({{"schedule", name}, {"vpp", vpp}, {"confidence", "partial"}})
        .assumed;
  };
  EXPECT_THAT(assumed("ScheduleInterleavedZeroBubble", "2"),
              ::testing::Contains("schedule interleavedzerobubble as interleaved"));
  EXPECT_THAT(assumed("AdaPipe", ""), ::testing::Contains("schedule adapipe as 1f1b"));
  EXPECT_EQ(testing::predicted({{"schedule", "AdaPipe"}, {"vpp", "2"}, {"confidence", "partial"}})
                .predicted,
            testing::predicted({{"schedule", "interleaved"}, {"vpp", "2"}}).predicted);
}

TEST(ScheduleWords, NamesThatAreNoMisspellings) {
  EXPECT_EQ(schedule("MEPipe"), "mepipe");
  EXPECT_EQ(schedule("SVPP"), "svpp");
  EXPECT_EQ(schedule("gpip"), "gpipe");
  EXPECT_EQ(schedule("interleavd"), "interleaved");
  EXPECT_EQ(schedule("1F1B-VPP (4)"), "interleaved");
}

TEST(ScheduleWords, OverlapHasAColumnOfItsOwn) {
  EXPECT_EQ(schedule("1F1B with overlap"), "1f1b");
  EXPECT_EQ(schedule("1F1B + p2p overlap"), "1f1b");
  EXPECT_EQ(schedule("GPipe without overlap"), "gpipe");
  EXPECT_EQ(schedule("1F1B with interleaving, p2p overlap"), "interleaved");
  EXPECT_EQ(schedule("1F1B with foo"), "1f1b with foo");
}

// Its balancing changes the memory of stages, and no plan has it.
TEST(ScheduleWords, BPipeIsTimedAs1F1B) {
  EXPECT_EQ(schedule("BPipe"), "1f1b");
  const RowResult result = testing::predicted({{"schedule", "BPipe"}});
  EXPECT_EQ(result.predicted, testing::predicted({{"schedule", "1f1b"}}).predicted);
  EXPECT_THAT(
      result.assumed,
      ::testing::Contains("schedule BPipe as 1f1b, without balancing activations between stages"));
  EXPECT_THAT(testing::predicted({{"schedule", "1f1b"}}).assumed, ::testing::IsEmpty());
}

}  // namespace
}  // namespace orrery::studies
