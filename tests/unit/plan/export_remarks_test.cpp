// SPDX-License-Identifier: Apache-2.0
// What exporters to Accelerate, Galvatron and Megatron-LM refuse, and what they say beside the
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/document/untold.hpp"
#include "plan/importer.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/export_fixture.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// One micro-batch, so that gradients do not accumulate.
Plan single_batch_plan(const BlockPlan& layout) {
  Plan plan = one_stage_plan(layout);
  plan.batch = plan.micro_batch * plan.dp;
  return plan;
}

// Megatron-Core's own fusion, or TransformerEngine's one kernel.
TEST(Exporters, NamesWhoseLossIsFused) {
  Plan plan = small_plan();
  const Exporter& megatron = find_exporter("megatron");
  EXPECT_THAT(megatron.write(plan), Not(HasSubstr("--cross-entropy")));
  const auto implementation = [&](std::string_view name) {
    const std::string text = megatron.write(plan);
    EXPECT_THAT(text, HasSubstr("--cross-entropy-loss-fusion"));
    EXPECT_THAT(text, HasSubstr("--cross-entropy-fusion-impl " + std::string(name)));
    return find_importer("megatron").read(text, "run.sh", plan.cluster).execution;
  };
  plan.execution.compiled_loss = true;
  const Execution native = implementation("native");
  EXPECT_TRUE(native.compiled_loss && !native.fused_cross_entropy);
  plan.execution.compiled_loss = false;
  plan.execution.fused_cross_entropy = true;
  const Execution engine = implementation("te");
  EXPECT_TRUE(engine.fused_cross_entropy && !engine.compiled_loss);
}

// Both let FSDP reduce in the parameters' type unless they are told otherwise.
TEST(Exporters, NameTheTypeThatFsdpDoesNotReduceInByItself) {
  Plan plan = single_batch_plan({.zero_stage = 3});
  const Exporter& accelerate = find_exporter("accelerate");
  const Exporter& galvatron = find_exporter("galvatron");
  const auto field = HasSubstr("fp32_gradients");
  const auto reduce_dtype = HasSubstr("reduce_dtype float32");
  EXPECT_THAT(accelerate.write(plan), reduce_dtype);
  EXPECT_THAT(accelerate.script(plan), ElementsAre(AllOf(reduce_dtype, HasSubstr("bfloat16"))));
  EXPECT_THAT(untold(accelerate, plan), Not(Contains(field)));
  EXPECT_THAT(galvatron.script(plan), ElementsAre(HasSubstr("reduce_in_fp32")));
  EXPECT_THAT(untold(galvatron, plan), Contains("fp32_gradients = true"));
  plan.execution.fp32_gradients = false;
  EXPECT_THAT(accelerate.write(plan), Not(reduce_dtype));
  for (const Exporter* exporter : {&accelerate, &galvatron}) {
    EXPECT_THAT(exporter->script(plan), IsEmpty()) << exporter->name;
    EXPECT_THAT(untold(*exporter, plan), Not(Contains(field))) << exporter->name;
  }
  plan.precision = DType::Fp32;
  plan.execution.fp32_gradients = true;
  for (const Exporter* exporter : {&accelerate, &galvatron}) {
    EXPECT_THAT(exporter->script(plan), IsEmpty()) << exporter->name;
    EXPECT_THAT(untold(*exporter, plan), Not(Contains(field))) << exporter->name;
  }
}

// ParallelismConfig.__post_init__ refuses replicas of which none shards over data ranks; FSDP2 has
// no mesh without sharding ranks.
TEST(AccelerateExport, RefusesMeshesThatAccelerateDoesNotBuild) {
  const auto refused = [](const BlockPlan& layout) {
    return export_refusal("accelerate", one_stage_plan(layout));
  };
  EXPECT_EQ(refused({.zero_stage = 3}), "");
  EXPECT_EQ(refused({.tp = 8, .zero_stage = 3}), "");
  EXPECT_EQ(refused({.cp = 16, .zero_stage = 3}), "");
  EXPECT_EQ(refused({.cp = 2, .zero_stage = 3, .shard_degree = 4}), "");
  EXPECT_THAT(refused({.cp = 2, .zero_stage = 3, .shard_degree = 2}),
              HasSubstr("replicas that shard over context ranks alone"));
  const auto none = HasSubstr("none share the states");
  EXPECT_THAT(refused({.tp = 8, .zero_stage = 3, .shard_degree = 1}), none);
  EXPECT_THAT(refused({.zero_stage = 3, .shard_degree = 1}), none);
  EXPECT_THAT(refused({.tp = 16, .zero_stage = 3}),
              AllOf(none, HasSubstr("fewer tensor-parallel ranks")));
  EXPECT_EQ(export_refusal("accelerate", one_replica(small_spec(), {.zero_stage = 3})), "");
}

