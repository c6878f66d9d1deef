// SPDX-License-Identifier: Apache-2.0
// Rows of measurements as networks, clusters and plans.
#include <gmock/gmock.h>

#include "studies/rows/assumptions.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::row_of;

models::NetworkSpec network(const Changes& changes) {
  const Measurement row = row_of(changes);
  return row_network(row, *find_framework(row.framework)).value();
}

plan::Plan plan_of(const Changes& changes) { return row_plan(row_of(changes)).value(); }
std::string refused(const Changes& changes) { return row_plan(row_of(changes)).error(); }

TEST(RowNetworkTest, MegatronPadsTheVocabularyAndDropsOut) {
  const models::NetworkSpec spec = network({});
  EXPECT_EQ(spec.vocab, 50432);  // 50,257 to the next multiple of 128 x tp 2
  EXPECT_EQ(spec.hidden_dropout, 0.1);
  EXPECT_EQ(spec.ffn_hidden, 8192);
  EXPECT_EQ(network({{"framework", "torchtitan (FSDP2)"}}).vocab, 50257);
}

TEST(RowNetworkTest, FamiliesDecideNormPositionsAndActivation) {
  const models::NetworkSpec llama =
      network({{"model_family", "llama"}, {"ffn_hidden", "5632"}, {"kv_heads", "4"}});
  EXPECT_EQ(llama.norm, models::NormKind::RmsNorm);
  EXPECT_EQ(llama.position, models::PositionKind::Rotary);
  EXPECT_EQ(llama.activation, models::Activation::SwiGlu);
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.hidden_dropout, 0.0);
  EXPECT_EQ(network({{"model_family", "nemotron"}}).activation, models::Activation::SquaredRelu);
  EXPECT_EQ(network({{"gated_mlp", "1"}, {"ffn_hidden", "5632"}}).activation,
            models::Activation::SwiGlu);
}

TEST(RowNetworkTest, ReadsExpertsAndTheirCapacity) {
  const models::NetworkSpec spec = network({{"model_family", "mixtral"},
                                            {"experts", "8"},
                                            {"top_k", "2"},
                                            {"moe_ffn_hidden", "4096"},
                                            {"notes", "expert capacity factor 1.25 padded"}});
  EXPECT_EQ(spec.moe.experts, 8);
  EXPECT_EQ(spec.moe.ffn_hidden, 4096);
  EXPECT_EQ(spec.moe.capacity_factor, 1.25);
}

TEST(RowNetworkTest, SaysWhatIsMissing) {
  EXPECT_THAT(refused({{"model_family", "resnet"}}), HasSubstr("\"resnet\" is not modelled"));
  EXPECT_EQ(refused({{"vocab", ""}}), "vocab is not stated");
  EXPECT_EQ(refused({{"model_family", "llama"}, {"ffn_hidden", ""}}), "ffn_hidden is not stated");
}

TEST(RowClusterTest, FewerGpusThanANodeAreOneNode) {
  const auto cluster = row_cluster(row_of({{"gpus", "4"}}));
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  EXPECT_EQ(cluster->num_nodes, 1);
  EXPECT_EQ(cluster->node.gpus, 4);
}

TEST(RowClusterTest, TakesTheStatedNetwork) {
  const auto cluster =
      row_cluster(row_of({{"gpus", "64"}, {"inter_node", "4x100Gb RoCE per node"}}));
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  EXPECT_EQ(cluster->num_nodes, 8);
  EXPECT_EQ(cluster->node.scale_out.nics, 4);
  EXPECT_DOUBLE_EQ(cluster->node.scale_out.nic_bandwidth.value(), 12.5e9);
  EXPECT_EQ(cluster->node.scale_out.link, "roce");
}

TEST(RowClusterTest, TheRateOfANodeIsSharedByItsNics) {
  const auto cluster = row_cluster(row_of({{"gpus", "16"}, {"inter_node", "800 Gb/s per node"}}));
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  EXPECT_DOUBLE_EQ(cluster->node.scale_out.nic_bandwidth.value() * cluster->node.scale_out.nics,
                   100e9);
}

