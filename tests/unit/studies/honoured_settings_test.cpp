// SPDX-License-Identifier: Apache-2.0
// What a row states is honoured, refused or named among the assumptions.
#include <gmock/gmock.h>

#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_groups.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "studies/rows/stated_window.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using plan::Tier;
using testing::Changes;
using ::testing::Contains;
using testing::execution_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

bool is_compiled(const std::string& notes) {
  return execution_of({{"framework", "PyTorch FSDP"}, {"zero_stage", "3"}, {"notes", notes}})
      .fused_kernels;
}

TEST(HonouredSettings, PerCentIsSaidOnce) {
  const auto value = [](const std::string& metric, const std::string& cell) {
    return row_of({{"measured_metric", metric}, {"measured_value", cell}}).value;
  };
  EXPECT_DOUBLE_EQ(value("MFU %", "47%"), 0.47);
  EXPECT_DOUBLE_EQ(value("MFU (%)", "47.2 %"), 0.472);
  EXPECT_DOUBLE_EQ(value("HFU %", "50%"), 0.5);
  EXPECT_DOUBLE_EQ(value("MFU [%]", "47%"), 0.47);
  EXPECT_DOUBLE_EQ(value("MFU %", "47"), 0.47);
  EXPECT_DOUBLE_EQ(value("MFU", "47%"), 0.47);
}

TEST(HonouredSettings, OffloadBesideTheStage) {
  const auto offload = [](const std::string& stage, const std::string& framework = "DeepSpeed") {
    return stated_offload(row_of({{"zero_stage", stage}, {"framework", framework}}));
  };
  for (const std::string three : {"ZeRO-3-Offload", "ZeRO3+offload", "zero3-offload", "3 (offload)",
                                  "3 + offload", "3, offload", "ZeRO-3 offload"}) {
    EXPECT_EQ(row_of({{"zero_stage", three}}).zero_stage, 3) << three;
    EXPECT_EQ(offload(three).optimizer, Tier::Host) << three;
    EXPECT_EQ(offload(three).parameters, Tier::Host) << three;
  }
  EXPECT_EQ(offload("ZeRO-2 + offload").optimizer, Tier::Host);
  EXPECT_EQ(offload("ZeRO-2 + offload").parameters, Tier::Device);
  EXPECT_EQ(offload("ZeRO-3 (optimizer offload)").parameters, Tier::Device);
  EXPECT_EQ(offload("3", "DeepSpeed ZeRO-3-Offload").parameters, Tier::Host);
  EXPECT_FALSE(offload("3 (no offload)").any());
}

TEST(HonouredSettings, SharesOfOffload) {
  const auto noted = [](const std::string& notes) { return row_of({{"notes", notes}}); };
  EXPECT_DOUBLE_EQ(stated_offload(noted("activations of 6 layers offloaded")).activations, 0.25);
  EXPECT_DOUBLE_EQ(stated_offload(noted("cpu_offloading_num_layers=6")).activations, 0.25);
  EXPECT_DOUBLE_EQ(stated_offload(noted("cpu_checkpointing=true")).activations, 1);
  EXPECT_FALSE(stated_offload(noted("cpu_checkpointing=false")).any());
  EXPECT_FALSE(unread_offload(noted("50% of optimizer states offloaded")).empty());
  EXPECT_FALSE(unread_offload(noted("optimizer_offload_fraction=0.5")).empty());
  EXPECT_THAT(unread_offload(noted("optimizer offloaded; activation offload ratio 0.4")),
              IsEmpty());
}

