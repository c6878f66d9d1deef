// SPDX-License-Identifier: Apache-2.0
// What rows of training in fp8 mean for casts: who runs them, and how often.
#include <gtest/gtest.h>

#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_scaling.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::row_of;

plan::Execution execution(const std::string& framework, const std::string& precision,
                          const std::string& detail) {
  const Measurement row =
      row_of({{"framework", framework}, {"precision", precision}, {"precision_detail", detail}});
  return row_execution(row, *find_framework(row.framework));
}

TEST(Fp8RowsTest, LayersOfTransformerEngineCastInTheirNorms) {
  const plan::Execution known = execution("NeMo", "fp8", "TransformerEngine hybrid");
  EXPECT_TRUE(known.cast_transposes && known.norms_cast);
  EXPECT_FALSE(known.casts_weights);
  EXPECT_EQ(known.fp8_scaling, plan::Fp8Scaling::Delayed);
  EXPECT_EQ(execution("Megatron-Bridge", "fp8", "current scaling").fp8_scaling,
            plan::Fp8Scaling::Current);
  EXPECT_EQ(execution("Megatron-Bridge", "mxfp8", "").fp8_scaling, plan::Fp8Scaling::Blocks);
}

// torchao saves the 16-bit tensor, flax one that was cast and cast back.
TEST(Fp8RowsTest, LayersOfTransformerEngineKeepInputsIn8Bits) {
  EXPECT_TRUE(execution("NeMo", "fp8", "TransformerEngine hybrid").fp8_inputs);
  EXPECT_TRUE(execution("Composer", "fp8", "TransformerEngine").fp8_inputs);
  EXPECT_FALSE(execution("torchtitan", "fp8", "torchao float8").fp8_inputs);
  EXPECT_FALSE(execution("MaxText (JAX)", "fp8", "").fp8_inputs);
}

TEST(Fp8RowsTest, RouterWeightsMeetActivationsAfterMegatronCore0120) {
  const auto inside = [](const char* framework) {
    return execution(framework, "bf16", "").weighted_activations;
  };
  EXPECT_TRUE(inside("Megatron-LM 0.14+TE2.11"));
  EXPECT_TRUE(inside("Megatron-LM 0.12.1"));
  EXPECT_TRUE(inside("Megatron-Bridge 25.09"));
  EXPECT_FALSE(inside("Megatron-LM 0.12.0"));
  EXPECT_FALSE(inside("Megatron-LM 0.9"));
  EXPECT_FALSE(inside("NeMo/Megatron-Core"));
  EXPECT_FALSE(inside("torchtitan"));
}

// torch.nn.Linear sums gradients of biases in kernels, flash_attn's fused_dense in epilogues.
TEST(Fp8RowsTest, FrameworksSumGradientsOfBiasesTheirOwnWay) {
  for (const char* framework : {"Composer+PyTorch FSDP", "PyTorch single GPU", "torchtitan"}) {
    const plan::Execution linear = execution(framework, "bf16", "");
    EXPECT_TRUE(linear.fused_bias && linear.bias_gradients_apart) << framework;
  }
  const plan::Execution evo = execution("InternEvo", "bf16", "");
  EXPECT_TRUE(evo.fused_bias && evo.fp32_norms && evo.reruns_norms);
  EXPECT_FALSE(evo.bias_gradients_apart || evo.fused_kernels);
  EXPECT_TRUE(execution("InternEvo v0.3", "bf16", "").fused_kernels);
  EXPECT_FALSE(execution("Megatron-LM 0.9", "bf16", "").bias_gradients_apart);
}

// TransformerEngine's loss is one kernel, Megatron-Core's four; its arguments ask for neither.
TEST(Fp8RowsTest, ReleasesFuseTheLossTheirOwnWay) {
  const auto compiled = [](const char* framework) {
    const plan::Execution known = execution(framework, "bf16", "");
    EXPECT_FALSE(known.compiled_loss && known.fused_cross_entropy) << framework;
    return known.compiled_loss ? 1 : known.fused_cross_entropy ? 2 : 0;
  };
  EXPECT_EQ(compiled("NeMo/Megatron-Core"), 1);
  EXPECT_EQ(compiled("NeMo/Megatron-Core 25.04"), 1);
  EXPECT_EQ(compiled("NeMo/Megatron-Core 25.07"), 2);
  EXPECT_EQ(compiled("NeMo/Megatron-Core 24.07"), 0);
  EXPECT_EQ(compiled("Megatron-Bridge 25.09"), 2);
  for (const char* release : {"Megatron-Core r0.8.0", "Megatron-Core v0.8.0", "Megatron-Core 0.8.0",
                              "Megatron-Core core_r0.8.0", "Megatron-Core core_v0.12.1"}) {
    EXPECT_EQ(compiled(release), 0) << release;
  }
  EXPECT_EQ(compiled("Megatron-LM 0.14"), 0);
}

