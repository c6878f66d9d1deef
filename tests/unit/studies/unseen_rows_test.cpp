// SPDX-License-Identifier: Apache-2.0
// Rows in words that no table of ours uses: other spellings, relatives of known frameworks and
// networks, GPUs without a usual node.
#include <gmock/gmock.h>

#include "studies/rows/flop_counting.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/row_choice.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/studies/testing.hpp"
#include "topologies/cluster.hpp"
#include "topologies/documents.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

models::NetworkSpec unseen_network(const Changes& changes) {
  const Measurement row = row_of(changes);
  return row_network(row, framework_of(row).facts).value();
}

TEST(UnseenRows, SpellingsDoNotChangeThePrediction) {
  const RowResult usual = predicted({});
  ASSERT_GT(usual.predicted, 0) << usual.skipped_because;
  for (const Changes& other : std::vector<Changes>{{{"model_family", "GPT-3"}},
                                                   {{"precision", "BFloat16"}},
                                                   {{"precision", "bf16-mixed"}},
                                                   {{"precision", "mixed bf16"}},
                                                   {{"schedule", "1F1B"}},
                                                   {{"schedule", "PipeDream-Flush"}},
                                                   {{"recompute", "False"}},
                                                   {{"recompute", "off"}},
                                                   {{"framework", "Megatron LM"}},
                                                   {{"variant", "n/a"}},
                                                   {{"measured_metric", "Iteration_s"}},
                                                   {{"gpu", "NVIDIA A100-SXM4-80GB"}},
                                                   {{"gpu", "A100 80GB (inferred)"}},
                                                   {{"gpu", "A100-80G"}},
                                                   {{"gpu", "HGX A100 SXM 80GB"}}}) {
    const RowResult same = predicted(other);
    EXPECT_EQ(same.predicted, usual.predicted) << same.skipped_because;
  }
}

TEST(UnseenRows, UnknownFrameworksAreTakenAsARelative) {
  const auto relative = [](const Changes& changes) {
    const RowFramework framework = framework_of(row_of(changes));
    EXPECT_TRUE(framework.stands_in);
    return std::string(framework.facts.name);
  };
  EXPECT_EQ(relative({{"framework", "Levanter (JAX)"}}), "MaxText");
  EXPECT_EQ(relative({{"framework", "EasyLM"}}), "MaxText");
  EXPECT_EQ(relative({{"framework", "llm-foundry 0.8"}}), "Composer");
  EXPECT_EQ(relative({{"framework", "GPT-NeoX"}, {"zero_stage", "1"}}), "Megatron-DeepSpeed");
  EXPECT_EQ(relative({{"framework", "DeepSpeed 0.14"}, {"zero_stage", "3"}}), "DeepSpeed ZeRO-3");
  EXPECT_EQ(relative({{"framework", "DeepSpeed 0.14"}, {"zero_stage", "1"}}), "Megatron-DeepSpeed");
  EXPECT_EQ(relative({{"framework", "Abacus"}, {"tp", "2"}}), "Megatron-LM");
  EXPECT_EQ(relative({{"framework", "Abacus"}, {"tp", "1"}, {"pp", "1"}, {"zero_stage", "3"}}),
            "PyTorch FSDP");
  EXPECT_EQ(relative({{"framework", "Abacus"}, {"tp", "1"}, {"pp", "1"}, {"zero_stage", "0"}}),
            "PyTorch DDP");
  EXPECT_FALSE(framework_of(row_of({{"framework", "torchtitan v0.2"}})).stands_in);

  const RowResult result = predicted({{"framework", "Abacus"}, {"tp", "2"}, {"dp", "4"}});
  EXPECT_GT(result.predicted, 0) << result.skipped_because;
  EXPECT_THAT(result.assumed, Contains("framework Abacus as Megatron-LM"));
  EXPECT_THAT(predicted({}).assumed, IsEmpty());
}

// Releases of Megatron-Core have layers of TransformerEngine, older ones of Megatron-LM have not.
TEST(UnseenRows, ReleasesOfMegatron) {
  const auto fused = [](const std::string& framework) {
    return framework_of(row_of({{"framework", framework}})).facts.execution.fused_bias;
  };
  EXPECT_TRUE(fused("Megatron-LM 0.14+TE2.11"));
  EXPECT_TRUE(fused("Megatron-LM 0.12"));
  EXPECT_TRUE(fused("Megatron-LM core_r0.9"));
  EXPECT_TRUE(fused("Megatron-Core r0.8.0"));
  EXPECT_FALSE(fused("Megatron-LM v2.6"));
  EXPECT_FALSE(fused("Megatron-LM"));
}

