// SPDX-License-Identifier: Apache-2.0
// Cells in the words of trainers and scripts that no table of ours has.
#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "studies/rows/derived_cells.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_context.hpp"
#include "studies/rows/stated_offload.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using ::testing::Contains;
using testing::row_of;

std::string relative_of(const std::string& framework, const std::string& stage) {
  return std::string(
      framework_of(row_of({{"framework", framework}, {"zero_stage", stage}})).facts.name);
}

TEST(OtherTrainers, NetworksOfTransformersInDeepSpeed) {
  EXPECT_EQ(relative_of("HF Trainer + DeepSpeed", "2"), "transformers with DeepSpeed");
  EXPECT_EQ(relative_of("LLaMA-Factory", "DeepSpeed ZeRO-3"), "transformers with DeepSpeed ZeRO-3");
  EXPECT_EQ(relative_of("axolotl 0.4", "DeepSpeed ZeRO-3"), "transformers with DeepSpeed ZeRO-3");
  EXPECT_EQ(relative_of("HF Accelerate (DeepSpeed ZeRO-3)", "3"),
            "transformers with DeepSpeed ZeRO-3");
  EXPECT_EQ(relative_of("axolotl 0.4", "3"), "PyTorch FSDP");
  EXPECT_EQ(relative_of("DeepSpeed 0.14", "3"), "DeepSpeed ZeRO-3");
  EXPECT_EQ(relative_of("GPT-NeoX", "1"), "Megatron-DeepSpeed");
}

// PyTorch has no kernels for RMS norms, rotary positions and gates, whose projections are layers of
// their own; compiled ones are joined.
TEST(OtherTrainers, NetworksOfTransformersAreOfPyTorchsKernels) {
  for (const std::string framework : {"axolotl (FSDP)", "torchtune", "HF Trainer + DeepSpeed"}) {
    testing::Changes row = {
        {"framework", framework}, {"tp", "1"}, {"pp", "1"}, {"dp", "8"}, {"zero_stage", "3"}};
    const plan::Execution run = testing::execution_of(row);
    EXPECT_TRUE(run.eager_elementwise) << framework;
    EXPECT_FALSE(run.fused_projections) << framework;
    EXPECT_FALSE(run.joins_gradients) << framework;
    row["notes"] = "torch.compile";
    EXPECT_FALSE(testing::execution_of(row).eager_elementwise) << framework;
  }
  const plan::Execution fms = testing::execution_of({{"framework", "fms-fsdp"}});
  EXPECT_TRUE(fms.fused_projections && !fms.eager_elementwise);
  const plan::Execution mpt = testing::execution_of({{"framework", "llm-foundry"}});
  EXPECT_TRUE(mpt.fused_projections && mpt.joins_gradients);
  EXPECT_TRUE(testing::execution_of({{"framework", "PyTorch DDP"}, {"attention_impl", "eager"}})
                  .attention_copies);
  EXPECT_FALSE(testing::execution_of({{"framework", "PyTorch DDP"}, {"attention_impl", "SDPA"}})
                   .attention_copies);
}

// One all-reduce behind the backward where states are sharded, DistributedDataParallel elsewhere.
TEST(OtherTrainers, NanotronReducesByItself) {
  const auto run = [](const std::string& stage) {
    return testing::execution_of(
        {{"framework", "nanotron 0.4"}, {"zero_stage", stage}, {"overlap", ""}});
  };
  EXPECT_TRUE(run("0").overlap_grad_reduce);
  EXPECT_FALSE(run("1").overlap_grad_reduce);
  EXPECT_TRUE(run("1").allreduce_gradients && run("1").joins_gradients);
  EXPECT_FALSE(run("1").fused_kernels || run("1").fused_grad_accumulation);
  EXPECT_EQ(run("1").host_per_block, Seconds());
}

// BF16_Optimizer, with fp32 gradients, is not that of stages 2 and 3.
TEST(OtherTrainers, DeepSpeedReducesInTheTypeOfTheRun) {
  const auto whole = [](const std::string& stage, const std::string& precision) {
    const Measurement row = row_of({{"framework", "Megatron-DeepSpeed"},
                                    {"zero_stage", stage},
                                    {"pp", "1"},
                                    {"dp", "4"},
                                    {"precision", precision}});
    const plan::Execution run = row_execution(row, framework_of(row).facts);
    EXPECT_EQ(run.cast_gradients, run.fp32_gradients && precision == "bf16");
    return run.fp32_gradients;
  };
  EXPECT_TRUE(whole("1", "bf16"));
  EXPECT_FALSE(whole("2", "bf16"));
  EXPECT_FALSE(whole("3", "bf16"));
  EXPECT_FALSE(whole("3", "fp8"));
  EXPECT_TRUE(whole("3", "fp32"));
  EXPECT_FALSE(whole("1", "fp16"));
}