TEST(RowClusterTest, HalfOfADgx2IsOneBoard) {
  const auto cluster = row_cluster(row_of({{"gpu", "V100-32GB-SXM3 (DGX-2)"}, {"gpus", "8"}}));
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  EXPECT_EQ(cluster->node.gpus, 8);
  EXPECT_EQ(cluster->node.scale_up.boards, 1);
}

TEST(RowClusterTest, NvlinkDomainsSpanTrays) {
  const auto cluster =
      row_cluster(row_of({{"gpu", "GB200-186GB"}, {"gpus", "128"}, {"gpus_per_node", "4"}}));
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  EXPECT_EQ(cluster->node.gpus, 64);
  EXPECT_EQ(cluster->num_nodes, 2);
}

TEST(RowClusterTest, RefusesUnknownGpus) {
  EXPECT_THAT(refused({{"gpu", "abacus"}}), HasSubstr("unknown GPU \"abacus\""));
}

TEST(RowPlanTest, TakesDegreesScheduleAndBatch) {
  const plan::Plan plan = plan_of({});
  EXPECT_EQ(plan.pp, 2);
  EXPECT_EQ(plan.dp, 2);
  EXPECT_EQ(plan.blocks.front().layout.tp, 2);
  EXPECT_TRUE(plan.blocks.front().layout.sequence_parallel);
  EXPECT_EQ(plan.blocks.front().layout.zero_stage, 1);
  EXPECT_EQ(plan.num_micro_batches(), 8);
  EXPECT_EQ(plan.schedule, "1f1b");
  EXPECT_THAT(plan.stage_blocks, ElementsAre(13, 13));
}

TEST(RowPlanTest, EmbeddingAndLossMayTakeOneSlotEach) {
  const Changes row = {{"layers", "30"},
                       {"vpp", "8"},
                       {"schedule", "interleaved"},
                       {"notes",
                        "layers+2 divisible by pp*vpp: embedding and loss occupy one slot "
                        "each"}};
  EXPECT_EQ(plan_of(row).stage_blocks, std::vector<int>(16, 2));
}

// sail-sg/VocabularyParallelism, artifact/exp_one_host.csv: 32 layers on eight stages with 256k,
// 128k, 64k and 32k words leave 0, 2, 3 and 4 layers with the head.
TEST(RowPlanTest, LayersAreRedistributedAwayFromTheHead) {
  EXPECT_THAT(redistributed_stages(32, 8, 6.25), ElementsAre(5, 4, 4, 5, 5, 5, 5, 1));
  EXPECT_THAT(redistributed_stages(32, 8, 3.125), ElementsAre(5, 4, 4, 4, 4, 5, 5, 3));
  EXPECT_THAT(redistributed_stages(32, 8, 1.5625), ElementsAre(5, 4, 4, 4, 4, 4, 5, 4));
  EXPECT_THAT(redistributed_stages(32, 8, 0.78125), ElementsAre(5, 4, 4, 4, 4, 4, 4, 5));
  EXPECT_THAT(redistributed_stages(8, 2, 0.0), ElementsAre(5, 5));
}

TEST(RowPlanTest, OverlapInWords) {
  const auto execution = [](const std::string& text, const std::string& framework) {
    const Measurement row = row_of({{"overlap", text}, {"framework", framework}});
    return row_execution(row, *find_framework(framework));
  };
  const plan::Execution all =
      execution("grad RS+param AG overlap; p2p overlap; TP GEMM overlap", "NeMo/Megatron-Core");
  EXPECT_TRUE(all.overlap_grad_reduce && all.overlap_param_gather && all.overlap_p2p);
  EXPECT_TRUE(all.stream_tp);
  const plan::Execution some = execution(
      "grad RS+param AG overlap; p2p batched (not overlapped); no TP GEMM overlap", "NeMo");
  EXPECT_FALSE(some.overlap_p2p || some.stream_tp);
  const plan::Execution none = execution("none", "NeMo");
  EXPECT_FALSE(none.overlap_grad_reduce || none.overlap_param_gather || none.overlap_p2p);
  EXPECT_FALSE(execution("", "Megatron-LM").overlap_grad_reduce);
  EXPECT_TRUE(execution("backward: TP all-reduce overlapped with weight-gradient GEMM",
                        "Megatron-DeepSpeed")
                  .overlap_tp);
}

