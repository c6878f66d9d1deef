// SPDX-License-Identifier: Apache-2.0
// Networks of frameworks whose modules are not those of their family.
#include <gtest/gtest.h>

#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;

models::NetworkSpec network_of_row(const Changes& changes) {
  const Measurement row = testing::row_of(changes);
  return row_network(row, framework_of(row).facts).value();
}

plan::Execution execution_of_row(const Changes& changes) {
  const Measurement row = testing::row_of(changes);
  return row_execution(row, framework_of(row).facts);
}

TEST(OwnModules, OfSailorsForkDropLittleOrNothing) {
  Changes row = {{"framework", "Megatron-DeepSpeed (Sailor fork)"},
                 {"model_name", "gpt-neo-2.7b"},
                 {"tied_embeddings", ""}};
  const models::NetworkSpec neo = network_of_row(row);
  EXPECT_EQ(neo.attention_dropout, 0);
  EXPECT_EQ(neo.hidden_dropout, 0.1);
  EXPECT_EQ(neo.activation, models::Activation::Gelu);
  EXPECT_TRUE(neo.attention_bias && !neo.attention_output_bias && !neo.mlp_bias);
  EXPECT_FALSE(neo.tied_embeddings);
  row["model_name"] = "opt-350m-like";
  const models::NetworkSpec opt = network_of_row(row);
  EXPECT_EQ(opt.attention_dropout + opt.hidden_dropout, 0);
  EXPECT_EQ(opt.activation, models::Activation::Relu);
  row["notes"] = "dropout 0.2";  // a row knows better
  EXPECT_EQ(network_of_row(row).hidden_dropout, 0.2);
  row["framework"] = "Megatron-DeepSpeed";
  EXPECT_EQ(network_of_row(row).activation, models::Activation::Gelu);
}

TEST(OwnModules, OfDtFmClassifySequencesWithoutAMask) {
  Changes row = {{"framework", "DT-FM (custom GPipe)"}, {"precision", "fp16"}};
  const models::NetworkSpec spec = network_of_row(row);
  EXPECT_EQ(spec.classes, 2);
  EXPECT_FALSE(spec.causal || spec.tied_embeddings);
  EXPECT_EQ(spec.activation, models::Activation::Relu);
  const plan::Execution execution = execution_of_row(row);
  EXPECT_EQ(execution.optimizer_state_bytes, 0);
  EXPECT_EQ(execution.softmax, plan::Softmax::Eager);
  EXPECT_FALSE(execution.fused_projections || execution.fused_kernels);
  row["framework"] = "Megatron-LM";
  EXPECT_EQ(network_of_row(row).classes, 0);
  EXPECT_EQ(execution_of_row(row).softmax, plan::Softmax::Megatron);
}

// GLM-130B has layers of Megatron-LM, with its dropout; later networks of the name do not.
TEST(OwnModules, OfGlm130bAreMegatrons) {
  Changes row = {{"framework", "LargeScale (Megatron-DeepSpeed)"},
                 {"model_family", "glm"},
                 {"model_name", "glm-130b"},
                 {"gated_mlp", "1"},
                 {"ffn_hidden", "32768"}};
  const models::NetworkSpec old = network_of_row(row);
  EXPECT_EQ(old.norm, models::NormKind::LayerNorm);
  EXPECT_EQ(old.position, models::PositionKind::Rotary);
  EXPECT_EQ(old.activation, models::Activation::GeGlu);
  EXPECT_TRUE(old.mlp_bias && old.attention_bias);
  EXPECT_EQ(old.attention_dropout, 0.1);
  row["model_name"] = "glm-4-9b";
  const models::NetworkSpec later = network_of_row(row);
  EXPECT_EQ(later.norm, models::NormKind::RmsNorm);
  EXPECT_EQ(later.attention_dropout, 0);
}

TEST(OwnModules, TakeTheSoftmaxOfTheirCompiler) {
  EXPECT_EQ(execution_of_row({{"framework", "T5X"}}).softmax, plan::Softmax::Compiled);
  EXPECT_EQ(execution_of_row({{"framework", "PyTorch FSDP"}}).softmax, plan::Softmax::Eager);
  const Changes compiled = {{"framework", "torchtitan (FSDP2)"}, {"notes", "torch.compile"}};
  EXPECT_EQ(execution_of_row(compiled).softmax, plan::Softmax::Compiled);
}

TEST(OwnModules, ValidateAfterwardsWhereRowsSaySo) {
  Changes row = {{"framework", "Megatron-LM fork (zero-bubble)"},
                 {"schedule", "zb-2p"},
                 {"overlap", "optimizer post-validation for ZB schedules"}};
  EXPECT_TRUE(execution_of_row(row).post_validation);
  row["schedule"] = "1f1b";
  EXPECT_FALSE(execution_of_row(row).post_validation);
  row["schedule"] = "zb-v";
  row["overlap"] = "no optimizer post-validation";
  EXPECT_FALSE(execution_of_row(row).post_validation);
}

}  // namespace
}  // namespace orrery::studies