TEST(UnseenRows, FamiliesOfKnownBlocks) {
  const auto of = [](const std::string& family) {
    return unseen_network({{"model_family", family}, {"ffn_hidden", "8192"}});
  };
  const auto mixture = [](const std::string& family) {
    return unseen_network(
        {{"model_family", family}, {"ffn_hidden", "8192"}, {"experts", "8"}, {"top_k", "2"}});
  };
  EXPECT_EQ(of("Llama-3.1").activation, models::Activation::SwiGlu);
  EXPECT_EQ(of("mistral").norm, models::NormKind::RmsNorm);
  EXPECT_EQ(of("OPT").activation, models::Activation::Relu);
  EXPECT_EQ(of("bloom").position, models::PositionKind::Alibi);
  EXPECT_TRUE(of("gpt-neox").parallel_block);
  EXPECT_TRUE(of("qwen2.5").attention_bias);
  EXPECT_FALSE(of("qwen2.5").attention_output_bias);
  EXPECT_TRUE(of("Qwen3").qk_norm);
  EXPECT_FALSE(mixture("qwen-moe").attention_bias);
  EXPECT_TRUE(of("bert").embedding_norm);
  EXPECT_FALSE(of("bert").causal);
  EXPECT_GT(mixture("deepseek-v3").mla.kv_lora_rank, 0);
  EXPECT_EQ(mixture("deepseek-moe").mla.kv_lora_rank, 0);
  EXPECT_EQ(mixture("DeepSeek-V2-Lite").mla.q_lora_rank, 0);
  EXPECT_GT(mixture("DeepSeek-V2-Lite").mla.kv_lora_rank, 0);
  EXPECT_EQ(mixture("Moonlight").mla, mixture("DeepSeek-V2-Lite").mla);
  EXPECT_TRUE(mixture("OLMoE").qk_norm);
  EXPECT_FALSE(of("phi-4").parallel_block);
  EXPECT_EQ(of("smollm").activation, models::Activation::SwiGlu);
  EXPECT_TRUE(of("GLM-4.5").attention_bias);
  EXPECT_TRUE(mixture("MiniMax-M2").qk_norm);
  EXPECT_TRUE(
      unseen_network({{"model_family", "qwen"}, {"model_name", "Qwen3-8B"}, {"ffn_hidden", "8192"}})
          .qk_norm);
  EXPECT_FALSE(unseen_network({{"model_family", "gpt"}, {"model_name", "llama-like"}}).qk_norm);
  for (const std::string family : {"nemotron-h", "mamba"}) {
    const Measurement other = row_of({{"model_family", family}});
    EXPECT_FALSE(row_network(other, framework_of(other).facts).has_value()) << family;
  }
  const Measurement resnet = row_of({{"model_family", "resnet"}});
  EXPECT_FALSE(row_network(resnet, framework_of(resnet).facts).has_value());
}

TEST(UnseenRows, DecodersOfUnknownFamiliesAreTakenAsARelative) {
  const RowResult gpt = predicted({{"model_family", "Abacus"}});
  EXPECT_EQ(gpt.predicted, predicted({}).predicted) << gpt.skipped_because;
  EXPECT_THAT(gpt.assumed, Contains("network family abacus as gpt"));
  const Changes widths = {{"gated_mlp", "1"}, {"ffn_hidden", "5632"}};
  Changes gated = widths;
  gated["model_family"] = "Abacus";
  EXPECT_EQ(unseen_network(gated).norm, models::NormKind::RmsNorm);
  EXPECT_THAT(predicted(gated).assumed, Contains("network family abacus as llama"));
  for (const std::string family : {"whisper", "rwkv", "switch-base-128", "wide-resnet", "jamba"}) {
    EXPECT_THAT(predicted({{"model_family", family}}).skipped_because,
                ::testing::HasSubstr("is not modelled"));
  }
  EXPECT_THAT(predicted({{"model_family", "Abacus"}, {"heads", ""}}).skipped_because,
              ::testing::HasSubstr("is not modelled"));
}

// What Megatron-LM does beside its products came in the course of 2021 and 2022.
TEST(UnseenRows, MegatronOfTheYear) {
  const auto of = [](const std::string& year) {
    return framework_of(row_of({{"framework", "Megatron-LM"}, {"year", year}})).facts.execution;
  };
  EXPECT_FALSE(of("2020").overlap_tp);
  EXPECT_FALSE(of("2021").fused_grad_accumulation);
  EXPECT_TRUE(of("2022").overlap_tp);
  EXPECT_TRUE(of("2024").fused_grad_accumulation);
  EXPECT_FALSE(of("2024").fused_bias);
  EXPECT_TRUE(of("2025").fused_bias);
  EXPECT_TRUE(of("").overlap_tp);
}