TEST(RowPlanTest, KernelsInWords) {
  const auto execution = [](const Changes& changes) {
    const Measurement row = row_of(changes);
    return row_execution(row, *find_framework(row.framework));
  };
  EXPECT_FALSE(execution({{"attention_impl", "unfused (fused softmax)"}}).fused_attention);
  EXPECT_FALSE(execution({{"precision", "fp16"}}).fp32_gradients);
  EXPECT_TRUE(execution({}).fp32_gradients);
  EXPECT_FALSE(execution({{"framework", "torchtitan (FSDP2)"}}).fused_kernels);
  EXPECT_TRUE(
      execution({{"framework", "torchtitan (FSDP2)"}, {"notes", "torch.compile"}}).fused_kernels);
  const Changes compiled = {{"framework", "torchtitan (FSDP2)"}, {"notes", "torch.compile"}};
  EXPECT_FALSE(execution(compiled).fused_cross_entropy);
  Changes later = compiled;
  later["year"] = "2025";
  EXPECT_TRUE(execution(later).fused_cross_entropy);
  EXPECT_FALSE(execution({{"framework", "Composer+PyTorch FSDP"},
                          {"overlap", "FSDP prefetch; mixed_precision=PURE"}})
                   .fp32_gradients);
}

TEST(RowPlanTest, KernelsOfTorchtitan) {
  const auto execution = [](Changes changes) {
    changes["framework"] = "torchtitan (FSDP2)";
    const Measurement row = row_of(changes);
    return row_execution(row, *find_framework(row.framework));
  };
  EXPECT_TRUE(execution({}).eager_elementwise);
  EXPECT_FALSE(execution({}).fused_projections || execution({}).regathers_inputs);
  EXPECT_FALSE(execution({{"notes", "torch.compile"}}).eager_elementwise);
  EXPECT_TRUE(execution({}).repeated_heads && execution({}).gathered_ring);
  // Compiled collectives stood right before what waits for them until April 2025.
  EXPECT_TRUE(execution({}).overlap_context);
  EXPECT_FALSE(execution({{"notes", "torch.compile"}, {"year", "2024"}}).overlap_context);
  EXPECT_TRUE(execution({{"notes", "torch.compile"}, {"year", "2025"}}).overlap_context);
  // float8 and asynchronous tensor parallelism need the compiler.
  EXPECT_TRUE(execution({{"precision", "fp8"}}).fused_kernels);
  EXPECT_TRUE(execution({{"overlap", "FSDP2 prefetch; async TP"}}).fused_kernels);
  EXPECT_TRUE(execution({{"precision", "fp8"}}).fp8_gathers);
  EXPECT_FALSE(
      execution({{"precision", "fp8"}, {"precision_detail", "torchao rowwise"}}).fp8_gathers);
}

TEST(RowPlanTest, PassesOverGradients) {
  const auto passes = [](const std::string& framework) {
    return find_framework(framework)->execution.gradient_passes;
  };
  EXPECT_EQ(passes("Megatron-LM (SC'21)"), 3);
  EXPECT_EQ(passes("Megatron-LM 0.14+TE2.11"), 4);
  EXPECT_EQ(passes("PyTorch FSDP"), 0);
  // The passes of an eager optimizer clip the gradients already.
  EXPECT_EQ(passes("torchtitan (FSDP2)"), 0);
  EXPECT_EQ(passes("Composer+PyTorch FSDP"), 0);
}

