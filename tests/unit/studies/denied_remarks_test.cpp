// SPDX-License-Identifier: Apache-2.0
// A remark that denies a feature does not switch it on.
#include <gtest/gtest.h>

#include "studies/rows/denials.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::execution_of;
using testing::row_of;

TEST(DeniedRemarks, ClausesSayWhatTheyDoNotDeny) {
  EXPECT_EQ(asserted("full, no offload"), "full, ");
  EXPECT_EQ(asserted("a=0"), "");
  EXPECT_EQ(asserted("eager a = 0 b=0.5 c=1"), "eager  b=0.5 c=1");
  EXPECT_EQ(asserted("torch.compile 2.1. offload off. x"), "torch.compile 2.1.. x");
  EXPECT_EQ(asserted("6n (excl. attention) incl. loss"), "6n () incl. loss");
  EXPECT_EQ(asserted("=0"), "");
  EXPECT_TRUE(says_and_means("CP; Ulysses (8 ranks)", "ulysses"));
  EXPECT_FALSE(says_and_means("Ulysses not used", "ulysses"));
  EXPECT_EQ(asserted_clauses("A, no b (c)").size(), 3U);
}

TEST(DeniedRemarks, Compilers) {
  const auto compiled = [](const std::string& notes, const std::string& framework) {
    return execution_of({{"framework", framework}, {"notes", notes}}).fused_kernels;
  };
  for (const std::string notes :
       {"no torch.compile", "without torch.compile", "torch.compile disabled", "compile=False",
        "eager (torch.compile off)", "eager (torch.compile not used)", "not compiled",
        "eager vs compile: eager row", "PyTorch compiled from source", "compile=0", "eager"}) {
    EXPECT_FALSE(compiled(notes, "torchtitan (FSDP2)")) << notes;
  }
  for (const std::string notes : {"torch.compile", "compiled", "compile=True",
                                  "no AC, torch.compile", "Offload off. Torch.compile"}) {
    EXPECT_TRUE(compiled(notes, "torchtitan (FSDP2)")) << notes;
  }
  EXPECT_TRUE(compiled("", "torchtitan (FSDP2) + compile"));
  EXPECT_FALSE(compiled("", "torchtitan (FSDP2), no compile"));
  EXPECT_TRUE(compiled("torch.compile", "PyTorch FSDP"));
  EXPECT_FALSE(compiled("no torch.compile", "PyTorch FSDP"));
}

TEST(DeniedRemarks, BlockingLaunches) {
  const auto blocking = [](const std::string& notes) {
    return execution_of({{"notes", notes}}).blocking_launches;
  };
  EXPECT_TRUE(blocking("CUDA_LAUNCH_BLOCKING=1"));
  EXPECT_TRUE(blocking("CUDA_LAUNCH_BLOCKING probably set at this scale"));
  for (const std::string notes : {"CUDA_LAUNCH_BLOCKING=0", "CUDA_LAUNCH_BLOCKING not set",
                                  "CUDA_LAUNCH_BLOCKING = 0", "CUDA_LAUNCH_BLOCKING unset"}) {
    EXPECT_FALSE(blocking(notes)) << notes;
  }
}

TEST(DeniedRemarks, ShardsInANode) {
  const auto shards = [](Changes changes) {
    changes.merge(Changes{{"gpus", "64"},
                          {"dp", "64"},
                          {"tp", "1"},
                          {"pp", "1"},
                          {"zero_stage", "3"},
                          {"num_microbatches", "1"},
                          {"global_batch", "64"},
                          {"sequence_parallel", ""},
                          {"schedule", "none"}});
    return row_plan(row_of(changes)).value().layout_of(1).shard_degree;
  };
  EXPECT_EQ(shards({{"notes", "HSDP, shard within node"}}), 8);
  EXPECT_EQ(shards({{"notes", "HSDP: shard group 16"}}), 16);
  EXPECT_EQ(shards({{"notes", "no HSDP"}}), 0);
  EXPECT_EQ(shards({{"notes", "HSDP not used"}}), 0);
  EXPECT_EQ(shards({{"overlap", "FSDP prefetch; no HSDP"}}), 0);
  EXPECT_EQ(shards({{"zero_stage", "ZeRO-3 (no HSDP)"}}), 0);
}

TEST(DeniedRemarks, FormatsOfGradients) {
  const auto single = [](const std::string& notes, const std::string& framework) {
    return execution_of({{"framework", framework}, {"notes", notes}}).fp32_gradients;
  };
  for (const std::string notes :
       {"bf16 gradients", "grad reduce in bf16", "gradient accumulation in bf16",
        "gradients reduced in bf16", "grad_reduce_in_fp32=False", "grad_reduce_in_fp32=0"}) {
    EXPECT_FALSE(single(notes, "Megatron-LM")) << notes;
  }
  EXPECT_TRUE(single("no bf16 gradients", "Megatron-LM"));
  for (const std::string notes : {"fp32 gradients", "grad reduction in fp32",
                                  "gradient accumulation in fp32", "grad_reduce_in_fp32=True"}) {
    EXPECT_TRUE(single(notes, "PyTorch FSDP")) << notes;
  }
}

TEST(DeniedRemarks, OtherFeatures) {
  EXPECT_TRUE(execution_of({{"notes", "fused CE"}}).fused_cross_entropy);
  EXPECT_FALSE(execution_of({{"notes", "no fused CE"}}).fused_cross_entropy);
  const auto gathers_fp8 = [](const std::string& detail) {
    return execution_of(
               {{"framework", "torchtitan"}, {"precision", "fp8"}, {"precision_detail", detail}})
        .quantised_gather;
  };
  EXPECT_TRUE(gathers_fp8("torchao float8 linear layers, fp8 all-gather"));
  EXPECT_TRUE(gathers_fp8("tensorwise scaling; float8 all-gather"));
  EXPECT_TRUE(gathers_fp8("enable_fsdp_float8_all_gather"));
  EXPECT_FALSE(gathers_fp8("torchao float8 linear layers, no fp8 all-gather"));
  EXPECT_FALSE(gathers_fp8("float8 linear layers without float8 all-gather"));
}

}  // namespace
}  // namespace orrery::studies
