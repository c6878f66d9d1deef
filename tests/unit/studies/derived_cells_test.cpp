// SPDX-License-Identifier: Apache-2.0
// Cells that follow from others, and words for what a column names otherwise.
#include "studies/rows/derived_cells.hpp"

#include <gmock/gmock.h>

#include "studies/rows/assumptions.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/zero_words.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

Measurement filled(const Changes& changes) {
  Measurement row = row_of(changes);
  fill_from_cells(row);
  return row;
}

TEST(DerivedCells, TheOneDegreeThatIsBlankIsWhatTheOthersLeave) {
  EXPECT_EQ(filled({{"tp", ""}}).tp, 2);
  EXPECT_EQ(filled({{"pp", ""}}).pp, 2);
  EXPECT_EQ(filled({{"cp", ""}, {"dp", "1"}}).cp, 2);
  EXPECT_EQ(filled({{"gpus", ""}}).gpus, 8);
  EXPECT_EQ(filled({{"tp", ""}, {"pp", ""}}).tp, std::nullopt);
  EXPECT_EQ(filled({{"tp", ""}, {"dp", "3"}}).tp, std::nullopt);
  EXPECT_EQ(predicted({{"tp", ""}}).predicted, predicted({}).predicted);
  EXPECT_THAT(predicted({{"pp", ""}}).assumed, ElementsAre("pp 2"));
}

// Some sources print the ranks that share an expert.
TEST(DerivedCells, DataParallelRanksAreWhatTheDegreesLeave) {
  EXPECT_EQ(filled({{"dp", ""}}).dp, 2);
  EXPECT_EQ(filled({{"dp", "1"}, {"cp", "1"}}).dp, 2);
  EXPECT_EQ(filled({{"dp", "3"}, {"cp", "1"}, {"gpus", "9"}}).dp, 3);  // nothing fits
  EXPECT_THAT(predicted({{"dp", "3"}, {"cp", "1"}}).assumed, ElementsAre("dp 3 as 2"));
  EXPECT_EQ(predicted({{"dp", "3"}, {"cp", "1"}}).predicted, predicted({}).predicted);
}

