// SPDX-License-Identifier: Apache-2.0
// What frameworks shard over data ranks where a row does not say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using ::testing::Contains;
using testing::predicted;

TEST(ShardedRows, FsdpShardsEverythingUnlessItIsStated) {
  const auto row = [](const std::string& framework, const std::string& stage) {
    return predicted({{"framework", framework},
                      {"zero_stage", stage},
                      {"tp", "1"},
                      {"pp", "1"},
                      {"dp", "8"},
                      {"num_microbatches", "2"},
                      {"sequence_parallel", ""},
                      {"schedule", ""}});
  };
  for (const char* framework : {"FSDP", "PyTorch FSDP", "torchtitan (FSDP2)", "DeepSpeed ZeRO-3"}) {
    const RowResult blank = row(framework, "");
    EXPECT_EQ(blank.predicted, row(framework, "3").predicted) << framework << blank.skipped_because;
    EXPECT_NE(blank.predicted, row(framework, "0").predicted) << framework;
    EXPECT_THAT(blank.assumed, Contains("zero_stage 3")) << framework;
  }
  EXPECT_EQ(row("Megatron-LM", "").predicted, row("Megatron-LM", "0").predicted);
}

}  // namespace
}  // namespace orrery::studies
