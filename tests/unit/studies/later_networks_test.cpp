// SPDX-License-Identifier: Apache-2.0
// Later releases of networks, by name alone.
#include <gmock/gmock.h>

#include "studies/rows/named_network.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::row_of;

TEST(CellNotations, NetworksOfLaterReleases) {
  const auto layers = [](const char* name) {
    Measurement row = row_of({{"model_family", ""},
                              {"model_name", name},
                              {"layers", ""},
                              {"hidden", ""},
                              {"heads", ""},
                              {"vocab", ""}});
    complete_from_name(row);
    return row.layers.value_or(0);
  };
  EXPECT_EQ(layers("DeepSeek-V3.1"), 61);
  EXPECT_EQ(layers("DeepSeek-V3-0324"), 61);
  EXPECT_EQ(layers("DeepSeek V1 7B"), 30);
  EXPECT_EQ(layers("DeepSeek-67B"), 95);
  EXPECT_EQ(layers("QwQ-32B"), 64);
  EXPECT_EQ(layers("CodeGemma 7B"), 28);
  EXPECT_EQ(layers("EXAONE-4.0-32B"), 64);
}

}  // namespace
}  // namespace orrery::studies