TEST(HonouredSettings, OffloadBesideRecomputation) {
  const auto read = [](const std::string& recompute, const std::string& detail = "") {
    const Measurement row = row_of({{"recompute", recompute}, {"recompute_detail", detail}});
    return std::pair(row.recompute, stated_offload(row).activations);
  };
  const auto offloaded = [](const std::string& kind) { return std::pair(kind, 1.0); };
  EXPECT_EQ(read("none + activation offload"), offloaded("none"));
  EXPECT_EQ(read("activation offload"), offloaded("none"));
  EXPECT_EQ(read("activations offloaded to CPU"), offloaded("none"));
  EXPECT_EQ(read("full + activation offload"), offloaded("full"));
  EXPECT_EQ(read("full", "CPU checkpointing"), offloaded("full"));
  EXPECT_EQ(read("full, no offload"), std::pair(std::string("full"), 0.0));
  EXPECT_EQ(read("none/selective").first, "custom");
  for (const char* notes :
       {"gradient checkpointing with CPU offload", "CPU checkpointing", "offloaded checkpoints",
        "activation checkpoints offloaded to CPU", "checkpointed activations on the host"}) {
    EXPECT_EQ(stated_offload(row_of({{"recompute", "full"}, {"notes", notes}})).activations, 1.0)
        << notes;
  }
  for (const char* notes :
       {"async checkpointing with CPU offload", "model checkpoints on host disk",
        "checkpoint offload to storage", "no CPU checkpointing"}) {
    EXPECT_FALSE(stated_offload(row_of({{"notes", notes}})).any()) << notes;
  }
}

TEST(HonouredSettings, OffloadedStatesInOtherWords) {
  const auto sharded = [](const std::string& notes, const std::string& framework = "DeepSpeed") {
    return stated_offload(
        row_of({{"zero_stage", "3"}, {"notes", notes}, {"framework", framework}}));
  };
  const plan::Offload list = sharded("parameters, gradients and optimizer offloaded to CPU");
  EXPECT_EQ(list.parameters, Tier::Host);
  EXPECT_EQ(list.optimizer, Tier::Host);
  EXPECT_EQ(sharded("gradients, optimizer offloaded to CPU").parameters, Tier::Device);
  EXPECT_EQ(sharded("parameters in bf16, optimizer offloaded").parameters, Tier::Device);
  EXPECT_EQ(sharded("optimizer states in CPU memory").optimizer, Tier::Host);
  EXPECT_EQ(sharded("FSDP CPU offload", "torchtune").parameters, Tier::Host);
  EXPECT_EQ(sharded("fsdp_cpu_offload=True", "torchtune").parameters, Tier::Host);
  EXPECT_FALSE(sharded("fsdp_cpu_offload=False", "torchtune").any());
}

// What no plan has is said.
TEST(HonouredSettings, OptimizersAndDispatchersThatAreNotModelled) {
  const auto assumed = [](const std::string& notes) {
    return predicted(testing::mixture({{"notes", notes}})).assumed;
  };
  for (const char* notes : {"GaLore", "LOMO", "Shampoo"}) {
    EXPECT_THAT(assumed(notes), Contains("the optimizer as Adam, with its states")) << notes;
  }
  EXPECT_THAT(assumed("optimizer in backward"),
              Contains("steps within the backward as one behind it"));
  EXPECT_THAT(assumed("allgather dispatcher"),
              Contains("tokens gathered by all ranks of experts as sent to their own"));
  EXPECT_THAT(assumed("grouped GEMM disabled"),
              Contains("products of experts one by one as grouped ones"));
  EXPECT_THAT(assumed("grouped GEMM"), Not(Contains(HasSubstr("grouped"))));
  EXPECT_THAT(predicted({{"model_family", "encoder-decoder"}}).skipped_because,
              HasSubstr("encoder-decoder"));
}

TEST(HonouredSettings, GroupsOfMics) {
  const auto shards = [](const std::string& stage, const std::string& notes = "") {
    return state_shards(row_of({{"zero_stage", stage}, {"notes", notes}}));
  };
  EXPECT_EQ(shards("3 (MiCS 8)"), 8);
  EXPECT_EQ(shards("3 (group size 8)"), 8);
  EXPECT_EQ(shards("3", "zero_hpz_partition_size=8"), 0);
  EXPECT_FALSE(unread_groups(row_of({{"notes", "zero_hpz_partition_size=8"}})).empty());
}

TEST(HonouredSettings, OtherTuningIsRefused) {
  for (const std::string notes : {"P-tuning", "prefix tuning", "IA3", "BitFit", "PEFT"}) {
    EXPECT_THAT(predicted({{"notes", notes}}).skipped_because, HasSubstr("is not modelled"))
        << notes;
  }
  EXPECT_THAT(predicted({{"notes", "no P-tuning"}}).skipped_because, IsEmpty());
  const Measurement row = row_of({{"notes", "LoRA rank 16 on MLP"}, {"confidence", "partial"}});
  const auto network = row_network(row, framework_of(row).facts);
  EXPECT_TRUE(network->adapters.up && network->adapters.down);
  EXPECT_FALSE(network->adapters.qkv || network->adapters.o);
}

