// SPDX-License-Identifier: Apache-2.0
// Counts, optimizers and variants that remarks state, and rows of no training.
#include <gmock/gmock.h>

#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::execution_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

TEST(StatedCounts, AccumulationInRemarks) {
  const auto steps = [](const std::string& notes) {
    return row_of({{"num_microbatches", ""}, {"global_batch", ""}, {"notes", notes}})
        .num_microbatches;
  };
  for (const char* notes :
       {"gradient accumulation 32", "GAS=32", "GA 32", "gradient_accumulation_steps: 32"}) {
    EXPECT_EQ(steps(notes), 32) << notes;
  }
  for (const char* notes : {"gradient accumulation in fp32", "GAS=32 in another run", "gas"}) {
    EXPECT_EQ(steps(notes), std::nullopt) << notes;
  }
  EXPECT_EQ(row_of({{"notes", "GAS=32"}}).num_microbatches, 8);  // as its cell says
}

TEST(StatedCounts, ChunksInRemarks) {
  const auto chunks = [](const std::string& notes, const std::string& schedule = "interleaved") {
    return row_of({{"vpp", ""}, {"schedule", schedule}, {"notes", notes}}).vpp;
  };
  EXPECT_EQ(chunks("VPP=2"), 2);
  EXPECT_EQ(chunks("virtual pipeline size 2", "1f1b"), 2);
  EXPECT_EQ(chunks("num_layers_per_virtual_pipeline_stage=4"), 3);  // 24 layers, 2 stages
  EXPECT_EQ(chunks("VPP=2", "gpipe"), std::nullopt);
  EXPECT_EQ(chunks("no VPP"), std::nullopt);
  EXPECT_EQ(chunks("VPP=2 in an earlier run"), std::nullopt);
}

TEST(StatedCounts, CellsInWords) {
  EXPECT_EQ(row_of({{"micro_batch", "1 seq"}}).micro_batch, 1);
  EXPECT_EQ(row_of({{"micro_batch", "2/GPU"}}).micro_batch, 2);
  EXPECT_EQ(row_of({{"micro_batch", "2 per GPU"}}).micro_batch, 2);
  EXPECT_EQ(row_of({{"num_microbatches", "GAS 8"}}).num_microbatches, 8);
  EXPECT_EQ(row_of({{"vpp", "v=2"}}).vpp, 2);
  EXPECT_EQ(row_of({{"experts", "dense"}}).experts, 0);
  EXPECT_EQ(row_of({{"sequence_parallel", "on (TP)"}}).sequence_parallel, true);
  EXPECT_EQ(row_of({{"sequence_parallel", "no (TP)"}}).sequence_parallel, false);
  EXPECT_EQ(row_of({{"measured_metric", "it/s"}}).metric, "iterations_per_s");
  EXPECT_DOUBLE_EQ(predicted({{"measured_metric", "steps/s"}, {"measured_value", "0.5"}}).measured,
                   2);
}

TEST(StatedCounts, NamesOfOptimizers) {
  const auto bytes = [](const std::string& notes) {
    const auto stated = stated_optimizer(row_of({{"notes", notes}}));
    return stated ? stated->state_bytes : -1;
  };
  EXPECT_EQ(bytes("DecoupledLionW"), 4);
  EXPECT_EQ(bytes("8bit optimizer"), 2);
  EXPECT_EQ(bytes("bnb 8-bit optimizer"), 2);
  for (const char* notes : {"local SGD", "SGD-like", "Lion cluster", "the lion's share of time",
                            "SGD in an earlier run", "Adafactor was slower"}) {
    EXPECT_EQ(bytes(notes), -1) << notes;
  }
  EXPECT_EQ(stated_offload(row_of({{"notes", "CPU Adam"}})).optimizer, plan::Tier::Host);
  EXPECT_EQ(stated_offload(row_of({{"notes", "optimizer on CPU"}})).optimizer, plan::Tier::Host);
  EXPECT_FALSE(stated_offload(row_of({{"notes", "CPU Adam in another run"}})).any());
}

TEST(StatedCounts, FusedLosses) {
  const auto fused = [](const std::string& notes) {
    return execution_of({{"notes", notes}}).fused_cross_entropy;
  };
  for (const char* notes : {"Liger kernels", "Liger kernel (RMSNorm, CE)", "cut cross-entropy",
                            "chunked loss", "Liger FLCE"}) {
    EXPECT_TRUE(fused(notes)) << notes;
  }
  for (const char* notes : {"Liger kernels (RMSNorm, SwiGLU)", "no Liger kernels",
                            "Liger kernels planned", "unfused CE"}) {
    EXPECT_FALSE(fused(notes)) << notes;
  }
}

TEST(StatedCounts, PartsOfVariantsThatAreNotRead) {
  const auto unread = [](const std::string& variant) {
    return unread_variant(row_of({{"variant", variant}}));
  };
  EXPECT_THAT(unread("SGD + magic kernel"), ElementsAre("magic kernel"));
  EXPECT_THAT(unread("my method, more"), ElementsAre("my method, more"));
  EXPECT_THAT(unread("SGD, momentum 0.9"), IsEmpty());
  EXPECT_THAT(unread("local SGD"), ElementsAre("local SGD"));
  EXPECT_THAT(predicted({{"variant", "SGD + magic kernel"}}).assumed,
              Contains("\"magic kernel\" as the plain plan"));
}

TEST(StatedCounts, RowsOfNoTraining) {
  const auto reason = [](const Changes& changes) { return predicted(changes).skipped_because; };
  EXPECT_THAT(reason({{"framework", "vLLM 0.6"}}), HasSubstr("no measured training step"));
  EXPECT_EQ(reason({{"notes", "forward-only"}}), "\"forward only\" is no measured training step");
  EXPECT_THAT(reason({{"notes", "simulated, not measured"}}), HasSubstr("\"simulated\""));
  EXPECT_THAT(reason({{"variant", "inference"}}), HasSubstr("no measured training step"));
  for (const char* notes : {"not simulated", "fp8 in the forward only", "memory not measured",
                            "inference in another run", "simulated failures: none"}) {
    EXPECT_EQ(reason({{"notes", notes}}), "") << notes;
  }
}

}  // namespace
}  // namespace orrery::studies
