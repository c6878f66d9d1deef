// SPDX-License-Identifier: Apache-2.0
// Measurements on nodes of different GPUs.
#include "studies/validation/mixed_rows.hpp"

#include <gmock/gmock.h>

#include "studies/validation/predictions.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::predicted;
using testing::row_of;

Changes two_nodes(const std::string& order) {
  return {{"gpu", "mixed: nodes 1xH100-80GB-SXM+1xA100-80GB-SXM"},
          {"gpus", "16"},
          {"tp", "8"},
          {"dp", "1"},
          {"global_batch", "8"},
          {"notes", order}};
}

TEST(MixedRows, NodesInStageOrder) {
  EXPECT_THAT(stated_nodes("layers: 12/14; nodes in stage order: A+B+B | C; x"),
              ElementsAre(ElementsAre("A", "B", "B"), ElementsAre("C")));
  EXPECT_TRUE(stated_nodes("layers: 12/14").empty());
  EXPECT_TRUE(is_mixed_row(row_of(two_nodes(""))));
  EXPECT_FALSE(is_mixed_row(row_of({})));
  EXPECT_TRUE(is_mixed_row(row_of({{"gpu", "Mixed: nodes 1xA100+1xV100"}})));
  EXPECT_THAT(stated_nodes("Nodes in stage order: A | B"),
              ElementsAre(ElementsAre("A"), ElementsAre("B")));
}

TEST(MixedRows, TheSlowerGpuCounts) {
  const RowResult mixed =
      predicted(two_nodes("nodes in stage order: H100-80GB-SXM | A100-80GB-SXM"));
  ASSERT_EQ(mixed.skipped_because, "");
  Changes alone = two_nodes("");
  alone["gpu"] = "A100-80GB-SXM";
  const RowResult slow = predicted(alone);
  alone["gpu"] = "H100-80GB-SXM";
  const RowResult fast = predicted(alone);
  EXPECT_LT(mixed.predicted, slow.predicted);
  EXPECT_GT(mixed.predicted, fast.predicted);
  EXPECT_EQ(mixed.gpu, "mixed");
}

TEST(MixedRows, MemoryIsThatOfTheStage) {
  Changes changes = two_nodes("nodes in stage order: H100-80GB-SXM | A100-80GB-SXM");
  changes["measured_metric"] = "peak_mem_gib";
  const RowResult mixed = predicted(changes);
  // Hopper keeps a larger workspace for matrix products.
  changes["gpu"] = "A100-80GB-SXM";
  EXPECT_GE(mixed.predicted, predicted(changes).predicted);
  changes["gpu"] = "H100-80GB-SXM";
  EXPECT_LE(mixed.predicted, predicted(changes).predicted);
}

TEST(MixedRows, WhatIsMissingIsSaid) {
  EXPECT_THAT(predicted(two_nodes("")).skipped_because, HasSubstr("order"));
  EXPECT_THAT(
      predicted(two_nodes("nodes in stage order: H100-80GB-SXM | RTX-9999")).skipped_because,
      HasSubstr("RTX-9999"));
  EXPECT_THAT(
      predicted(two_nodes("nodes in stage order: H100-80GB-SXM+A100-80GB-SXM")).skipped_because,
      HasSubstr("each stage of each replica"));
}

}  // namespace
}  // namespace orrery::studies