TEST(HonouredSettings, DenialsAndOtherFigures) {
  for (const std::string notes :
       {"torch.compile not supported", "torch.compile failed", "torch.compile numbers in Table 7",
        "see also torch.compile row", "1.2x over torch.compile", "torch.compile and eager compared",
        "torch.compile only for the loss", "torch.compile (Inductor) was not used",
        "torch.compile (disabled)"}) {
    EXPECT_FALSE(is_compiled(notes)) << notes;
  }
  for (const std::string notes :
       {"DPO results in appendix", "reward model not trained here", "ZeRO-Offload baseline OOMs",
        "SGD (stochastic gradient descent) was not used", "8-bit Adam in another table"}) {
    const Measurement row = row_of({{"notes", notes}});
    EXPECT_EQ(row.unknown, "") << notes;
    EXPECT_FALSE(stated_offload(row).any()) << notes;
    EXPECT_FALSE(stated_optimizer(row)) << notes;
  }
}

TEST(HonouredSettings, Compilers) {
  for (const std::string notes :
       {"torch.compile + CUDA graphs", "compile=True", "--compile", "use_compile: true"}) {
    EXPECT_TRUE(is_compiled(notes)) << notes;
  }
  EXPECT_FALSE(is_compiled("compile=False"));
  EXPECT_FALSE(
      execution_of({{"notes", "--no-gradient-accumulation-fusion"}}).fused_grad_accumulation);
}

TEST(HonouredSettings, WhatPlansDoNotHaveIsNamed) {
  const auto assumed = [](Changes changes) { return predicted(changes).assumed; };
  EXPECT_THAT(assumed({{"precision", "bf16"}, {"notes", "fp8 GEMMs"}}),
              Contains("precision bf16, not \"fp8 gemms\""));
  EXPECT_THAT(assumed({{"gpu", "H100-80GB-SXM"},
                       {"precision", "fp8"},
                       {"precision_detail", "first and last 2 layers bf16"}}),
              Contains(HasSubstr("all products of layers in fp8")));
  EXPECT_THAT(assumed({{"measured_metric", "mfu"},
                       {"measured_value", "0.4"},
                       {"notes", "MFU relative to the FP8 peak"}}),
              Contains(HasSubstr("mfu of the dense peak of bf16")));
  EXPECT_THAT(assumed({{"tp", "2 (2.5D)"}}),
              Contains(HasSubstr("tensor parallelism in one dimension")));
  EXPECT_THAT(assumed({{"notes", "GPUs capped at 400 W"}}),
              Contains("a limit of power as the GPU's own"));
  EXPECT_THAT(assumed({{"notes", "DiLoCo"}}), Contains(HasSubstr("local steps")));
  EXPECT_THAT(assumed({{"inter_node", "8x200Gb IB HDR, 2:1 oversubscribed"}}),
              Contains("an oversubscribed network as one of full bandwidth"));
}

TEST(HonouredSettings, ModulesAreNoRanks) {
  const auto reason = [](const std::string& gpus, const std::string& notes) {
    return predicted({{"gpu", "MI250X"}, {"gpus", gpus}, {"gpus_per_node", "4"}, {"notes", notes}})
        .skipped_because;
  };
  EXPECT_THAT(reason("32 (64 GCDs)", ""), HasSubstr("state 64 GPUs"));
  EXPECT_THAT(reason("32", "each has 2 GCDs"), HasSubstr("state 64 GPUs"));
  EXPECT_EQ(row_of({{"gpus", "64 GCDs"}}).gpus, 64);
}

TEST(HonouredSettings, ShortNames) {
  EXPECT_DOUBLE_EQ(capacity_factor(row_of({{"notes", "CF=1.25"}})), 1.25);
  EXPECT_EQ(stated_optimizer(row_of({{"notes", "exp_avg_dtype=bf16"}}))->state_bytes, 4);
}

}  // namespace
}  // namespace orrery::studies