TEST(RowPlanTest, SaysWhatIsNotStatedOrModelled) {
  EXPECT_EQ(refused({{"micro_batch", ""}}), "micro_batch is not stated");
  EXPECT_EQ(refused({{"recompute", ""}}), "recompute is not stated");
  EXPECT_EQ(refused({{"schedule", ""}}), "schedule is not stated");
  EXPECT_EQ(refused({{"schedule", "interleaved"}, {"vpp", ""}}), "vpp is not stated");
  EXPECT_EQ(refused({{"schedule", "spiral"}}), "schedule \"spiral\" is not modelled");
  EXPECT_EQ(refused({{"variant", "spiral"}}), "variant \"spiral\" is not modelled");
  EXPECT_EQ(refused({{"recompute", "custom"}}), "custom recomputation is not modelled");
  EXPECT_EQ(refused({{"precision", "int7"}}), "unknown precision \"int7\"");
  EXPECT_THAT(refused({{"tp", "3"}}), HasSubstr("does not divide 8 GPUs"));
  EXPECT_THAT(refused({{"global_batch", "15"}}), HasSubstr("batch = 15"));
}

TEST(RowPlanTest, SlicesAreCountedAsMicroBatches) {
  const plan::Plan plan =
      plan_of({{"schedule", "terapipe"}, {"vpp", "1"}, {"num_microbatches", "32"}});
  EXPECT_EQ(plan.num_micro_batches(), 8);
  EXPECT_EQ(plan.slices, 4);
  EXPECT_EQ(refused({{"schedule", "terapipe"}, {"num_microbatches", ""}}),
            "the number of slices is not stated");
  EXPECT_EQ(refused({{"schedule", "terapipe"}, {"num_microbatches", "30"}}),
            "the number of slices is not stated");
}

TEST(AssumptionsTest, TeraPipeRunsEqualSlicesOfLayersAlone) {
  Measurement row = row_of({{"framework", "TeraPipe"},
                            {"schedule", "terapipe"},
                            {"vocab", ""},
                            {"confidence", "partial"}});
  const std::vector<std::string> notes = assume_defaults(row);
  EXPECT_EQ(row.vocab, 1);
  EXPECT_THAT(notes, ::testing::Contains("slices of equal length"));
  Measurement other = row_of({{"vocab", ""}, {"confidence", "partial"}});
  (void)assume_defaults(other);
  EXPECT_EQ(other.vocab, 50257);
}

TEST(AttentionKernelTest, FrameworksRanOlderKernels) {
  const plan::Plan best = plan_of({{"framework", "MaxText (JAX)"}});
  EXPECT_EQ(best.execution.flash_version, 0);
  const plan::Plan flash2 = plan_of({{"framework", "torchtitan (FSDP2)"}});
  EXPECT_EQ(flash2.execution.flash_version, 2);
  EXPECT_EQ(flash2.profile, best.profile);
  const plan::Plan triton = plan_of({{"framework", "Composer+PyTorch FSDP"}, {"year", "2023"}});
  EXPECT_EQ(triton.execution.flash_version, 1);
  EXPECT_EQ(triton.profile, best.profile);
}

TEST(RowPlanTest, ReadsHowManyRanksShareOptimizerStates) {
  const Changes group = {{"tp", "1"},
                         {"pp", "1"},
                         {"dp", "8"},
                         {"sequence_parallel", "0"},
                         {"notes", "optimizer-state sharding group = 4 ranks (intra-node)"}};
  EXPECT_EQ(plan_of(group).blocks.front().layout.shard_degree, 4);
  Changes all = group;
  all["notes"] = "optimizer-state sharding group = all DP ranks";
  EXPECT_EQ(plan_of(all).blocks.front().layout.shard_degree, 0);
}

