// SPDX-License-Identifier: Apache-2.0
// Later releases of networks, by name alone.
#include <gmock/gmock.h>

#include "studies/rows/named_network.hpp"
#include "studies/rows/row_family.hpp"
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
  EXPECT_EQ(layers("SmolLM3"), 36);
  EXPECT_EQ(layers("Nemotron-3 8B"), 32);
  EXPECT_EQ(layers("Mistral Small 3"), 40);
}

// DeepSeek's first networks have no latent attention, and a few layers of a tuned network are those
// of the one that it was tuned from, whether the row states the family or its name does.
TEST(CellNotations, FamiliesByNameAlone) {
  const auto attention = [](const char* family, const char* name, const char* layers,
                            const char* hidden, const char* heads) {
    Measurement row = row_of({{"model_family", family},
                              {"model_name", name},
                              {"layers", layers},
                              {"hidden", hidden},
                              {"heads", heads},
                              {"vocab", ""}});
    complete_from_name(row);
    const FamilyFacts* facts = family_of(row);
    return facts == nullptr ? std::string() : std::string(facts->name);
  };
  for (const char* family : {"", "deepseek"}) {
    EXPECT_EQ(attention(family, "DeepSeek-67B", "95", "8192", "64"), "llama") << family;
  }
  EXPECT_EQ(attention("", "DeepSeek-V3", "61", "7168", "128"), "deepseek");
  EXPECT_EQ(attention("", "QwQ-32B", "4", "5120", "40"), "qwen");
  EXPECT_EQ(attention("", "CodeGemma 7B", "4", "3072", "16"), "gemma");
}

}  // namespace
}  // namespace orrery::studies