TEST(Fp8RowsTest, ComposerCastsWeightsForEveryMicroBatch) {
  const plan::Execution composer = execution("Composer", "fp8", "TransformerEngine");
  EXPECT_TRUE(composer.cast_transposes && composer.casts_weights);
  EXPECT_FALSE(composer.norms_cast);
}

TEST(Fp8RowsTest, TorchaoCastsShardsWhereFsdpGathersInFp8) {
  const plan::Execution compiled = execution("torchtitan", "fp8", "torchao float8");
  EXPECT_TRUE(compiled.casts_weights);
  EXPECT_EQ(compiled.fp8_scaling, plan::Fp8Scaling::Current);
  EXPECT_FALSE(compiled.cast_transposes);
  EXPECT_FALSE(execution("torchtitan", "fp8", "torchao float8, fp8 all-gather").casts_weights);
}

// TransformerEngine reduces them after every pass from 1.6 on; XLA has no such call.
TEST(Fp8RowsTest, LargestMagnitudesAreOfAllRanksSinceTransformerEngine16) {
  using plan::AmaxRanks;
  const auto ranks = [](const char* framework) {
    return execution(framework, "fp8", "TransformerEngine hybrid").amax_ranks;
  };
  EXPECT_EQ(ranks("NeMo/Megatron-Core 24.03.01"), AmaxRanks::None);
  EXPECT_EQ(ranks("NeMo/Megatron-Core launcher (2024)"), AmaxRanks::None);
  EXPECT_EQ(ranks("NeMo/Megatron-Core 24.07"), AmaxRanks::All);
  EXPECT_EQ(ranks("NeMo/Megatron-Core"), AmaxRanks::All);
  EXPECT_EQ(ranks("Composer+PyTorch FSDP"), AmaxRanks::All);
  EXPECT_EQ(ranks("MaxText (JAX)"), AmaxRanks::None);
}

// A buffer of bf16 parameters is gathered (Megatron-LM core/distributed/param_and_grad_buffer.py).
TEST(Fp8RowsTest, ParametersWithScalesOfBlocksAreGatheredIn16Bits) {
  EXPECT_TRUE(execution("Megatron-Bridge", "fp8", "current scaling").quantised_gather);
  EXPECT_FALSE(
      execution("Megatron-Bridge", "fp8", "MXFP8 on Blackwell, blockwise").quantised_gather);
}

TEST(Fp8RowsTest, RecipesInAnySpelling) {
  const auto scaling = [](const char* detail) {
    return execution("NeMo", "fp8", detail).fp8_scaling;
  };
  for (const char* current : {"CurrentScaling", "Float8CurrentScaling", "FP8-CS", "fp8_cs"}) {
    EXPECT_EQ(scaling(current), plan::Fp8Scaling::Current) << current;
  }
  for (const char* blocks : {"Float8BlockScaling", "1x128", "FP8-SC", "subchannel scaling",
                             "DeepSeek recipe", "fine-grained", "block-wise"}) {
    EXPECT_EQ(scaling(blocks), plan::Fp8Scaling::Blocks) << blocks;
  }
  EXPECT_EQ(scaling("DelayedScaling"), plan::Fp8Scaling::Delayed);
  EXPECT_EQ(scaling("no blockwise scaling"), plan::Fp8Scaling::Delayed);
  const auto unread = [](const char* detail) {
    return unread_scaling(row_of({{"precision", "fp8"}, {"precision_detail", detail}})).size();
  };
  EXPECT_EQ(unread("hierarchical scaling"), 1U);
  EXPECT_EQ(unread("TransformerEngine hybrid E4M3/E5M2; delayed scaling"), 0U);
  EXPECT_EQ(unread("torchao rowwise"), 0U);
}

TEST(Fp8RowsTest, MasterWeightsAreCopiedButByApex) {
  EXPECT_TRUE(execution("NeMo/Megatron-Core", "bf16", "").copies_master);
  EXPECT_TRUE(execution("Megatron-DeepSpeed", "bf16", "").copies_master);
  EXPECT_FALSE(execution("NeMo/Megatron-Core 24.07", "bf16", "").copies_master);
  EXPECT_FALSE(execution("Composer+PyTorch FSDP", "bf16", "").copies_master);
}

}  // namespace
}  // namespace orrery::studies