TEST(RowExecutionTest, FrameworksDifferInTheKernelsAroundTheGemms) {
  const plan::Execution early = plan_of({{"framework", "Megatron-DeepSpeed"}}).execution;
  EXPECT_FALSE(early.fused_bias);
  EXPECT_FALSE(early.fused_grad_accumulation);
  EXPECT_GT(early.host_per_block.value(), 0.0);
  EXPECT_FALSE(early.blocking_launches);
  EXPECT_TRUE(plan_of({{"notes", "CUDA_LAUNCH_BLOCKING set"}}).execution.blocking_launches);
  const Changes once = {
      {"framework", "Megatron-DeepSpeed"}, {"num_microbatches", "1"}, {"global_batch", "2"}};
  EXPECT_TRUE(plan_of(once).execution.fused_grad_accumulation);
  EXPECT_FALSE(plan_of({{"framework", "NeMo/Megatron-Core 24.07"}}).execution.fused_cross_entropy);
  EXPECT_TRUE(plan_of({{"framework", "NeMo/Megatron-Core"}}).execution.compiled_loss);
  EXPECT_EQ(plan_of({{"framework", "InternEvo"}}).execution.flash_version, 1);
  EXPECT_TRUE(plan_of({{"framework", "Composer+PyTorch FSDP"}}).execution.eager_optimizer);
  EXPECT_TRUE(early.split_transfers);
  EXPECT_TRUE(early.cast_gradients);
  EXPECT_FALSE(plan_of({{"framework", "Megatron-DeepSpeed"}, {"precision", "fp16"}})
                   .execution.cast_gradients);
  EXPECT_FALSE(plan_of({{"framework", "NeMo/Megatron-Core"}}).execution.split_transfers);
  EXPECT_TRUE(plan_of({{"framework", "NeMo/Megatron-Core"}}).execution.bias_gradient_sums);
}

TEST(RowExecutionTest, FrameworksWaitForMessagesTheirOwnWay) {
  const plan::Execution deepspeed = plan_of({{"framework", "Megatron-DeepSpeed"}}).execution;
  EXPECT_TRUE(deepspeed.serial_exchanges && !deepspeed.synchronised_messages);
  const plan::Execution megatron = plan_of({{"framework", "Megatron-LM"}}).execution;
  EXPECT_TRUE(megatron.synchronised_messages && !megatron.serial_exchanges);
  const std::string fork = "Megatron-LM fork (VocabularyParallelism)";
  EXPECT_TRUE(plan_of({{"framework", fork}}).execution.synchronised_messages);
  EXPECT_TRUE(plan_of({{"framework", fork}, {"variant", "redis"}}).execution.synchronised_messages);
  EXPECT_FALSE(
      plan_of({{"framework", fork}, {"variant", "vocab-1"}}).execution.synchronised_messages);
}

TEST(RowExecutionTest, FrameworksMoveGradientsAndBoundariesTheirOwnWay) {
  EXPECT_TRUE(plan_of({{"framework", "InternEvo"}}).execution.allreduce_gradients);
  for (const char* precision : {"bf16", "fp16", "fp32"}) {
    EXPECT_TRUE(plan_of({{"framework", "Megatron-DeepSpeed"}, {"precision", precision}})
                    .execution.allreduce_gradients)
        << precision;
  }
  EXPECT_FALSE(plan_of({{"framework", "DeepSpeed ZeRO-3"}}).execution.allreduce_gradients);
  EXPECT_FALSE(plan_of({{"framework", "Megatron-Bridge 25.09"}}).execution.fp32_gradients);
  EXPECT_FALSE(plan_of({{"framework", "PyTorch FSDP (fms-fsdp)"}}).execution.fp32_gradients);
  EXPECT_TRUE(plan_of({{"framework", "PyTorch FSDP"}}).execution.flattens_gradients);
  EXPECT_TRUE(plan_of({{"framework", "torchtitan (FSDP2)"}}).execution.copies_gathered);
  const plan::Plan dt_fm =
      plan_of({{"framework", "DT-FM (custom GPipe)"}, {"overlap", "none"}, {"precision", "fp16"}});
  EXPECT_TRUE(dt_fm.execution.overlap_p2p && !dt_fm.execution.fp32_gradients);
  EXPECT_TRUE(network({{"framework", "Megatron-LM"}}).tied_embeddings);
  EXPECT_FALSE(network({{"framework", "DT-FM"}}).tied_embeddings);
  EXPECT_TRUE(
      plan_of({{"framework", "MegaScale"}, {"overlap", "TP/PP/DP overlap"}}).execution.stream_tp);
  const auto step = [](const std::string& text) {
    return plan_of({{"framework", "MegaScale"}, {"overlap", text}}).execution;
  };
  EXPECT_FALSE(step("+sliding window attention").stream_tp);
  EXPECT_TRUE(step("+PP overlap").stream_tp && step("+PP overlap").overlap_p2p);
  EXPECT_FALSE(step("+PP overlap").overlap_grad_reduce);
  EXPECT_TRUE(step("+misc").overlap_grad_reduce && step("+misc").overlap_p2p);
}

