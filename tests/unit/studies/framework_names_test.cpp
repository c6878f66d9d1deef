// SPDX-License-Identifier: Apache-2.0
// Names of frameworks, however they are spelt.
#include <gtest/gtest.h>

#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::row_of;

TEST(FrameworkNames, AreOneHoweverTheyAreSpelt) {
  const auto memory = [](const std::string& framework) {
    return row_memory(row_of({{"framework", framework}, {"experts", "8"}}));
  };
  const plan::MemoryFacts usual = memory("Megatron-LM 0.14+TE2.11");
  EXPECT_NE(memory("Megatron-LM 0.12").product_workspaces, usual.product_workspaces);
  for (const std::string name :
       {"Megatron LM 0.14+TE2.11", "Megatron Core 0.14 + TE v2.11", "megatron_core 0.14, TE-2.11",
        "Megatron-LM 0.14 + Transformer Engine 2.11"}) {
    EXPECT_EQ(memory(name).product_workspaces, usual.product_workspaces) << name;
    EXPECT_EQ(memory(name).output_placeholder, usual.output_placeholder) << name;
    EXPECT_EQ(memory(name).exchange_stream, usual.exchange_stream) << name;
  }
  const auto compiled = [](const std::string& framework) {
    const Measurement row = row_of({{"framework", framework}, {"precision", "fp8"}});
    return row_execution(row, framework_of(row).facts).fused_kernels;
  };
  EXPECT_TRUE(compiled("torchtitan (FSDP2)"));
  EXPECT_TRUE(compiled("torch titan"));
  EXPECT_EQ(framework_of(row_of({{"framework", "AXLearn (v0.1)"}})).facts.name, "MaxText");
}

}  // namespace
}  // namespace orrery::studies