TEST(UnseenRows, AttentionIsUnfusedWhereNoFusedKernelWas) {
  const auto fused = [](const Changes& changes) {
    const Measurement row = row_of(changes);
    return row_execution(row, framework_of(row).facts).fused_attention;
  };
  EXPECT_FALSE(fused({{"attention_impl", ""}, {"year", "2021"}}));
  EXPECT_FALSE(fused({{"attention_impl", ""}, {"gpu", "V100-16GB-SXM"}}));
  EXPECT_TRUE(fused({{"attention_impl", ""}, {"year", "2023"}}));
  EXPECT_TRUE(fused({{"attention_impl", ""}}));
  EXPECT_TRUE(fused({{"attention_impl", "xformers"}, {"gpu", "V100-16GB-SXM"}}));
  for (const std::string words :
       {"Eager", "naive", "torch", "local", "unfused", "materialised scores"}) {
    EXPECT_FALSE(fused({{"attention_impl", words}})) << words;
  }
}

// Commands take names alone, rows what sources write.
TEST(UnseenRows, GpusInOtherWords) {
  EXPECT_EQ(topologies::find_gpu_in_words("H200 SXM 141GB"), "h200-sxm5-141gb");
  EXPECT_EQ(topologies::find_gpu_in_words("Cloud TPU v4"), "tpu-v4");
  EXPECT_EQ(topologies::find_gpu_in_words("V100 32GB SXM3"), "v100-sxm3-32gb");
  EXPECT_EQ(topologies::find_gpu_in_words("V100 PCIe 32GB"), "v100-pcie-32gb");
  EXPECT_EQ(topologies::find_gpu_in_words("A800 PCIe 80GB"), "a100-pcie-80gb");
  EXPECT_EQ(topologies::find_gpu_in_words("AMD MI100"), "mi100-32gb");
  EXPECT_EQ(topologies::find_gpu_in_words("NVIDIA L40"), "l40-48gb");
  EXPECT_EQ(topologies::find_gpu_in_words("DGX"), "");
  EXPECT_EQ(topologies::find_gpu_name("h100-sxm5-80g"), "");
}

TEST(UnseenRows, EveryGpuWithANodeHasAUsualOne) {
  for (const std::string& node : topologies::node_names()) {
    const std::string gpu = topologies::load_cluster(node + ":1").gpu.name;
    const std::string usual = usual_node(gpu);
    ASSERT_FALSE(usual.empty()) << gpu;
    EXPECT_EQ(topologies::load_cluster(usual + ":1").gpu.name, gpu);
  }
  EXPECT_EQ(usual_node("tpu-v4"), "");
}

TEST(UnseenRows, PeaksThatTheSourceStates) {
  const Changes mfu = {{"measured_metric", "mfu"},
                       {"measured_value", "0.5"},
                       {"gpu", "B200"},
                       {"flops_convention", "Megatron model FLOPs; peak bf16 2250e12"}};
  const auto time = [](Changes changes, const std::string& convention) {
    changes["flops_convention"] = convention;
    const Measurement row = row_of(changes);
    const auto plan = row_plan(row);
    return measured_target(row, plan.value().network).value().value;
  };
  const double stated = time(mfu, "Megatron model FLOPs; peak bf16 2250e12");
  EXPECT_NEAR(stated * 2, time(mfu, "Megatron model FLOPs; peak 1125e12"), 1e-9 * stated);
  EXPECT_NEAR(stated, time(mfu, "Megatron model FLOPs"), 1e-9 * stated);  // the data sheet's
}

double counted(const Changes& changes) {
  const Measurement row = row_of(changes);
  return counted_flops(row, row_plan(row).value().network).value();
}

TEST(UnseenRows, WaysOfCountingFlopsInWords) {
  const auto words = [](const std::string& convention, const std::string& recompute = "none") {
    return counted({{"measured_metric", "tflops_per_gpu"},
                    {"params_b", "1.3"},
                    {"recompute", recompute},
                    {"flops_convention", convention}});
  };
  const double model = words("Megatron model FLOPs");
  EXPECT_EQ(words("model FLOPs"), model);
  EXPECT_EQ(words("MFU, peak 312e12"), model);
  const double tokens = 16.0 * 2048;
  EXPECT_DOUBLE_EQ(words("6ND"), 6 * 1.3e9 * tokens);
  EXPECT_DOUBLE_EQ(words("8*N*D"), 8 * 1.3e9 * tokens);
  EXPECT_GT(words("6*N + 12*L*h*s"), words("6*N*D"));
  EXPECT_EQ(words("hardware FLOPs incl. recompute", "full"), words("SC21", "full"));
  EXPECT_LT(words("hardware FLOPs"), words("SC21"));  // nothing was recomputed
  const Measurement unknown = row_of({{"measured_metric", "tflops_per_gpu"},
                                      {"recompute", "full"},
                                      {"flops_convention", "a profiler"}});
  EXPECT_FALSE(counted_flops(unknown, row_plan(unknown).value().network).has_value());
}