TEST(OtherTrainers, StagesInTheWordsOfTheirSettings) {
  const auto stage = [](const std::string& cell) {
    return row_of({{"zero_stage", cell}}).zero_stage;
  };
  EXPECT_EQ(stage("3 + CPU offload"), 3);
  EXPECT_EQ(stage("2, optimizer offload"), 2);
  EXPECT_EQ(stage("dist_opt=True"), 1);
  EXPECT_EQ(stage("optim_grads_params"), 3);
  EXPECT_EQ(stage("optim_grads"), 2);
  EXPECT_EQ(stage("ZeRO-1.5"), 1);
  EXPECT_EQ(stage("mcore FSDP"), 3);
  EXPECT_NE(row_of({{"zero_stage", "4 + offload"}}).unknown, "");
  EXPECT_NE(row_of({{"zero_stage", "custom"}}).unknown, "");
  const Measurement offloads =
      row_of({{"zero_stage", "3 + CPU offload"}, {"framework", "DeepSpeed"}});
  EXPECT_EQ(stated_offload(offloads).optimizer, plan::Tier::Host);
}

// nanotron's tp_mode and InternEvo's parallel.tensor.mode.
TEST(OtherTrainers, ModesOfTensorParallelism) {
  EXPECT_EQ(row_of({{"sequence_parallel", "REDUCE_SCATTER"}}).sequence_parallel, true);
  EXPECT_EQ(row_of({{"sequence_parallel", "ALL_REDUCE"}}).sequence_parallel, false);
  const Measurement isp = row_of({{"sequence_parallel", "isp"}, {"tp", "2"}, {"cp", ""}});
  EXPECT_EQ(isp.tp, 1);
  EXPECT_EQ(isp.cp, 2);
  EXPECT_TRUE(exchanges_heads(isp));
  EXPECT_THAT(isp.remarks, Contains("tp 2 of isp as cp 2"));
}

TEST(OtherTrainers, GroupsOfBothKindsOfContextRanks) {
  for (const char* column : {"cp", "sequence_parallel"}) {
    testing::Changes changes = {{"cp", ""}, {"tp", "1"}};
    changes[column] = "Ulysses 8 x Ring 4";
    const Measurement both = row_of(changes);
    EXPECT_EQ(both.cp, 32) << column;
    EXPECT_EQ(ranks_of_heads(both), 8) << column;
    for (const char* more : {"Ulysses 8 x Ring 200000", "Ulysses 99999999999999999999"}) {
      changes[column] = more;
      EXPECT_THROW(row_of(changes), Error) << column;
    }
  }
  EXPECT_EQ(row_of({{"cp", "4 (Ulysses)"}}).cp, 4);
  EXPECT_EQ(row_of({{"cp", "ring 4"}}).cp, 4);
  EXPECT_EQ(row_of({{"sequence_parallel", "Ulysses 8"}, {"tp", "1"}, {"cp", ""}}).cp, 8);
}

TEST(OtherTrainers, CountsBehindTheGpu) {
  const auto completed = [](const std::string& gpu) {
    Measurement row = row_of({{"gpu", gpu}, {"gpus", ""}, {"dp", ""}});
    fill_from_cells(row);
    return std::pair(stated_gpu(row.gpu), row.gpus.value_or(0));
  };
  EXPECT_EQ(completed("H100x64"), std::pair(std::string("h100-sxm5-80gb"), std::int64_t{64}));
  EXPECT_EQ(completed("H100x9999999999").second, 0);
  EXPECT_EQ(completed("A100 80GB PCIe x16"),
            std::pair(std::string("a100-pcie-80gb"), std::int64_t{0}));
  EXPECT_EQ(completed("MI300X"), std::pair(std::string("mi300x"), std::int64_t{0}));
  EXPECT_EQ(completed("Quadro RTX 8000"),
            std::pair(std::string("quadro-rtx-8000"), std::int64_t{0}));
  EXPECT_EQ(completed("RTX 4090"), std::pair(std::string("rtx-4090"), std::int64_t{0}));
}

TEST(OtherTrainers, NoPipeline) {
  for (const char* cell : {"no PP", "no pipelining", "no pipeline"}) {
    EXPECT_EQ(row_of({{"schedule", cell}, {"pp", "1"}, {"dp", "4"}}).schedule, "none") << cell;
  }
}

}  // namespace
}  // namespace orrery::studies
