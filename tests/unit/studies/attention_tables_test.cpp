// SPDX-License-Identifier: Apache-2.0
// Tables of attention: which kernel a row timed, and which of its passes.
#include <gmock/gmock.h>

#include "base/csv.hpp"
#include "studies/validation/predictions.hpp"

namespace orrery::studies {
namespace {

using ::testing::HasSubstr;

RowResult attention_row(const std::string& text) {
  const std::vector<RowResult> rows = predict_kernels(parse_csv(text, "k.csv"), "k.csv", 1);
  EXPECT_EQ(rows.size(), 1U);
  return rows.front();
}

RowResult figure(const std::string& pass, const std::string& impl = "FlashAttention-3") {
  return attention_row(
      "gpu,impl,pass_,dtype,batch,heads,seqlen,head_dim,causal,tflops\n"
      "H100-SXM," +
      impl + "," + pass + ",fp16,1,16,16384,128,1,550\n");
}

TEST(AttentionTables, TheBackwardIsAPassOfItsOwn) {
  const double forward = figure("fwd").predicted;
  const double both = figure("fwd+bwd").predicted;
  const RowResult backward = figure("bwd");
  EXPECT_NEAR(backward.predicted, both - forward, 1e-3 * both);
  EXPECT_NEAR(backward.measured, 2.5 * figure("fwd").measured, 1e-9);
  EXPECT_THAT(figure("bwd_dq").skipped_because,
              HasSubstr(R"(pass_ "bwd_dq": fwd, bwd or fwd+bwd)"));
}

TEST(AttentionTables, FiguresInAnySpelling) {
  const double second = figure("fwd", "FlashAttention-2").predicted;
  EXPECT_GT(second, figure("fwd").predicted);
  for (const char* impl : {"flash-attention-2", "FA2", "FlashAttention v2"}) {
    EXPECT_EQ(figure("fwd", impl).predicted, second) << impl;
  }
  EXPECT_EQ(figure("FWD").predicted, figure("fwd").predicted);
  EXPECT_EQ(figure("forward").predicted, figure("fwd").predicted);
  EXPECT_EQ(figure("fwd_bwd").predicted, figure("fwd+bwd").predicted);
  for (const char* impl : {"FlashAttention-1", "cuDNN", "PyTorch unfused"}) {
    EXPECT_THAT(figure("fwd", impl).skipped_because, HasSubstr("is not modelled")) << impl;
  }
}

RowResult timed(const std::string& impl) {
  return attention_row(
      "gpu,impl,dtype,batch,heads,kv_heads,seqlen,head_dim,causal,time_us\n"
      "H100-SXM," +
      impl + ",bf16,4,32,32,4096,128,1,500\n");
}

TEST(AttentionTables, TimesAreOfTheKernelThatIsNamed) {
  EXPECT_GT(timed("FlashAttention-2").predicted, 1.2 * timed("vllm_flash_attn_fa3").predicted);
  for (const char* impl : {"PyTorch (unfused)", "Triton", "eager"}) {
    EXPECT_THAT(timed(impl).skipped_because, HasSubstr("is not modelled")) << impl;
  }
  for (const char* impl : {"FlashAttention2", "FlashAttention 2", "flash_attn 2.5.8",
                           "flash-attn v2.7", "FA-2", "FlashAttention v2"}) {
    EXPECT_EQ(timed(impl).predicted, timed("FlashAttention-2").predicted) << impl;
  }
  for (const char* impl : {"FlashAttention-1", "flash_attn_v1", "ck", "aiter", "flex_attention"}) {
    EXPECT_THAT(timed(impl).skipped_because, HasSubstr("is not modelled")) << impl;
  }
  const RowResult unnamed = attention_row(
      "gpu,dtype,batch,heads,kv_heads,seqlen,head_dim,time_us\nH100-SXM,bf16,4,32,32,4096,128,"
      "500\n");
  EXPECT_EQ(unnamed.predicted, timed("cuDNN").predicted);
}

}  // namespace
}  // namespace orrery::studies
