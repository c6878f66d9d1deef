// SPDX-License-Identifier: Apache-2.0
// Cells in the words and notations of sources that no table of ours comes from.
#include <gmock/gmock.h>

#include "studies/rows/assumptions.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/studies/testing.hpp"
#include "topologies/words.hpp"

namespace orrery::studies {
namespace {

using plan::Tier;
using testing::Changes;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::message_of;
using testing::predicted;
using testing::row_of;

TEST(StatedWords, NumbersAsPublicationsPrintThem) {
  const auto batch = [](const std::string& cell) {
    return row_of({{"global_batch", cell}}).global_batch;
  };
  EXPECT_EQ(batch("1,024"), 1024);
  EXPECT_EQ(batch("~1,024 (inferred)"), 1024);
  EXPECT_EQ(batch("12,345,678"), 12345678);
  for (const std::string words : {"none", "auto", "varies", "unknown", "?", "Not stated", "null"}) {
    EXPECT_EQ(batch(words), std::nullopt) << words;
  }
  for (const std::string bad : {"1,5", "1234,567", "2M seqs", "8 or 16", ",024"}) {
    EXPECT_THAT(message_of([&] { batch(bad); }), HasSubstr("is not a number")) << bad;
  }
  EXPECT_DOUBLE_EQ(row_of({{"measured_metric", "mfu"}, {"measured_value", "45.5%"}}).value, 0.455);
}

TEST(StatedWords, StagesOfZeroAndFlags) {
  const auto stage = [](const std::string& cell) {
    return row_of({{"zero_stage", cell}}).zero_stage;
  };
  EXPECT_EQ(stage("ZeRO-2"), 2);
  EXPECT_EQ(stage("stage 1"), 1);
  EXPECT_EQ(stage("1 (distributed optimizer)"), 1);
  EXPECT_EQ(stage("FSDP"), 3);
  EXPECT_EQ(stage("none"), 0);
  EXPECT_EQ(stage("DDP"), 0);
  EXPECT_EQ(stage("HYBRID_SHARD"), 3);
  EXPECT_EQ(stage("2.0"), 2);
  for (const std::string unknown : {"stage 7", "ZeRO-4", "sharded"}) {
    EXPECT_EQ(predict_training_row(row_of({{"zero_stage", unknown}}), 0).skipped_because,
              "zero_stage \"" + unknown + "\" is not known (0 to 3, ZeRO-n, FSDP or DDP)");
  }
  EXPECT_EQ(stated_offload(row_of({{"zero_stage", "ZeRO-3 (CPU offload)"}})).optimizer, Tier::Host);
  EXPECT_FALSE(stated_offload(row_of({{"zero_stage", "ZeRO-3 (no offload)"}})).any());
  EXPECT_EQ(row_of({{"sequence_parallel", "on"}}).sequence_parallel, true);
  EXPECT_EQ(row_of({{"sequence_parallel", "disabled"}}).sequence_parallel, false);
  EXPECT_EQ(row_of({{"gated_mlp", "SwiGLU"}}).gated_mlp, true);
  EXPECT_EQ(row_of({{"tied_embeddings", "untied"}}).tied_embeddings, false);
  EXPECT_EQ(row_of({{"year", "2024-05"}}).year, 2024);
  EXPECT_EQ(row_of({{"year", "2024"}}).year, 2024);
  EXPECT_EQ(row_of({{"year", "May 2024"}}).year, 2024);
  EXPECT_EQ(row_of({{"year", "'24"}}).year, std::nullopt);
  EXPECT_EQ(row_of({{"year", "'24"}}).remarks.size(), 1U);
}

TEST(StatedWords, DegreesOfZeroAreBlank) {
  const Measurement row = row_of({{"tp", "0"}, {"pp", "0"}, {"dp", "0"}, {"cp", "0"}, {"ep", "0"}});
  for (const auto& degree : {row.tp, row.pp, row.dp, row.cp, row.ep}) {
    EXPECT_EQ(degree, std::nullopt);
  }
  EXPECT_EQ(row_plan(row_of({{"cp", "0"}, {"ep", "0"}})).value().layout_of(1).cp, 1);
}

TEST(StatedWords, FlagsHaveTheWordsOfTheirColumn) {
  EXPECT_EQ(row_of({{"gated_mlp", "gelu"}}).gated_mlp, false);
  for (const std::string word : {"gelu", "tied", "untied", "2", "100%"}) {
    EXPECT_THAT(message_of([&] {
                  row_of({{"sequence_parallel", word}});
                }),
                HasSubstr("sequence_parallel"))
        << word;
  }
  EXPECT_THAT(message_of([] {
                row_of({{"tied_embeddings", "gated"}});
              }),
              HasSubstr("tied_embeddings"));
  EXPECT_THAT(message_of([] { row_of({{"tp", "100%"}}); }), HasSubstr("100% is not a count"));
}

TEST(StatedWords, SchedulesInOtherWords) {
  const auto schedule = [](const std::string& cell) {
    return row_of({{"schedule", cell}}).schedule;
  };
  EXPECT_EQ(schedule("1F1B (Megatron)"), "1f1b");
  EXPECT_EQ(schedule("non-interleaved"), "1f1b");
  EXPECT_EQ(schedule("Depth-first"), "interleaved");
  EXPECT_EQ(schedule("F-then-B"), "gpipe");
  EXPECT_EQ(schedule("zero bubble"), "zb-1p");
  EXPECT_EQ(schedule("Dual Pipe"), "dualpipe");
}

// Their two chunks need no column.
TEST(StatedWords, SchedulesOfAVHaveTwoChunks) {
  const auto chunks = [](const std::string& schedule, const std::string& vpp) {
    return row_plan(row_of({{"schedule", schedule}, {"vpp", vpp}})).value().chunks;
  };
  EXPECT_EQ(chunks("ZBV", ""), 2);
  EXPECT_EQ(chunks("v-half", "1"), 2);
  EXPECT_EQ(chunks("interleaved", "3"), 3);
}

TEST(StatedWords, RecomputationInOtherWords) {
  const auto operators = [](const std::string& cell) {
    const Measurement row = row_of({{"recompute", cell}});
    const auto stated = stated_recompute(row, framework_of(row).facts);
    return stated ? stated->operators : stated.error();
  };
  EXPECT_EQ(operators("full (uniform)"), "full");
  EXPECT_EQ(operators("activation checkpointing"), "full");
  EXPECT_EQ(operators("selective (core attention)"), "selective");
  EXPECT_EQ(operators("SAC"), "products");
  EXPECT_EQ(operators("per-op SAC"), "products");
  EXPECT_EQ(operators("mlp"), "mlp-up+mlp-activation+mlp-down");
  EXPECT_EQ(operators("save_qkv_proj"), operators("save_qkv_proj (MaxText)"));
  EXPECT_EQ(operators("norms+rotary"), "norms+rotary");
  for (const std::string denial :
       {"no activation checkpointing", "without full recomputation", "activation checkpointing off",
        "Activation checkpointing: disabled", "full: no", "checkpointing not used"}) {
    EXPECT_EQ(operators(denial), "none") << denial;
  }
  EXPECT_EQ(operators("full, no offload"), "full");
  EXPECT_EQ(operators("full without offload"), "full");
  EXPECT_EQ(operators("tuned"), "recomputation \"tuned\" is not modelled");
  const Measurement second = row_of({{"recompute", "every 2nd layer"}});
  EXPECT_EQ(stated_recompute(second, framework_of(second).facts)->every, 2);
}

TEST(StatedWords, TensorsThatLeaveTheDevice) {
  const auto offload = [](Changes changes) {
    changes.merge(Changes{{"zero_stage", "3"}});
    return stated_offload(row_of(changes));
  };
  EXPECT_FALSE(offload({}).any());
  for (const std::string denial :
       {"no CPU offload; tuned", "no activation offloading", "no optimizer offload",
        "CPU offloading disabled", "offload: none", "optimizer states not offloaded",
        "SHARP offload of all-reduce", "kernel launches offloaded"}) {
    EXPECT_FALSE(offload({{"notes", denial}}).any()) << denial;
  }
  const auto activations = [&](const std::string& notes) {
    return offload({{"notes", notes}}).activations;
  };
  EXPECT_DOUBLE_EQ(activations("offload 12.5% of the activations"), 0.125);
  EXPECT_DOUBLE_EQ(activations("activations offloaded to CPU, 5% slower"), 1);
  const auto share = offload({{"recompute_detail", "norms; offload 10% of activations to host"}});
  EXPECT_DOUBLE_EQ(share.activations, 0.1);
  EXPECT_EQ(share.optimizer, Tier::Device);
  EXPECT_DOUBLE_EQ(offload({{"notes", "activations offloaded to CPU"}}).activations, 1.0);
  const auto states = offload({{"notes", "optimizer states offloaded to host; CPU Adam"}});
  EXPECT_EQ(states.optimizer, Tier::Host);
  EXPECT_EQ(states.gradients, Tier::Host);
  EXPECT_EQ(states.parameters, Tier::Device);
  EXPECT_EQ(offload({{"framework", "DeepSpeed ZeRO-Infinity"}}).parameters, Tier::Host);
  EXPECT_EQ(offload({{"notes", "optimizer offloaded to NVMe"}}).optimizer, Tier::Disk);
  EXPECT_EQ(offload({{"framework", "PyTorch FSDP"}, {"notes", "CPU offload"}}).parameters,
            Tier::Host);
  const auto whole = offload({{"zero_stage", "1"}, {"notes", "optimizer offload"}});
  EXPECT_EQ(whole.optimizer, Tier::Host);
  EXPECT_EQ(whole.gradients, Tier::Device);
}

// A blank cell of a row that states everything says what the run does without.
TEST(StatedWords, WhatFollowsFromOtherCellsIsNotMissing) {
  const RowResult usual = predicted({});
  const RowResult derived = predicted({{"micro_batch", ""}, {"schedule", ""}, {"recompute", ""}});
  EXPECT_EQ(derived.predicted, usual.predicted) << derived.skipped_because;
  EXPECT_THAT(derived.assumed, Contains("micro_batch 1"));
  EXPECT_THAT(derived.assumed, Contains("schedule 1f1b"));
  EXPECT_THAT(predicted({{"schedule", ""}, {"vpp", "2"}}).assumed,
              Contains("schedule interleaved"));
  const Changes whole = {{"gpus", "1"}, {"dp", "1"}, {"num_microbatches", "16"}};
  Changes blank = whole;
  blank.merge(Changes{{"tp", ""}, {"pp", ""}});
  Changes ones = whole;
  ones.merge(Changes{{"tp", "1"}, {"pp", "1"}});
  EXPECT_EQ(predicted(blank).predicted, predicted(ones).predicted);
}

TEST(StatedWords, UnknownVariantsAreThePlainPlan) {
  const RowResult ours = predicted({{"variant", "baseline"}});
  EXPECT_EQ(ours.predicted, predicted({}).predicted);
  EXPECT_THAT(ours.assumed, Contains("\"baseline\" as the plain plan"));
  // What it says is read like other remarks.
  EXPECT_GT(predicted({{"variant", "optimizer offload"}}).predicted, ours.predicted);
}

TEST(StatedWords, PartialRowsAreCompleted) {
  const auto partial = [](Changes changes) {
    changes["confidence"] = "partial";
    return predicted(changes);
  };
  EXPECT_THAT(partial({{"schedule", "spiral"}}).assumed, Contains("schedule spiral as 1f1b"));
  EXPECT_THAT(partial({{"recompute", "tuned"}}).assumed,
              Contains("recomputation \"tuned\" as not stated"));
  EXPECT_THAT(partial({{"global_batch", "17"}, {"num_microbatches", ""}}).assumed,
              Contains("global_batch 17 as 18"));
  EXPECT_THAT(partial({{"vocab", ""}, {"model_family", "Abacus"}}).assumed,
              Contains("vocab 50257"));
  EXPECT_THAT(partial({{"gated_mlp", "1"}, {"hidden", "4096"}, {"heads", "32"}}).assumed,
              Contains("ffn_hidden 11008"));
  EXPECT_THAT(partial({{"heads", ""}}).assumed, Contains("heads 16"));
  EXPECT_THAT(partial({{"experts", "8"}, {"top_k", ""}, {"ffn_hidden", "8192"}}).assumed,
              Contains("top_k 2"));
}

TEST(StatedWords, RatesWithoutABatchAreThoseOfOneMicroBatch) {
  const Changes rate = {{"confidence", "partial"},
                        {"measured_metric", "tokens_per_s_per_gpu"},
                        {"measured_value", "5000"},
                        {"global_batch", ""},
                        {"num_microbatches", ""},
                        {"pp", "1"},
                        {"dp", "4"},
                        {"micro_batch", "2"}};
  EXPECT_THAT(predicted(rate).assumed, Contains("global_batch 8"));
  Changes pipeline = rate;
  pipeline["pp"] = "2";
  pipeline["dp"] = "2";
  EXPECT_THAT(predicted(pipeline).skipped_because, HasSubstr("global_batch"));
}

TEST(StatedWords, RoundsOfFewerMicroBatchesThanStages) {
  const Changes odd = {{"gpus", "16"},
                       {"pp", "4"},
                       {"vpp", "2"},
                       {"num_microbatches", "6"},
                       {"schedule", "interleaved"},
                       {"global_batch", "12"}};
  const RowResult result = predicted(odd);
  EXPECT_GT(result.predicted, 0) << result.skipped_because;
  EXPECT_THAT(result.assumed,
              Contains("schedule interleaved as interleaved-uneven: 6 micro-batches on 4 stages"));
}

TEST(StatedWords, GpusThatDoNotFillTheirNodes) {
  const auto cluster = row_cluster(row_of({{"gpus", "12"}, {"gpus_per_node", "8"}}));
  EXPECT_EQ(cluster->node.gpus, 6);
  EXPECT_EQ(cluster->num_gpus(), 12);
  EXPECT_THAT(predicted({{"gpus", "12"}, {"pp", "3"}, {"gpus_per_node", "8"}}).assumed,
              Contains("6 GPUs of every 8 in use"));
  EXPECT_THAT(predicted({{"gpus", "13"}, {"tp", "1"}, {"pp", "13"}, {"dp", "1"}}).skipped_because,
              HasSubstr("13 GPUs are not in equal parts on nodes of 8"));
  EXPECT_TRUE(row_cluster(row_of({{"gpus", "3"}, {"gpus_per_node", "8"}})));
  EXPECT_THAT(predicted({}).assumed, ::testing::IsEmpty());
}

// Two GPUs of a board of four share a third of their links.
TEST(StatedWords, BoardsOfFourHaveNoSwitch) {
  const auto wiring = [](const Changes& changes) {
    return row_cluster(row_of(changes))->node.scale_up.wiring;
  };
  const Changes four = {{"gpus", "64"}, {"gpus_per_node", "4"}, {"inter_node", "4x200Gb IB HDR"}};
  EXPECT_EQ(wiring(four), topologies::Wiring::AllPairs);
  Changes named = four;
  named["intra_node"] = "NVLink/NVSwitch";
  EXPECT_EQ(wiring(named), topologies::Wiring::Crossbar);
  EXPECT_EQ(wiring({{"gpus", "4"}, {"gpus_per_node", "4"}}), topologies::Wiring::Crossbar);
  EXPECT_EQ(row_cluster(row_of(four))->node.name, "hgx-a100-4");
  for (const auto& [gpu, board] :
       {std::pair("A100-40GB-SXM", "hgx-a100-40-4"), std::pair("H100-80GB-SXM", "hgx-h100-4"),
        std::pair("H200-SXM", "hgx-h200-4")}) {
    Changes other = four;
    other["gpu"] = gpu;
    EXPECT_EQ(row_cluster(row_of(other))->node.name, board);
  }
  Changes sold_in_eights = four;
  sold_in_eights["gpu"] = "H800-SXM";
  EXPECT_EQ(wiring(sold_in_eights), topologies::Wiring::Crossbar);
  Changes dgx = four;
  dgx["inter_node"] = "4x200Gb IB HDR (DGX A100)";
  EXPECT_EQ(wiring(dgx), topologies::Wiring::Crossbar);
  Changes pairs = four;
  pairs.merge(Changes{
      {"tp", "2"}, {"pp", "1"}, {"dp", "32"}, {"num_microbatches", "1"}, {"global_batch", "32"}});
  Changes switched = pairs;
  switched["intra_node"] = "NVLink/NVSwitch";
  EXPECT_GT(predicted(pairs).predicted, predicted(switched).predicted);
}

// Of the alternatives in brackets a row means that of its GPU.
TEST(StatedWords, NetworksOfSeveralGpus) {
  const auto rate = [](const std::string& gpu) {
    const auto cluster = row_cluster(
        row_of({{"gpu", gpu}, {"gpus", "16"}, {"inter_node", "8x IB (100Gb A100 / 200Gb H100)"}}));
    return cluster->node.scale_out.nics * cluster->node.scale_out.nic_bandwidth.value() * 8 / 1e9;
  };
  EXPECT_DOUBLE_EQ(rate("A100-80GB-SXM"), 800);
  EXPECT_DOUBLE_EQ(rate("H100-80GB-SXM"), 1600);
}

// Of the family's large network with other widths.
TEST(StatedWords, WaysOfCountingThatAreNotStated) {
  const auto assumed = [](Changes changes) {
    changes.merge(Changes{{"measured_metric", "tflops_per_gpu"},
                          {"measured_value", "100"},
                          {"flops_convention", "own profiler"}});
    return predicted(changes).assumed;
  };
  EXPECT_THAT(assumed({}), Contains("FLOPs counted as model FLOPs"));
  EXPECT_THAT(assumed({{"framework", "GPT-NeoX"}}), Contains("FLOPs counted as hardware FLOPs"));
  EXPECT_THAT(assumed({{"year", "2021"}}), Contains("FLOPs counted as hardware FLOPs"));
  EXPECT_TRUE(assumed({{"flops_convention", "6 N D"}, {"params_b", "1.3"}}).empty());
}

TEST(StatedWords, RemarksThatChangeTheRun) {
  const auto execution = [](const Changes& changes) {
    const Measurement row = row_of(changes);
    return row_execution(row, framework_of(row).facts);
  };
  EXPECT_TRUE(execution({}).fp32_gradients);
  EXPECT_FALSE(execution({{"notes", "gradients reduced in bf16"}}).fp32_gradients);
  EXPECT_TRUE(execution({{"framework", "fms-fsdp"}, {"notes", "fp32 gradients"}}).fp32_gradients);
  EXPECT_EQ(execution({{"attention_impl", "FlashAttention-2"}}).flash_version, 2);
  EXPECT_EQ(execution({{"attention_impl", "flash 2.5.8"}}).flash_version, 2);
  for (const std::string name :
       {"FlashAttention 2", "flash attention v2", "flash_attn_2", "flash-attn==2.5.8",
        "FlashAttention (v2)", "Flash Attention V2.3", "FA v2", "flash_attn v2"}) {
    EXPECT_EQ(execution({{"attention_impl", name}}).flash_version, 2) << name;
  }
  EXPECT_EQ(execution({{"attention_impl", "flash-attention 1"}}).flash_version, 1);
  EXPECT_EQ(execution({{"attention_impl", "FA3"}}).flash_version, 0);
  const Changes composer = {
      {"framework", "Composer"}, {"attention_impl", "flash"}, {"year", "2023"}};
  EXPECT_EQ(execution(composer).flash_version, 1);
  EXPECT_THAT(predicted({{"notes", "LoRA rank 16"}}).skipped_because, HasSubstr("LoRA"));
  for (const std::string whole : {"design exploration", "full fine-tuning (no LoRA)", "no LoRA"}) {
    EXPECT_GT(predicted({{"notes", whole}}).predicted, 0) << whole;
  }
}

TEST(StatedWords, PeaksOfOtherPrecisions) {
  const auto time = [](const std::string& precision) {
    const Measurement row = row_of({{"gpu", "H200"},
                                    {"precision", precision},
                                    {"measured_metric", "mfu"},
                                    {"measured_value", "0.4"}});
    return measured_target(row, row_plan(row).value().network).value().value;
  };
  EXPECT_DOUBLE_EQ(time("fp8"), time("bf16"));
  EXPECT_NEAR(time("tf32"), 2 * time("bf16"), 0.01 * time("bf16"));
}

TEST(StatedWords, GpusByTheirModel) {
  EXPECT_EQ(stated_gpu("A100-64GB-custom (Leonardo)"), "a100-sxm4-80gb");
  EXPECT_EQ(stated_gpu("8x H100 NVL"), "h100-nvl-94gb");
  EXPECT_EQ(stated_gpu("RTX 3080 Ti"), "rtx-3080");
  EXPECT_EQ(stated_gpu("3090 Ti"), "rtx-3090ti");
  EXPECT_EQ(stated_gpu("2080 Ti"), "rtx-2080ti");
  EXPECT_EQ(stated_gpu("GB300-279GB"), "gb300-288gb");
  EXPECT_EQ(stated_gpu("BM.GPU.H100.8"), "h100-sxm5-80gb");
  EXPECT_EQ(stated_gpu("p4d.24xlarge"), "a100-sxm4-40gb");
  EXPECT_EQ(stated_gpu("DGX-2"), "v100-sxm3-32gb");
  EXPECT_EQ(stated_gpu("A6000 Ada"), "rtx-6000-ada-48gb");
  EXPECT_EQ(stated_gpu("A6000"), "rtx-a6000-48gb");
  EXPECT_EQ(stated_gpu("A100X"), "a100-pcie-80gb");
  for (const std::string unknown : {"Ascend 910B", "Gaudi2", "B100", "MI300A", "abacus", "DGX",
                                    "A100-20GB-MIG", "A100 MIG 3g.40gb", "H100-24GB"}) {
    EXPECT_EQ(stated_gpu(unknown), "") << unknown;
  }
  EXPECT_EQ(topologies::stated_gigabytes("A100 64 GB"), 64);
  EXPECT_EQ(topologies::stated_gigabytes("A100-80G"), 80);
  EXPECT_EQ(topologies::stated_gigabytes("a3-highgpu-8g"), 0);  // its GPUs
  EXPECT_THAT(predicted({{"gpu", "A100-64GB-SXM"}}).assumed,
              Contains("GPU A100-64GB-SXM as a100-sxm4-80gb"));
  const auto memory = [](const std::string& gpu) {
    return row_plan(row_of({{"gpu", gpu}})).value().cluster.gpu.memory;
  };
  EXPECT_EQ(memory("A100-64GB-SXM"), ByteCount(64LL << 30));
  EXPECT_EQ(memory("A100-80GB-SXM"), topologies::load_gpu("a100").memory);
}

TEST(StatedWords, NodesThatARowNames) {
  const auto node = [](const std::string& gpu, const std::string& network) {
    return row_plan(row_of({{"gpu", gpu}, {"inter_node", network}})).value().cluster.node.name;
  };
  EXPECT_EQ(node("A100-40GB-SXM", "4x100 Gb/s EFA (AWS p4d.24xlarge)"), "p4d");
  EXPECT_EQ(node("H100-80GB-SXM", "GCP a3-megagpu-8g"), "a3-mega");
  EXPECT_EQ(node("A100-80GB-SXM", "as the DGX H100's"), "dgx-a100");  // another GPU's node
  EXPECT_EQ(node("A100-80GB-SXM", "8x200Gb IB HDR"), "dgx-a100");
}

}  // namespace
}  // namespace orrery::studies