// States are shared by fewer ranks than all.
TEST(UnseenRows, GroupsOfSharding) {
  const auto shards = [](Changes changes) {
    changes.merge(Changes{{"framework", "PyTorch FSDP"},
                          {"gpus", "64"},
                          {"tp", "1"},
                          {"pp", "1"},
                          {"dp", "64"},
                          {"zero_stage", "3"},
                          {"sequence_parallel", "0"},
                          {"num_microbatches", "1"},
                          {"global_batch", "64"}});
    return row_plan(row_of(changes)).value().layout_of(1).shard_degree;
  };
  EXPECT_EQ(shards({}), 0);
  EXPECT_EQ(shards({{"notes", "HSDP: shard group 16"}}), 16);
  EXPECT_EQ(shards({{"overlap", "FSDP prefetch; HSDP"}}), 8);
  EXPECT_EQ(shards({{"overlap", "XLA latency hiding; FSDP in node, DP across nodes"}}), 8);
  EXPECT_EQ(shards({{"notes", "HYBRID_SHARD"}}), 8);
  EXPECT_EQ(shards({{"notes", "FSDP group 64"}}), 0);
}

TEST(UnseenRows, FlagsInWords) {
  EXPECT_EQ(row_of({{"sequence_parallel", "False"}}).sequence_parallel, false);
  EXPECT_EQ(row_of({{"sequence_parallel", "yes"}}).sequence_parallel, true);
  EXPECT_EQ(row_of({{"sequence_parallel", "N/A"}}).sequence_parallel, std::nullopt);
}

TEST(UnseenRows, UtilisationIsAShare) {
  EXPECT_THAT(
      predicted({{"measured_metric", "iteration_s"}, {"measured_value", "1e-9"}}).skipped_because,
      ::testing::HasSubstr("at the peak rate of"));
  EXPECT_EQ(predicted({{"measured_metric", "mfu"}, {"measured_value", "1.2"}}).skipped_because,
            "mfu 1.2 is above 1");
}

TEST(UnseenRows, PartialRowsRunInSixteenBits) {
  const Changes partial = {{"confidence", "partial"}, {"precision", ""}};
  EXPECT_THAT(predicted(partial).assumed, Contains("precision bf16"));
  Changes volta = partial;
  volta["gpu"] = "V100-16GB-SXM";
  EXPECT_THAT(predicted(volta).assumed, Contains("precision fp16"));
  EXPECT_THAT(predicted({{"precision", ""}}).skipped_because, ::testing::HasSubstr("precision"));
}

TEST(UnseenRows, MicroscalingIsTakenAsFp8) {
  const RowResult result = predicted({{"precision", "mxfp8"}, {"gpu", "B200-180GB-SXM"}});
  EXPECT_GT(result.predicted, 0) << result.skipped_because;
  EXPECT_THAT(result.assumed, Contains("precision mxfp8 as fp8"));
}

// FSDP and what shards by default do so where degrees are blank.
TEST(UnseenRows, FrameworksThatShardDoSoWithoutDegrees) {
  for (const std::string framework :
       {"PyTorch FSDP", "PyTorch HSDP", "DeepSpeed ZeRO-3", "MaxText", "torchtitan"}) {
    Measurement row = row_of({{"framework", framework},
                              {"confidence", "partial"},
                              {"tp", ""},
                              {"pp", ""},
                              {"dp", ""},
                              {"zero_stage", ""}});
    std::vector<std::string> assumed;
    const auto plan = chosen_plan(row, assumed);
    ASSERT_TRUE(plan) << framework << ": " << plan.error();
    EXPECT_EQ(plan->blocks.front().layout.zero_stage, 3) << framework;
  }
}

TEST(UnseenRows, NetworksThatOnlyTheirNamesTell) {
  const auto reason = [](const std::string& family, const std::string& name) {
    return predicted({{"model_family", family}, {"model_name", name}}).skipped_because;
  };
  EXPECT_EQ(reason("falcon", "Falcon-Mamba-7B"), "network \"Falcon-Mamba-7B\" is not modelled");
  EXPECT_EQ(reason("llama", "LLaVA-1.5-7B"), "network \"LLaVA-1.5-7B\" is not modelled");
  EXPECT_EQ(reason("jamba", "Jamba"), "network family \"jamba\" is not modelled");
  EXPECT_FALSE(
      row_plan(row_of({{"model_family", "gpt"}, {"model_name", "BERT-2B"}}))->network.spec.causal);
}

