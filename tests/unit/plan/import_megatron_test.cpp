// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

Plan import(const std::string& text, const std::string& cluster = "dgx-a100:2",
            const models::Network* network = nullptr) {
  return find_importer("megatron").read(text, "run.sh", topologies::load_cluster(cluster), network);
}

std::string problem(const std::string& text, const models::Network* network = nullptr) {
  try {
    (void)import(text, "dgx-a100:2", network);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

const std::string kShape =
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
    "--micro-batch-size 1 --global-batch-size 64 --vocab-size 50000 ";
const std::string kBase = kShape + "--bf16 ";

// In the form of Megatron-LM's example for GPT-3 175B.
const std::string kScript =
    "#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\nGPUS_PER_NODE=8\nNUM_NODES=128\n"
    "WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))\nDATA_PATH=$5 #<Specify path>\n"
    "DISTRIBUTED_ARGS=(\n    --nproc_per_node $GPUS_PER_NODE \n    --nnodes $NUM_NODES \n)\n"
    "GPT_MODEL_ARGS=(\n    --num-layers 96 \n    --hidden-size 12288 \n"
    "    --num-attention-heads 96 \n    --seq-length 2048 \n"
    "    --max-position-embeddings 2048 \n    --attention-backend auto # flash/fused\n)\n"
    "TRAINING_ARGS=(\n    --micro-batch-size 1 \n    --global-batch-size 1536 \n"
    "    --rampup-batch-size 16 16 5859375 \n    --fp16\n    --lr 6.0e-5 \n)\n"
    "MODEL_PARALLEL_ARGS=(\n\t--tensor-model-parallel-size 8 \n"
    "\t--pipeline-model-parallel-size 16 \n)\n"
    "DATA_ARGS=(\n    --data-path $DATA_PATH \n    --vocab-file $3 \n    --merge-file $4 \n)\n"
    "torchrun ${DISTRIBUTED_ARGS[@]} examples/pretrain_gpt.py \\\n    ${GPT_MODEL_ARGS[@]} \\\n"
    "    ${TRAINING_ARGS[@]} \\\n    ${MODEL_PARALLEL_ARGS[@]} \\\n    ${DATA_ARGS[@]}\n";

TEST(MegatronImport, ReadsAScriptWithArrays) {
  const Plan plan = import(kScript, "dgx-a100:128");
  EXPECT_EQ(plan.network.spec.layers, 96);
  EXPECT_EQ(plan.network.spec.ffn_hidden, 4 * 12288);
  EXPECT_EQ(plan.network.spec.head_dim, 128);
  EXPECT_EQ(plan.network.spec.vocab, 51200);  // 50,257 rounded up to 128 x tp
  EXPECT_EQ(plan.layout_of(0).tp, 8);
  EXPECT_EQ(std::tuple(plan.pp, plan.dp), std::tuple(16, 8));
  EXPECT_EQ(plan.batch, 1536);
  EXPECT_EQ(plan.precision, DType::Fp16);
  EXPECT_FALSE(plan.execution.fp32_gradients);
  EXPECT_FALSE(plan.execution.overlap_grad_reduce);
  EXPECT_EQ(plan.layout_of(0).zero_stage, 0);
  EXPECT_EQ(plan.schedule, "1f1b");
}

// Experts have ranks of their own, in which context parallelism does not occur.
TEST(MegatronImport, SpreadsExpertsOverContextRanks) {
  const std::string experts = kBase + "--num-experts 8 --expert-model-parallel-size 8 ";
  const Plan folded = import(experts + "--context-parallel-size 2");
  EXPECT_EQ(folded.layout_of(0).expert_cp, 1);
  EXPECT_EQ(folded.layout_of(0).ep, 8);
  EXPECT_EQ(import(experts).layout_of(0).expert_cp, 0);
}

// How tokens reach their experts, and what comes back from an exported plan.
TEST(MegatronImport, ReadsHowTokensTravel) {
  const std::string experts = kBase +
                              "--num-experts 16 --moe-router-topk 4 --moe-router-num-groups 4 "
                              "--moe-router-group-topk 2 --expert-model-parallel-size 8 --swiglu ";
  const std::string combined =
      "--moe-token-dispatcher-type flex --moe-enable-deepep "
      "--pipeline-model-parallel-size 2 "
      "--num-layers-per-virtual-pipeline-stage 2 "
      "--overlap-moe-expert-parallel-comm ";
  const Plan plain = import(experts);
  EXPECT_EQ(plain.network.spec.moe.groups, 4);
  EXPECT_EQ(plain.network.spec.moe.groups_per_token, 2);
  EXPECT_FALSE(plain.execution.deduplicated_dispatch);
  const Plan plan = import(experts + combined);
  EXPECT_TRUE(plan.execution.deduplicated_dispatch);
  EXPECT_EQ(plan.schedule, "combined-1f1b");
  EXPECT_EQ(plan.chunks, 2);
  const Plan again = import(find_exporter("megatron").write(plan));
  EXPECT_EQ(again.schedule, "combined-1f1b");
  EXPECT_TRUE(again.execution.deduplicated_dispatch);
  EXPECT_FALSE(again.execution.fused_permutation);
  Plan hybrid = plan;
  hybrid.execution.fused_permutation = true;
  EXPECT_TRUE(import(find_exporter("megatron").write(hybrid)).execution.fused_permutation);
  EXPECT_EQ(again.network.spec.moe, plan.network.spec.moe);
  EXPECT_TRUE(import(experts + "--moe-shared-expert-intermediate-size 512 "
                               "--moe-shared-expert-overlap")
                  .execution.overlap_shared_experts);
  EXPECT_THAT(problem(experts + "--pipeline-model-parallel-size 2 "
                                "--overlap-moe-expert-parallel-comm"),
              HasSubstr("one chunk in a pipeline"));
  EXPECT_THAT(problem(experts + "--delay-wgrad-compute"),
              HasSubstr("add --overlap-moe-expert-parallel-comm"));
}

// TransformerEngine exchanges heads evenly: as many of keys and values as there are ranks.
TEST(MegatronImport, RefusesUlyssesOverMoreRanksThanKeysAndValues) {
  const std::string grouped =
      kBase + "--group-query-attention --num-query-groups 4 --cp-comm-type a2a ";
  EXPECT_EQ(import(grouped + "--context-parallel-size 4").layout_of(0).context,
            ContextParallel::Ulysses);
  EXPECT_THAT(
      problem(grouped + "--context-parallel-size 8"),
      AllOf(HasSubstr("--cp-comm-type"),
            HasSubstr(
                "no Ulysses with key and value heads of a tensor rank that cp does not divide")));
  Plan plan = import(grouped + "--context-parallel-size 4");
  for (BlockRun& run : plan.blocks) {
    run.layout.cp = 8;
  }
  EXPECT_THROW(find_exporter("megatron").write(plan), Error);
}

const std::string kExperts = kShape + "--num-experts 16 ";

// What Megatron-LM's configuration refuses is refused by the name of the flag that asks for it.
TEST(MegatronImport, RefusesJoinedPassesThatMegatronRefuses) {
  const std::string joined = kExperts + "--overlap-moe-expert-parallel-comm ";
  const std::string ep = "--expert-model-parallel-size 8 ";
  const auto refused = [](const char* reason) {
    return AllOf(HasSubstr("--overlap-moe-expert-parallel-comm"), HasSubstr(reason));
  };
  EXPECT_EQ(problem(joined + ep + "--bf16 --recompute-activations"), "");
  EXPECT_THAT(problem(kBase + "--overlap-moe-expert-parallel-comm"),
              refused("without expert parallelism"));
  EXPECT_THAT(problem(joined + "--bf16"), refused("without expert parallelism"));
  EXPECT_THAT(problem(joined + ep), refused("in fp32"));
  EXPECT_THAT(problem(joined + ep + "--bf16 --recompute-granularity full"),
              refused("full recomputation"));
  EXPECT_THAT(problem(joined + ep +
                      "--bf16 --recompute-granularity full --recompute-method block "
                      "--recompute-num-layers 2"),
              refused("full recomputation"));
  EXPECT_THAT(problem(joined + ep +
                      "--bf16 --moe-shared-expert-intermediate-size 512 "
                      "--moe-shared-expert-overlap"),
              refused("shared experts"));
}

TEST(MegatronImport, ReadsKernelsOfExperts) {
  const std::string experts = kExperts + "--bf16 --expert-model-parallel-size 8 ";
  const std::string fp8 = experts + "--fp8-format hybrid ";
  const auto in_fp8 = [&](const std::string& text) {
    return import(fp8 + text, "hgx-h100:2").execution.expert_padding;
  };
  const Execution plain = import(experts).execution;
  EXPECT_TRUE(plain.expert_kernels);
  EXPECT_FALSE(plain.expert_padding);
  EXPECT_FALSE(plain.fused_router);
  EXPECT_TRUE(import(experts + "--moe-router-fusion").execution.fused_router);
  EXPECT_TRUE(in_fp8(""));
  EXPECT_FALSE(in_fp8("--moe-router-padding-for-fp8"));
  EXPECT_FALSE(in_fp8("--moe-expert-capacity-factor 1.0"));
  EXPECT_FALSE(import(experts + "--transformer-impl local").execution.expert_kernels);
  EXPECT_FALSE(import(kBase + "--moe-router-fusion").execution.fused_router);
  EXPECT_FALSE(import(kBase).execution.expert_kernels);
}

TEST(MegatronImport, ReadsAndWritesWhatGraphsReplay) {
  const std::string graphs = "--cuda-graph-impl transformer_engine ";
  const auto scope = [&](const std::string& text) {
    const Plan read = import(kExperts + "--bf16 --moe-router-fusion " + graphs + text);
    const Plan plan = import(find_exporter("megatron").write(read));
    EXPECT_TRUE(plan.execution.cuda_graphs && plan.execution.fused_router) << text;
    return plan.execution.graph_scope;
  };
  EXPECT_EQ(scope("--cuda-graph-scope moe_router"), GraphScope::Router);
  EXPECT_EQ(scope("--cuda-graph-scope attn moe_router moe_preprocess"), GraphScope::Attention);
  EXPECT_EQ(scope("--cuda-graph-scope full_iteration"), GraphScope::Layer);
  EXPECT_EQ(scope("--moe-expert-capacity-factor 1.0"), GraphScope::Layer);
  EXPECT_EQ(scope(""), GraphScope::Dense);
  EXPECT_TRUE(import(kBase + "--enable-cuda-graph").execution.cuda_graphs);
  EXPECT_FALSE(import(kBase + "--cuda-graph-impl none").execution.cuda_graphs);
  EXPECT_THAT(problem(kBase + graphs + "--cuda-graph-scope attn"),
              AllOf(HasSubstr("--cuda-graph-scope"), HasSubstr("not modelled")));
  EXPECT_THAT(problem(kExperts + "--bf16 " + graphs + "--cuda-graph-scope attn"),
              AllOf(HasSubstr("--cuda-graph-scope"), HasSubstr("attn moe_router")));
}

TEST(MegatronImport, ReadsTheFlexDispatcher) {
  const std::string experts = kExperts + "--bf16 --expert-model-parallel-size 8 ";
  const std::string flex = "--moe-token-dispatcher-type flex ";
  const auto deduplicated = [&](const std::string& text) {
    return import(experts + text).execution.deduplicated_dispatch;
  };
  EXPECT_TRUE(deduplicated(flex + "--moe-flex-dispatcher-backend deepep"));
  EXPECT_TRUE(deduplicated(flex));  // the default backend
  EXPECT_FALSE(deduplicated("--moe-token-dispatcher-type alltoall"));
  EXPECT_FALSE(deduplicated("--moe-flex-dispatcher-backend deepep"));  // of no other dispatcher
  const std::string hybrid = flex + "--moe-flex-dispatcher-backend hybridep";
  EXPECT_TRUE(deduplicated(hybrid));
  EXPECT_TRUE(import(experts + hybrid).execution.fused_permutation);
  EXPECT_FALSE(import(experts + flex).execution.fused_permutation);
  EXPECT_THAT(problem(experts + flex + "--moe-flex-dispatcher-backend other"),
              AllOf(HasSubstr("--moe-flex-dispatcher-backend"), HasSubstr("not modelled")));
  EXPECT_THAT(problem(experts + "--moe-enable-deepep"),
              AllOf(HasSubstr("--moe-enable-deepep"), HasSubstr("type flex")));
  EXPECT_THAT(problem(kExperts + "--bf16 --moe-enable-deepep " + flex),
              AllOf(HasSubstr("--moe-token-dispatcher-type"), HasSubstr("tp x ep > 1")));
  EXPECT_THAT(problem(experts + flex +
                      "--moe-shared-expert-intermediate-size 512 --moe-shared-expert-overlap"),
              AllOf(HasSubstr("--moe-token-dispatcher-type"), HasSubstr("shared experts")));
}

// Only --moe-router-group-topk limits routing.
TEST(MegatronImport, ReadsGroupsOfExperts) {
  const std::string experts = kExperts + "--bf16 ";
  const models::Network free = import(experts).network;
  EXPECT_EQ(free.spec.moe.groups, 1);
  EXPECT_EQ(import(experts + "--moe-router-num-groups 4").network.spec.moe, free.spec.moe);
  EXPECT_THAT(problem(experts + "--moe-router-group-topk 2"),
              HasSubstr("add --moe-router-num-groups"));
  const std::string limits = "--moe-router-num-groups 4 --moe-router-group-topk 2 ";
  const models::Network limited = import(experts + limits).network;
  EXPECT_EQ(limited.spec.moe.groups, 4);
  EXPECT_EQ(limited.spec.moe.groups_per_token, 2);
  EXPECT_EQ(problem(experts + limits, &limited), "");
  EXPECT_THAT(problem(experts, &limited),
              AllOf(HasSubstr("to any expert"), HasSubstr("2 of 4 groups"),
                    HasSubstr("--moe-router-num-groups 4 --moe-router-group-topk 2")));
  EXPECT_THAT(problem(experts + limits, &free), HasSubstr("--moe-router-num-groups"));
}

// As in the arguments for gpt-oss: every second layer sees 128 tokens.
TEST(MegatronImport, ReadsWindows) {
  const auto windows = [](const std::string& text) {
    const models::NetworkSpec spec = import(kBase + text).network.spec;
    return std::pair(spec.sliding_window, spec.global_attention_interval);
  };
  EXPECT_EQ(windows("--window-size 128,0 --window-attn-skip-freq 2"), std::pair(128L, 2L));
  EXPECT_EQ(windows("--window-size '(128, 0)' --window-attn-skip-freq '([1]*3+[0])*2'"),
            std::pair(128L, 4L));
  EXPECT_EQ(windows("--window-size 4096,0"), std::pair(4096L, 0L));
  EXPECT_EQ(windows("--window-size 128,0 --window-attn-skip-freq 1"), std::pair(0L, 0L));
  EXPECT_EQ(windows("--window-size -1,0"), std::pair(0L, 0L));
  EXPECT_THAT(problem(kBase + "--window-size 128,64"), HasSubstr("looks ahead"));
  EXPECT_THAT(problem(kBase + "--window-size wide,0"), HasSubstr("--window-size"));
  EXPECT_THAT(problem(kBase + "--window-size 128,0 --window-attn-skip-freq '[0]+[1]*7'"),
              HasSubstr("every n-th"));
}

TEST(MegatronImport, ReadsBackTheWindowsItWrote) {
  Plan plan = import(kBase + "--window-size 256,0 --window-attn-skip-freq 4");
  const Plan again = import(find_exporter("megatron").write(plan));
  EXPECT_EQ(again.network.spec.sliding_window, 256);
  EXPECT_EQ(again.network.spec.global_attention_interval, 4);
}

TEST(MegatronImport, ReadsPlainLists) {
  EXPECT_EQ(import(kBase).dp, 16);
  EXPECT_EQ(
      import("--num-layers=8\n--hidden-size=1024\n--num-attention-heads=16\n--seq-length=2048\n"
             "--micro-batch-size=1\n--vocab-size=50000\n--bf16\n")
          .batch,
      16);
}

TEST(MegatronImport, OverlapsMessagesOfModelChunksAlone) {
  const std::string stages = kBase + "--pipeline-model-parallel-size 2 ";
  EXPECT_FALSE(import(stages).execution.overlap_p2p);
  const std::string chunks = stages + "--num-layers-per-virtual-pipeline-stage 2 ";
  EXPECT_TRUE(import(chunks).execution.overlap_p2p);
  EXPECT_FALSE(import(chunks + "--no-overlap-p2p-communication").execution.overlap_p2p);
}

TEST(MegatronImport, CountsTheTokenThatEndsDocuments) {
  const std::string text = kBase + "--make-vocab-size-divisible-by 1 ";
  EXPECT_EQ(import(text + "--tokenizer-type NullTokenizer").network.spec.vocab, 50001);
}

TEST(MegatronImport, DerivesStages) {
  const Plan chunks =
      import(kBase + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2");
  EXPECT_EQ(chunks.chunks, 2);
  EXPECT_EQ(chunks.schedule, "interleaved");
  const Plan uneven =
      import(kBase + "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 3");
  EXPECT_EQ(uneven.stage_blocks, (std::vector<int>{4, 6}));
  const Plan ends = import(kBase +
                           "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-"
                           "split --account-for-loss-in-pipeline-split");
  EXPECT_EQ(ends.stage_blocks, (std::vector<int>{5, 5}));
  const Plan layout = import(
      kBase + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*6|t*2L'");
  EXPECT_EQ(layout.stage_blocks, (std::vector<int>{7, 3}));
}

// Ten micro-batches on four stages travel in two groups of five, there and back.
TEST(MegatronImport, ReadsBackUnevenGroups) {
  const std::string shape =
      "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --bf16 "
      "--micro-batch-size 1 --global-batch-size 40 --vocab-size 50000 "
      "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1 "
      "--microbatch-group-size-per-virtual-pipeline-stage ";
  const Plan plan = import(shape + "5");
  EXPECT_EQ(plan.schedule, "interleaved-uneven");
  const std::string written = find_exporter("megatron").write(plan);
  EXPECT_THAT(written, HasSubstr("--microbatch-group-size-per-virtual-pipeline-stage 5"));
  EXPECT_EQ(import(written).schedule, "interleaved-uneven");
  EXPECT_THAT(problem(shape + "6"), HasSubstr("groups of another size"));
}

TEST(MegatronImport, RecomputesTheFirstLayersOfEveryStage) {
  const Plan plan = import(kBase +
                           "--pipeline-model-parallel-size 2 --recompute-granularity full "
                           "--recompute-method block --recompute-num-layers 1");
  std::vector<Recompute> kinds;
  for (int position = 0; position < 10; ++position) {
    kinds.push_back(plan.layout_of(position).recompute);
  }
  const auto none = Recompute::None;
  const auto full = Recompute::Full;
  EXPECT_EQ(kinds, (std::vector{none, full, none, none, none, full, none, none, none, none}));
}

TEST(MegatronImport, TakesAGivenNetwork) {
  const models::Network network = small_plan().network;
  const Plan plan =
      import("--micro-batch-size 2 --fp16 --tensor-model-parallel-size 2", "dgx-a100:2", &network);
  EXPECT_EQ(plan.network.spec, network.spec);
  EXPECT_EQ(plan.dp, 8);
  try {
    (void)import("--micro-batch-size 2 --bf16 --num-layers 9", "dgx-a100:2", &network);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--num-layers: the arguments give 9, but small has 8"));
  }
}

TEST(MegatronImport, FlagsOfConsequenceAreNeverDropped) {
  EXPECT_EQ(problem(kBase + "--log-interval 10 --save /x --lr 1e-4 --seed 1"), "");
  EXPECT_THAT(problem(kBase + "--fp32-residual-connection"), HasSubstr("not modelled"));
  EXPECT_THAT(problem(kBase + "--optimizer-cpu-offload"), HasSubstr("host memory"));
  EXPECT_THAT(problem(kBase + "--yaml-cfg x.yaml"), HasSubstr("another file"));
  EXPECT_THAT(problem(kBase + "--tensor-model-paralel-size 8"),
              HasSubstr("unknown Megatron-LM flag --tensor-model-paralel-size (did you mean "
                        "--tensor-model-parallel-size?)"));
  EXPECT_THAT(problem(kBase + "--surely-no-such-flag-at-all"), HasSubstr("remove it if"));
  EXPECT_THAT(problem(kBase + "--recompute-granularity selective --recompute-modules mlp"),
              HasSubstr("core_attn"));
  EXPECT_THAT(problem(kBase + "--num-layers 9"), HasSubstr("given twice"));
  EXPECT_THAT(problem(kBase + "--position-embedding-type mrope"), HasSubstr("not modelled"));
}

TEST(MegatronImport, UnknownValuesAreErrorsOnlyWhereNeeded) {
  EXPECT_THAT(problem("N=$1\npython pretrain_gpt.py " + kBase + "--tensor-model-parallel-size $N"),
              HasSubstr("run.sh:2: --tensor-model-parallel-size: $1 is known only when it runs"));
  EXPECT_EQ(problem("python pretrain_gpt.py " + kBase + "--save $(mktemp -d)"), "");
  EXPECT_THAT(problem("if test -d x; then E=--swiglu; fi\npython pretrain_gpt.py " + kBase + "$E"),
              HasSubstr("condition"));
}

// A word behind a switch, or a second one behind a value, belongs to nothing and may hold flags.
TEST(MegatronImport, WordsThatBelongToNoFlagAreErrors) {
  EXPECT_THAT(problem(kBase + "8"), HasSubstr("\"8\" is neither a flag nor a value of one"));
  EXPECT_THAT(problem("a.py " + kBase + "$EXTRA"), HasSubstr("it may hold flags"));
  EXPECT_THAT(problem(kBase + "--tensor-model-parallel-size 2 4"), HasSubstr("\"4\" is neither"));
  EXPECT_THAT(problem(kBase + "--ffn-hidden-size 4096 $1"), HasSubstr("it may hold flags"));
  EXPECT_EQ(problem(kBase + "--ffn-hidden-size 4096 \"$@\""), "");
  EXPECT_EQ(problem(kBase + "--recompute-granularity selective --recompute-modules core_attn"), "");
}

TEST(MegatronImport, BadInputIsNamed) {
  EXPECT_THAT(problem(""), HasSubstr("no training command"));
  EXPECT_THAT(problem("echo --num-layers 3"), HasSubstr("no training command"));
  EXPECT_THAT(problem("a.py " + kBase + "\nb.py " + kBase), HasSubstr("second training command"));
  EXPECT_THAT(problem(kBase + "--tensor-model-parallel-size"), HasSubstr("value missing"));
  EXPECT_THAT(problem(kBase + "--tensor-model-parallel-size x"), HasSubstr("run.sh:1"));
  EXPECT_THAT(problem(kBase + "--tensor-model-parallel-size 99999999999999999999"),
              HasSubstr("run.sh:1"));
  EXPECT_THAT(problem(kBase + "--tensor-model-parallel-size 3"), HasSubstr("does not divide"));
  EXPECT_THAT(problem(kBase + "--pipeline-model-parallel-size 16"), HasSubstr("pipeline stages"));
  EXPECT_THAT(problem(kBase + "stray --bf16"), HasSubstr("given twice"));
  EXPECT_THAT(problem(kBase + "--fp16"), HasSubstr("--fp16 is given, too"));
  EXPECT_THAT(problem("--num-layers 8 --micro-batch-size 1"), HasSubstr("is missing"));
  for (const char* layout : {"t*8", "Et*8", "E(t|*99999999)*99999999L", "Et((((((((((t))))))))))L",
                             "Et*-1L", "Emt*8L", "E)L", "Et*3|t*4L|t"}) {
    EXPECT_NE(problem(kBase + "--pipeline-model-parallel-layout '" + layout + "'"), "") << layout;
  }
}

}  // namespace
}  // namespace orrery::plan
