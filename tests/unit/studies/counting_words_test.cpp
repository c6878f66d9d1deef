// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/counting_words.hpp"

#include <gmock/gmock.h>

#include "models/network.hpp"
#include "studies/rows/flop_counting.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

constexpr double kTokens = 16.0 * 2048;
constexpr double kParameters = 1.3e9;
constexpr double kPairs = 24.0 * 2048 * 2048;  // L h s

// 24 layers of 2,048 on 16 sequences of 2,048 tokens.
Changes counted_by(const std::string& convention) {
  return {{"measured_metric", "mfu"},
          {"measured_value", "0.3"},
          {"params_b", "1.3"},
          {"flops_convention", convention}};
}

double flops(const Changes& changes) {
  const Measurement row = row_of(changes);
  return counted_flops(row, row_plan(row).value().network).value();
}

double flops(const std::string& convention) { return flops(counted_by(convention)); }

double model_flops_of_row(bool causal_half) {
  const Measurement row = row_of({});
  return models::model_flops(row_plan(row).value().network, {1, 2048}, causal_half).value() * 16;
}

TEST(CountingWords, CausalAttentionCountsHalf) {
  for (const std::string half :
       {"model FLOPs, causal attention (half)", "model FLOPs, causal attention", "causal",
        "MFU with causal mask", "model FLOPs; attention halved", "model FLOPs (half attention)",
        "no recompute and causal attention", "causal attention without recompute"}) {
    EXPECT_DOUBLE_EQ(flops(half), model_flops_of_row(true)) << half;
  }
  for (const std::string full :
       {"model FLOPs", "non-causal attention", "noncausal", "not causal", "no causal discount",
        "causal mask not considered", "attention counted full (not causal)", "full attention",
        "causal attention counted in full", "attention not halved for causal masks",
        "peak of half precision 312e12"}) {
    EXPECT_DOUBLE_EQ(flops(full), model_flops_of_row(false)) << full;
  }
}

// Of a mixture of experts a source may count all of them.
TEST(CountingWords, ParametersOfAllExperts) {
  const auto of_experts = [](const std::string& convention) {
    return flops(testing::mixture(counted_by(convention)));
  };
  EXPECT_DOUBLE_EQ(of_experts("total params 6ND"),
                   6 * kParameters * kTokens * 2);  // 32 sequences
  EXPECT_DOUBLE_EQ(of_experts("6ND, total parameters"), of_experts("total params 6ND"));
  EXPECT_NE(of_experts("6ND"), of_experts("total params 6ND"));
  EXPECT_DOUBLE_EQ(of_experts("6ND, active not total params"), of_experts("6ND"));
}

TEST(CountingWords, TermsOfAttention) {
  const double full = (6 * kParameters + 12 * kPairs) * kTokens;
  const double half = (6 * kParameters + 6 * kPairs) * kTokens;
  for (const std::string formula :
       {"6N + 6 L h s (causal)", "6N+6Lhs", "6·N + 6·L·h·s", "PaLM, causal",
        "6N + causal attention", "6N + 12 L h s, halved for causal attention"}) {
    EXPECT_DOUBLE_EQ(flops(formula), half) << formula;
  }
  for (const std::string formula :
       {"6N + 12 L h s", "6N + 12*L*d*s (not causal)", "PaLM", "6N, non-causal attention"}) {
    EXPECT_DOUBLE_EQ(flops(formula), full) << formula;
  }
  EXPECT_DOUBLE_EQ(flops("8N + 16 L h s"), full * 4 / 3);
  EXPECT_DOUBLE_EQ(flops("8N + 8 L h s"), half * 4 / 3);
  EXPECT_DOUBLE_EQ(flops("72bslh^2(1+s/12h+V/12lh)"), flops("72bslh^2, causal attention"));
  EXPECT_LT(flops("72bslh^2(1+s/12h+V/12lh)"), flops("72bslh^2(1+s/6h+V/12lh)"));
}