// ClusterConfig refuses files with keys that it does not have.
TEST(AccelerateExport, WritesKeysOfTheConfigurationAlone) {
  const std::string text = find_exporter("accelerate").write(one_stage_plan({.zero_stage = 3}));
  EXPECT_THAT(text, Not(HasSubstr("use_parallelism_config")));
  EXPECT_THAT(text, HasSubstr("\nparallelism_config: \n  parallelism_config_dp_replicate_size"));
}

// Rank 0 alone would read the checkpoint and broadcast its own shard to all.
TEST(AccelerateExport, EveryTensorAndContextRankReadsTheCheckpoint) {
  const auto file = [](const BlockPlan& layout) {
    return find_exporter("accelerate").write(one_stage_plan(layout));
  };
  const auto alone = HasSubstr("fsdp_cpu_ram_efficient_loading: true\n");
  const auto together = HasSubstr("fsdp_cpu_ram_efficient_loading: false\n");
  EXPECT_THAT(file({.zero_stage = 3}), alone);
  EXPECT_THAT(file({.tp = 2, .zero_stage = 3}), together);
  EXPECT_THAT(file({.cp = 2, .zero_stage = 3}), together);
}

TEST(AccelerateExport, SaysWhatTensorAndContextRanksNeed) {
  Plan plan = single_batch_plan({.tp = 2, .cp = 2, .zero_stage = 3});
  plan.execution.fp32_gradients = false;
  EXPECT_THAT(find_exporter("accelerate").script(plan),
              ElementsAre(HasSubstr("tp_plan=\"auto\""), HasSubstr("maybe_context_parallel")));
}

TEST(GalvatronExport, NamesTheShardingOfTheEmbeddingTwice) {
  for (const int zero : {2, 3}) {
    const Json file =
        parse_json(find_exporter("galvatron").write(one_stage_plan({.zero_stage = zero})), "g");
    EXPECT_EQ(file.find("embed_sdp")->as_integer(), zero == 3 ? 1 : 0);
    EXPECT_EQ(file.find("vocab_sdp")->as_integer(), zero == 3 ? 1 : 0);
  }
}

TEST(GalvatronExport, SaysHowGradientsOfEveryMicroBatchAreSharded) {
  Plan plan = one_stage_plan({.zero_stage = 3});
  plan.execution.fp32_gradients = false;
  EXPECT_THAT(find_exporter("galvatron").script(plan),
              ElementsAre(HasSubstr("async_grad_reduce to false")));
  plan.blocks.front().layout.zero_stage = 0;
  EXPECT_THAT(find_exporter("galvatron").script(plan), IsEmpty());
}

// The smallest degrees of all layers count together.
TEST(GalvatronExport, AsksTheBatchToDivideByTheMostDataRanks) {
  Plan plan = small_plan();
  const BlockPlan tensor = {.tp = 4, .sequence_parallel = true, .zero_stage = 2};
  const BlockPlan context = {.cp = 4, .zero_stage = 3};
  plan.blocks = {{1, tensor}, {4, context}, {5, tensor}};
  EXPECT_EQ(export_refusal("galvatron", plan), "");
  plan.batch = 66;
  EXPECT_THAT(export_refusal("galvatron", plan), HasSubstr("a batch of 66 that 8 ranks"));
}

TEST(MegatronExport, NamesTheReleasesThatTakeIt) {
  models::NetworkSpec spec = small_spec();
  spec.kv_heads = 2;
  Plan plan = small_plan(spec);
  const Exporter& megatron_lm = find_exporter("megatron");
  EXPECT_THAT(megatron_lm.script(plan), ElementsAre(AllOf(HasSubstr("--num-query-groups 2"),
                                                          HasSubstr("core_v0.16 or later"))));
  EXPECT_THAT(megatron_lm.script(small_plan()), IsEmpty());
  plan = small_plan();
  plan.execution.overlap_tp = false;
  EXPECT_THAT(megatron_lm.write(plan), HasSubstr("--no-async-tensor-model-parallel-allreduce"));
  EXPECT_THAT(megatron_lm.script(plan), ElementsAre(HasSubstr("releases up to core_v0.15")));
}

// validate_args: "Must use --overlap-param-gather with --overlap-grad-reduce"; two devices that
// interleave would have several messages between them at once.
TEST(MegatronExport, NamesOverlapsThatNoReleaseTakes) {
  const Exporter& megatron_lm = find_exporter("megatron");
  Plan plan = small_plan();
  plan.execution.overlap_grad_reduce = false;
  EXPECT_THAT(megatron_lm.script(plan),
              ElementsAre(HasSubstr("--overlap-param-gather is refused")));
  plan.blocks.front().layout.zero_stage = 0;
  EXPECT_THAT(megatron_lm.script(plan), IsEmpty());
  plan.execution.overlap_p2p = false;
  plan.schedule = "interleaved";
  plan.chunks = 2;
  plan.stage_blocks = even_stages(plan.network, 4);
  EXPECT_THAT(megatron_lm.script(plan), ElementsAre(HasSubstr("two devices are refused")));
}

}  // namespace
}  // namespace orrery::plan