TEST(UnseenRows, SeveralGpusAreNoOne) {
  for (const std::string text : {"A100-40GB + V100-16GB", "A100-80GB/V100", "4x A100 + 4x V100"}) {
    EXPECT_EQ(stated_gpu(text), "") << text;
  }
  EXPECT_EQ(stated_gpu("A100 (p4d.24xlarge)"), "a100-sxm4-40gb");
  EXPECT_EQ(stated_gpu("A100-80GB (p4d.24xlarge)"), "a100-sxm4-80gb");
  EXPECT_EQ(stated_gpu("H100/H800"), "h100-sxm5-80gb");
}

// Papers print 1F1B beside the number of model chunks.
TEST(UnseenRows, ChunksOfOneForwardOneBackward) {
  const RowResult row = predicted({{"pp", "2"}, {"dp", "4"}, {"schedule", "1f1b"}, {"vpp", "2"}});
  EXPECT_THAT(row.assumed, Contains("schedule 1f1b with vpp 2 as interleaved"));
  EXPECT_EQ(
      row.predicted,
      predicted({{"pp", "2"}, {"dp", "4"}, {"schedule", "interleaved"}, {"vpp", "2"}}).predicted);
  EXPECT_THAT(predicted({{"pp", "2"}, {"dp", "4"}, {"schedule", "gpipe"}, {"vpp", "2"}}).assumed,
              Contains("schedule gpipe without vpp 2"));
}

TEST(UnseenRows, WordsForAllOrNothing) {
  const auto recompute = [](const std::string& cell) {
    return row_of({{"recompute", cell}}).recompute;
  };
  EXPECT_EQ(recompute("enabled"), "full");
  EXPECT_EQ(recompute("activation recomputation"), "full");
  EXPECT_EQ(recompute("disabled"), "none");
  const auto attention = [](const std::string& cell) {
    const Measurement row = row_of({{"attention_impl", cell}});
    return row_execution(row, framework_of(row).facts).fused_attention;
  };
  EXPECT_FALSE(attention("flash disabled"));
  EXPECT_FALSE(attention("no flash attention"));
  EXPECT_TRUE(attention("flash"));
  EXPECT_EQ(row_of({{"zero_stage", "DeepSpeed ZeRO3"}}).zero_stage, 3);
  EXPECT_EQ(row_of({{"vpp", "0"}}).vpp, std::nullopt);
}

TEST(UnseenRows, OptimizersOtherThanAdam) {
  const auto memory = [](const std::string& notes) {
    const RowResult row = predicted({{"measured_metric", "peak_mem_gib"},
                                     {"measured_value", "60"},
                                     {"zero_stage", "0"},
                                     {"notes", notes}});
    return row.predicted;
  };
  const double adam = memory("Adam");
  EXPECT_EQ(adam, memory(""));
  EXPECT_GT(adam, memory("SGD optimizer with momentum"));
  EXPECT_GT(memory("Lion"), memory("PagedAdamW 8-bit"));
  EXPECT_GE(memory("8bit AdamW"), memory("SGD optimizer without momentum"));
  EXPECT_EQ(memory("Adafactor"), memory("SGD"));
  EXPECT_THAT(predicted({{"variant", "adafactor"}}).assumed,
              Contains("Adafactor: 0 B of states a parameter"));
}

// What no GPU of the row can have measured is not compared; what does not fit by our count says so.
TEST(UnseenRows, FiguresBeyondTheCard) {
  const auto reason = [](const std::string& metric, const std::string& value) {
    return predicted({{"measured_metric", metric},
                      {"measured_value", value},
                      {"flops_convention", "model FLOPs"}})
        .skipped_because;
  };
  EXPECT_THAT(reason("peak_mem_gib", "200"), ::testing::HasSubstr("measured 200 GiB of memory"));
  EXPECT_THAT(reason("tflops_per_gpu", "400"), ::testing::HasSubstr("measured 400 TFLOP/s"));
  EXPECT_EQ(reason("tflops_per_gpu", "200"), "");
  const RowResult large = predicted({{"layers", "400"}, {"zero_stage", "0"}});
  EXPECT_THAT(large.assumed, Contains(::testing::HasSubstr("memory beyond the card")));
}

}  // namespace
}  // namespace orrery::studies