TEST(CountingWords, SignsAndNamesOfFormulas) {
  for (const std::string six : {"6·N·D", "6×N×D", "6 x N x D", "6 * params * tokens", "6*N*tokens",
                                "6 * parameters", "6P·D", "6N (excl. attention)"}) {
    EXPECT_DOUBLE_EQ(flops(six), 6 * kParameters * kTokens) << six;
  }
  for (const std::string eight : {"8N", "8·N·D", "8 * params * tokens", "4/3 of 6ND"}) {
    EXPECT_DOUBLE_EQ(flops(eight), 8 * kParameters * kTokens) << eight;
  }
  for (const std::string nodes : {"MFU on 8 nodes", "MFU, 6 nodes", "MFU, 8 NICs"}) {
    EXPECT_DOUBLE_EQ(flops(nodes), model_flops_of_row(false)) << nodes;
  }
}

TEST(CountingWords, EverythingOnceMoreAndAttentionLeftOut) {
  const double model = model_flops_of_row(false);
  EXPECT_DOUBLE_EQ(flops("4/3 of model FLOPs"), model * 4 / 3);
  EXPECT_DOUBLE_EQ(flops("4x forward"), model * 4 / 3);
  EXPECT_DOUBLE_EQ(flops("3x forward FLOPs"), model);
  const double attention = 12 * kPairs * kTokens;
  EXPECT_NEAR(flops("model FLOPs excl. attention"), model - attention, 1e-9 * model);
  EXPECT_NEAR(flops("attention not counted"), model - attention, 1e-9 * model);
  EXPECT_DOUBLE_EQ(flops("model FLOPs, no flash attention"), model);
}

TEST(CountingWords, ParametersOfTheNetworkWhereTheRowHasNone) {
  Changes row = counted_by("6ND");
  row["params_b"] = "";
  const double own =
      static_cast<double>(models::num_parameters(row_plan(row_of({})).value().network));
  EXPECT_DOUBLE_EQ(flops(row), 6 * own * kTokens);
  row["flops_convention"] = "PaLM appendix B";
  EXPECT_DOUBLE_EQ(flops(row), (6 * own + 12 * kPairs) * kTokens);
  EXPECT_EQ(predicted(row).skipped_because, "");
}

TEST(CountingWords, WhatIsNotUnderstoodIsNamed) {
  const auto lines = [](const std::string& convention) {
    return unread_counting(row_of(counted_by(convention)));
  };
  EXPECT_THAT(lines("24Bslh^2"), Contains(HasSubstr("\"24bslh^2\" is not understood")));
  EXPECT_THAT(lines("model FLOPs, 7 N D"), Contains(HasSubstr("\"7 n d\"")));
  EXPECT_THAT(lines("vendor's profiler"), Contains(HasSubstr("profiler")));
  EXPECT_THAT(lines("6N, non-embedding"), Contains(HasSubstr("non-embedding")));
  EXPECT_THAT(lines("6N + 12 L h s (causal)"), Contains(HasSubstr("attention in full")));
  EXPECT_THAT(lines("6ND (causal)"), Contains(HasSubstr("without attention")));
  for (const std::string read :
       {"", "model FLOPs, causal attention (half)", "6·N·D", "6 * params * tokens", "8N",
        "excl. attention", "4/3 of model FLOPs", "peak bf16 989e12, fp8 1979e12 (H100)",
        "96*B*s*l*h^2*(1+s/6h+V/16lh), includes recompute forward (hardware FLOPs)",
        "mfu=(6*N*s + 12*L*d*s^2)*seq/s / (gpus*peak); attention counted full (not causal)",
        "MFU on 8 nodes, TP 8", "Korthikanti appendix-A model FLOPs"}) {
    EXPECT_THAT(lines(read), IsEmpty()) << read;
  }
  EXPECT_THAT(predicted(counted_by("24Bslh^2")).assumed, Contains(HasSubstr("not understood")));
  EXPECT_THAT(unread_counting(row_of({{"flops_convention", "24Bslh^2"}})), IsEmpty());  // a time
}

// Where the framework says how, the rest of the cell counts, too.
TEST(CountingWords, CausalAttentionBesideTheWayOfTheFramework) {
  const auto seconds = [](const std::string& convention) {
    return predicted({{"measured_metric", "tflops_per_gpu"},
                      {"measured_value", "100"},
                      {"flops_convention", convention}})
        .measured;
  };
  EXPECT_DOUBLE_EQ(seconds("causal attention"), seconds("model FLOPs, causal attention"));
  EXPECT_LT(seconds("causal attention"), seconds(""));
}

}  // namespace
}  // namespace orrery::studies