TEST(RowPlanTest, PipelinedFsdpShardsOptimizerStatesAlone) {
  Changes row = {{"framework", "torchtitan (FSDP2)"}, {"zero_stage", "3"}};
  const plan::Plan pipelined = plan_of(row);
  EXPECT_EQ(pipelined.blocks.front().layout.zero_stage, 1);
  EXPECT_TRUE(pipelined.execution.master_weights);
  EXPECT_FALSE(pipelined.execution.fp32_parameters);
  row["pp"] = "1";
  row["dp"] = "4";
  const plan::Plan alone = plan_of(row);
  EXPECT_EQ(alone.blocks.front().layout.zero_stage, 3);
  EXPECT_TRUE(alone.execution.fp32_parameters);
}

TEST(RowPlanTest, NotesMayStateTheStages) {
  const std::string notes = "layers per stage (embedding and head counted): ";
  EXPECT_THAT(plan_of({{"notes", notes + "12/14; more"}}).stage_blocks, ElementsAre(12, 14));
  for (const char* other : {"12/13", "26", "12/x", "12/-14", ""}) {  // not of this plan
    EXPECT_THAT(plan_of({{"notes", notes + other}}).stage_blocks, ElementsAre(13, 13)) << other;
  }
}

TEST(RowPlanTest, NvidiasContainersMultiplyInTf32) {
  Changes fp32 = {{"framework", "Megatron-DeepSpeed (Sailor fork)"}, {"precision", "fp32"}};
  EXPECT_EQ(plan_of(fp32).precision, DType::Tf32);
  fp32["gpu"] = "V100-32GB-SXM";  // has no TF32 to turn on
  EXPECT_EQ(plan_of(fp32).precision, DType::Fp32);
  EXPECT_EQ(plan_of({{"precision", "fp32"}}).precision, DType::Fp32);
}

TEST(RowExecutionTest, RunsOfOneScheduleMayHaveFactsOfTheirOwn) {
  const Changes usual = {{"framework", "VocabularyParallelism"}, {"variant", "vocab-1"}};
  EXPECT_TRUE(plan_of(usual).execution.fused_bias);
  Changes half = usual;
  half["schedule"] = "v-half";
  EXPECT_FALSE(plan_of(half).execution.fused_bias);
}

TEST(RowPlanTest, KwaiRecomputesAllButProductsAndOffloads) {
  const plan::BlockPlan layout =
      plan_of({{"recompute", "custom"},
               {"recompute_detail",
                "recompute norm+activation func; offload 10% of activations to host"}})
          .blocks.front()
          .layout;
  EXPECT_EQ(plan::recompute_text(layout), "norms+mlp-activation");
  EXPECT_DOUBLE_EQ(layout.offload.activations, 0.1);
}

TEST(RowExecutionTest, InferredAttentionYieldsToTheFrameworksScript) {
  const auto fused = [](const std::string& framework, const std::string& inferred) {
    const Measurement row = row_of(
        {{"framework", framework}, {"attention_impl", "flash"}, {"inferred_fields", inferred}});
    return row_execution(row, *find_framework(framework)).fused_attention;
  };
  EXPECT_FALSE(fused("Megatron-LM fork (zero-bubble)", "precision;attention_impl (script)"));
  EXPECT_TRUE(fused("Megatron-LM fork (zero-bubble)", "precision"));
  EXPECT_TRUE(fused("Megatron-LM", "attention_impl"));
}

}  // namespace
}  // namespace orrery::studies