TEST(DerivedCells, CountsBeforeTheGpu) {
  const auto counts = [](const std::string& gpu, const std::string& gpus,
                         const std::string& per_node, const std::string& dp = "") {
    const Measurement row =
        filled({{"gpu", gpu}, {"gpus", gpus}, {"gpus_per_node", per_node}, {"dp", dp}});
    return std::pair(row.gpus.value_or(0), row.gpus_per_node.value_or(0));
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(counts("8xA100", "", ""), Pair(8, 0));
  EXPECT_EQ(counts("4x A100", "16", ""), Pair(16, 4));
  EXPECT_EQ(counts("4 x A100", "16", "8"), Pair(16, 8));
  EXPECT_EQ(counts("16xA100", "8", ""), Pair(8, 0));
  EXPECT_EQ(counts("4xA100", "", "", "4"), Pair(16, 0));  // tp x pp x dp
  EXPECT_EQ(counts("A100x4", "16", ""), Pair(16, 0));
  EXPECT_EQ(counts("3090", "8", ""), Pair(8, 0));
  EXPECT_EQ(counts("2x8 H100", "16", ""), Pair(16, 0));
  EXPECT_EQ(filled({{"gpu", "4xA100 40GB"}}).gpu, "A100 40GB");
}

TEST(DerivedCells, CountsOfZeroAreBlank) {
  for (const std::string confidence : {"full", "partial"}) {
    const Changes zeros = {{"micro_batch", "0"},
                           {"num_microbatches", "0"},
                           {"vpp", ""},
                           {"schedule", "interleaved"},
                           {"confidence", confidence}};
    Changes blanks = zeros;
    blanks["micro_batch"] = blanks["num_microbatches"] = "";
    EXPECT_EQ(predicted(zeros).skipped_because, predicted(blanks).skipped_because) << confidence;
    EXPECT_EQ(predicted(zeros).predicted, predicted(blanks).predicted) << confidence;
  }
  EXPECT_EQ(filled({{"global_batch", "0"}}).global_batch, std::nullopt);
  EXPECT_EQ(filled({{"gpus_per_node", "0"}}).gpus_per_node, std::nullopt);
}

TEST(DerivedCells, AsManyChunksAsThereAreLayers) {
  const Changes most = {{"schedule", "interleaved"}, {"vpp", "max (1 layer per chunk)"}};
  EXPECT_THAT(predicted(most).assumed, Contains("vpp 13"));  // 24 layers and two ends on 2 stages
  EXPECT_GT(predicted(most).predicted, 0) << predicted(most).skipped_because;
}

TEST(DerivedCells, CardsWhereANodeHasNoNvlink) {
  const auto gpu = [](const std::string& name, const std::string& links) {
    return filled({{"gpu", name}, {"intra_node", links}}).gpu;
  };
  EXPECT_EQ(gpu("A100-80GB", "PCIe Gen4"), "a100-pcie-80gb");
  EXPECT_EQ(gpu("A100 40GB", "PCIe (no NVLink)"), "a100-pcie-40gb");
  EXPECT_EQ(gpu("V100-32GB", "PCIe"), "v100-pcie-32gb");
  EXPECT_EQ(gpu("H100", "PCIe with NVLink bridges"), "h100-pcie-80gb");
  EXPECT_EQ(gpu("H100", "NVLink; NICs on PCIe"), "H100");
  EXPECT_EQ(gpu("A100-80GB-SXM", "PCIe"), "A100-80GB-SXM");
  EXPECT_EQ(gpu("H200", "PCIe"), "H200");  // no such card
  EXPECT_EQ(gpu("A100-80GB", "NVLink"), "A100-80GB");
  EXPECT_GT(predicted({{"gpu", "A100-80GB"}, {"intra_node", "PCIe"}}).predicted,
            predicted({}).predicted);
}

// dp is 2: 16 samples are 8 a rank.
TEST(DerivedCells, MicroBatchesThatDoNotDivideTheSamplesOfARank) {
  const auto batches = [](const Changes& changes) {
    Measurement row = row_of(changes);
    assume_defaults(row);
    return std::pair(*row.micro_batch, *row.global_batch);
  };
  EXPECT_EQ(batches({{"micro_batch", "3"}}), std::pair(std::int64_t{3}, std::int64_t{18}));
  EXPECT_EQ(batches({{"micro_batch", "5"}}), std::pair(std::int64_t{4}, std::int64_t{16}));
  EXPECT_EQ(batches({{"micro_batch", "32"}}), std::pair(std::int64_t{8}, std::int64_t{16}));
  EXPECT_EQ(batches({{"micro_batch", "5"}, {"measured_metric", "peak_mem_gib"}}),
            std::pair(std::int64_t{5}, std::int64_t{20}));
  EXPECT_THAT(predicted({{"micro_batch", "32"}}).assumed, Contains("micro_batch 32 as 8"));
  EXPECT_FALSE(predicted({{"global_batch", "1"}}).skipped_because.empty());
}

TEST(DerivedCells, SchedulesInOtherWords) {
  EXPECT_EQ(row_of({{"schedule", "1F1B-I"}}).schedule, "interleaved");
  EXPECT_EQ(row_of({{"schedule", "DFS"}}).schedule, "interleaved");
  EXPECT_EQ(row_of({{"schedule", "Synchronous 1F1B"}}).schedule, "1f1b");
}

TEST(DerivedCells, PrecisionInOtherWords) {
  EXPECT_EQ(row_of({{"precision", "16-mixed"}}).precision, "fp16");
  EXPECT_EQ(row_of({{"precision", "single"}}).precision, "fp32");
  EXPECT_EQ(row_of({{"precision", "FP8-MX"}}).precision, "mxfp8");
  EXPECT_EQ(row_of({{"precision", "fp8 (rowwise)"}}).precision_detail, "fp8 (rowwise)");
  EXPECT_THAT(row_of({}).precision_detail, IsEmpty());
  const auto scaling = [](const std::string& precision) {
    const Measurement row = row_of({{"precision", precision}, {"framework", "NeMo"}});
    return row_execution(row, framework_of(row).facts).fp8_scaling;
  };
  EXPECT_EQ(scaling("FP8-CS"), plan::Fp8Scaling::Current);
  EXPECT_NE(scaling("fp8"), plan::Fp8Scaling::Current);
  EXPECT_THAT(predicted({{"precision", "mixed"}}).assumed, Contains("precision bf16"));
}

TEST(DerivedCells, StagesOfZeroInOtherWords) {
  const auto stage = [](std::string_view cell) { return stage_of_zero(cell); };
  EXPECT_EQ(stage("ZeRO-3 offload"), 3);
  EXPECT_EQ(stage("ZeRO-2"), 2);
  EXPECT_EQ(stage("ZeRO++"), 3);
  EXPECT_EQ(stage("ZeRO-Infinity"), 3);
  EXPECT_EQ(stage("ZeRO-Offload"), 2);
  EXPECT_EQ(stage("SHARD_GRAD_OP"), 2);
  EXPECT_EQ(stage("NO_SHARD"), 0);
  EXPECT_EQ(stage("FSDP full shard"), 3);
  EXPECT_EQ(stage("dist-opt"), 1);
  EXPECT_EQ(stage("ZeRO-30"), std::nullopt);
  EXPECT_EQ(stage("something"), std::nullopt);
}

// Megatron refuses experts on tensor ranks without it; dense networks run either way.
TEST(DerivedCells, ExpertsOnTensorRanksAreSequenceParallel) {
  const auto assumed = [](const std::string& experts) {
    return predicted({{"experts", experts},
                      {"top_k", experts.empty() ? "" : "2"},
                      {"moe_ffn_hidden", experts.empty() ? "" : "4096"},
                      {"sequence_parallel", ""}})
        .assumed;
  };
  EXPECT_THAT(assumed("8"), Contains("sequence parallelism"));
  EXPECT_THAT(assumed(""), testing::Not(Contains("sequence parallelism")));
}

TEST(DerivedCells, RecomputationInOtherWords) {
  const auto recompute = [](const std::string& cell) {
    const Measurement row = row_of({{"recompute", cell}});
    const StatedRecompute stated = stated_recompute(row, framework_of(row).facts).value();
    return std::pair(stated.operators, stated.every);
  };
  EXPECT_EQ(recompute("none (FlashAttention)"), recompute("none"));
  EXPECT_EQ(recompute("layerwise"), recompute("full"));
  EXPECT_EQ(recompute("nothing_saveable"), recompute("full"));
  EXPECT_EQ(recompute("attn"), recompute("selective"));
  EXPECT_EQ(recompute("SAC (op)"), recompute("sac"));
  EXPECT_EQ(recompute("50% of layers").second, 2);
  EXPECT_EQ(recompute("1/3 of layers").second, 3);
  EXPECT_EQ(recompute("half of the layers").second, 2);
  EXPECT_EQ(recompute("dots_saveable").first, "norms+rotary+mlp-activation+residuals");
  EXPECT_EQ(recompute("checkpoint_dots_with_no_batch_dims"), recompute("minimal"));
}

TEST(DerivedCells, SoftmaxBetweenTwoProductsIsNotFused) {
  const auto fused = [](const std::string& words) {
    const Measurement row = row_of({{"attention_impl", words}});
    return row_execution(row, framework_of(row).facts).fused_attention;
  };
  EXPECT_FALSE(fused("Megatron fused softmax"));
  EXPECT_FALSE(fused("standard"));
  EXPECT_TRUE(fused("flash, not standard"));
  EXPECT_TRUE(fused("SDPA"));
}

// DeepSeek LLM has LLaMA's attention, with grouped keys at 67B.
TEST(DerivedCells, SchedulesOfOneChunkLeaveOthersOut) {
  const auto remarks = [](const std::string& schedule) {
    return predicted({{"schedule", schedule}, {"vpp", "2"}}).assumed;
  };
  EXPECT_THAT(remarks("zb-1p"), ElementsAre("schedule zb-1p without vpp 2"));
  EXPECT_THAT(remarks("gpipe"), ElementsAre("schedule gpipe without vpp 2"));
  EXPECT_THAT(remarks("zb-v"), IsEmpty());
  EXPECT_THAT(predicted({{"schedule", "interleaved"}, {"vpp", "1"}}).assumed,
              ElementsAre("schedule interleaved with vpp 1 as 1f1b"));
  EXPECT_THAT(
      predicted({{"schedule", "interleaved"}, {"vpp", "2"}, {"pp", "1"}, {"dp", "4"}}).assumed,
      Contains("schedule interleaved without vpp 2"));
}

TEST(DerivedCells, MisspeltSchedulesAreSaid) {
  EXPECT_EQ(row_of({{"schedule", "interleavd"}}).schedule, "interleaved");
  EXPECT_THAT(row_of({{"schedule", "1f1bb"}}).remarks, ElementsAre("schedule 1f1bb as 1f1b"));
  for (const std::string other : {"zb-3p", "zb-h", "spiral", "none", ""}) {
    EXPECT_EQ(row_of({{"schedule", other}}).schedule, other);
  }
}

TEST(DerivedCells, WordsForAttentionThatNobodyKnowsAreRemarked) {
  EXPECT_THAT(predicted({{"attention_impl", "flsh"}}).assumed,
              ElementsAre("attention_impl \"flsh\" as a fused kernel"));
  EXPECT_THAT(predicted({{"attention_impl", "FA2 (TE)"}}).assumed, IsEmpty());
  EXPECT_THAT(predicted({{"hidden", "2050"}}).assumed,
              ElementsAre("head_dim 128: hidden 2050 is not divisible by 16 heads"));
}

// Without the number of experts a mixture would be simulated as a dense network.
TEST(DerivedCells, MixturesWithoutANumberOfExpertsAreSkipped) {
  const auto reason = [](Changes changes, const std::string& confidence = "full") {
    changes.merge(Changes{{"model_family", "llama"}, {"ffn_hidden", "8192"}});
    changes["confidence"] = confidence;
    return predicted(changes).skipped_because;
  };
  for (const std::string confidence : {"full", "partial"}) {
    EXPECT_EQ(reason({{"top_k", "2"}}, confidence), "experts is not stated, but top_k is 2");
    EXPECT_EQ(reason({{"model_name", "mixtral-like"}}, confidence),
              "experts is not stated, but \"mixtral-like\" is a mixture of experts");
    EXPECT_EQ(reason({{"ep", "2"}}, confidence), "experts is not stated, but ep is 2");
    EXPECT_EQ(reason({{"experts", "0"}, {"ep", "2"}}, confidence),
              "the network has no experts, but ep is 2");
  }
  for (const std::string name : {"MoE 8x1B", "foo-30B-A3B", "GPT-MoE", "my 8x7b"}) {
    EXPECT_THAT(reason({{"model_name", name}}), HasSubstr("is a mixture of experts")) << name;
  }
  for (const std::string name : {"dense baseline of Mixtral", "7B 4x longer", "Moesian 7B"}) {
    EXPECT_EQ(reason({{"model_name", name}, {"top_k", ""}}), "") << name;
  }
  EXPECT_EQ(reason({{"experts", "1"}, {"top_k", "1"}, {"ep", "1"}}), "");
  EXPECT_EQ(reason({{"experts", "8"}}), "top_k is not stated");
}

TEST(DerivedCells, AttentionOfDeepSeek) {
  const auto rank = [](const Changes& changes) {
    const Measurement row = row_of(changes);
    return row_network(row, framework_of(row).facts).value().mla.kv_lora_rank;
  };
  const Changes dense = {
      {"model_family", "deepseek"}, {"model_name", "67b"}, {"ffn_hidden", "8192"}};
  const auto with = [&](Changes changes) {
    changes.insert(dense.begin(), dense.end());
    return rank(changes);
  };
  EXPECT_EQ(with({}), 0);
  EXPECT_EQ(with({{"kv_heads", "4"}, {"experts", "8"}, {"top_k", "2"}}), 0);
  EXPECT_GT(with({{"experts", "8"}, {"top_k", "2"}}), 0);
  const Changes latent = {
      {"model_family", "deepseek-v3"}, {"ffn_hidden", "8192"}, {"experts", "8"}, {"top_k", "2"}};
  EXPECT_GT(rank(latent), 0);
  Changes one_head = latent;
  one_head["kv_heads"] = "1";
  const Measurement row = row_of(one_head);
  EXPECT_EQ(row_network(row, framework_of(row).facts).value().kv_heads, 16);
}

TEST(DerivedCells, ExpertsOfAnUnknownFrameworkAreThoseOfMegatron) {
  const Measurement row = row_of({{"framework", "Abacus"},
                                  {"tp", "1"},
                                  {"pp", "1"},
                                  {"ep", "8"},
                                  {"experts", "8"},
                                  {"top_k", "2"}});
  EXPECT_EQ(framework_of(row).facts.name, "Megatron-LM");
}

TEST(DerivedCells, ReleasesOfMegatronCoreUnderOtherNames) {
  const auto weighs = [](const std::string& framework) {
    const Measurement row = row_of({{"framework", framework}});
    return row_execution(row, framework_of(row).facts).weighted_activations;
  };
  EXPECT_TRUE(weighs("Megatron-LM core_r0.13.0"));
  EXPECT_TRUE(weighs("Megatron-LM v0.14"));
  EXPECT_FALSE(weighs("Megatron-LM core_v0.8.0"));
  EXPECT_FALSE(weighs("Megatron-LM v2.13"));
}

}  // namespace
}  // namespace orrery::studies
