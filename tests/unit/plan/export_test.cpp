// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/document/execution_json.hpp"
#include "plan/document/untold.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string megatron(const Plan& plan) { return find_exporter("megatron").write(plan); }

// Why an exporter does not write a plan; empty where it does.
std::string refusal(std::string_view exporter, const Plan& plan) {
  try {
    (void)find_exporter(exporter).write(plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MegatronExport, PrintsTheLaunch) {
  const std::string text = megatron(small_plan());
  EXPECT_THAT(text, HasSubstr("add --rotary-base, --norm-epsilon"));
  EXPECT_THAT(text, HasSubstr("torchrun --nproc_per_node 8 --nnodes 2"));
  EXPECT_THAT(text, HasSubstr("--tensor-model-parallel-size 4"));
  EXPECT_THAT(text, HasSubstr("--use-distributed-optimizer"));
  EXPECT_THAT(text, HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS=1"));
  EXPECT_THAT(text, Not(HasSubstr("--sequence-parallel")));
}

TEST(MegatronExport, UnevenStagesBecomeALayout) {
  Plan plan = small_plan();
  plan.stage_blocks = {7, 3};
  EXPECT_THAT(megatron(plan), HasSubstr("--pipeline-model-parallel-layout 'Et*6|t*2L'"));
}

TEST(MegatronExport, NamesTheRecipeOfFp8) {
  Plan plan = small_plan(small_spec(), "hgx-h100:2");
  plan.precision = DType::Fp8;
  EXPECT_THAT(megatron(plan), HasSubstr("--fp8-recipe delayed"));
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  EXPECT_THAT(megatron(plan), HasSubstr("--fp8-recipe tensorwise"));
  plan.execution.fp8_scaling = Fp8Scaling::Blocks;
  EXPECT_THAT(megatron(plan), HasSubstr("--fp8-recipe blockwise"));
  plan.execution.fp8_scaling = Fp8Scaling::Delayed;
  plan.execution.amax_ranks = AmaxRanks::Model;
  EXPECT_THROW(megatron(plan), Error);
}

// A launch without the cap would hold more activations than the plan.
TEST(Export, CapsOfActivationsAreNotDropped) {
  Plan plan = small_plan();
  plan.schedule = "1f1b";
  plan.activation_cap = 1;
  for (const char* exporter : {"megatron", "torchtitan", "galvatron"}) {
    EXPECT_THROW((void)export_plan(find_exporter(exporter), plan), Error) << exporter;
  }
  plan.activation_cap = 0;
  EXPECT_NO_THROW((void)export_plan(find_exporter("megatron"), plan));
}

TEST(MegatronExport, SaysWhatItCannotExpress) {
  const auto problem = [](auto change) -> std::string {
    Plan plan = small_plan();
    change(plan);
    return refusal("megatron", plan);
  };
  EXPECT_THAT(problem([](Plan& plan) { plan.schedule = "gpipe"; }), HasSubstr("gpipe"));
  EXPECT_THAT(problem([](Plan& plan) { plan.schedule = "combined-1f1b"; }),
              HasSubstr("one chunk in a pipeline"));
  EXPECT_THAT(problem([](Plan& plan) {
                plan.blocks = {{5, {.tp = 4}}, {5, {.tp = 2, .cp = 2}}};
              }),
              HasSubstr("different layouts"));
  EXPECT_THAT(problem([](Plan& plan) { plan.execution.master_weights = false; }),
              HasSubstr("master weights"));
  EXPECT_THAT(problem([](Plan& plan) { plan.network.spec.parallel_block = true; }),
              HasSubstr("parallel attention"));
  EXPECT_THAT(problem([](Plan& plan) { plan.execution.bucket_bytes = 3; }), HasSubstr("bucket"));
  EXPECT_THAT(problem([](Plan& plan) {
                plan.blocks.front().layout.cp = 2;
                plan.blocks.front().layout.ep = 2;
                plan.blocks.front().layout.sequence_parallel = true;
              }),
              AllOf(HasSubstr("not spread over the context ranks"), HasSubstr("expert_cp=1")));
  EXPECT_THAT(problem([](Plan& plan) {
                plan.blocks.front().layout.ep = 2;
                plan.blocks.front().layout.sequence_parallel = true;
                plan.blocks.front().layout.ep_inside = ExpertsInside::Tensor;
              }),
              AllOf(HasSubstr("ranks inside tensor or context ranks"), HasSubstr("ep_inside=dp")));
  EXPECT_THAT(problem([](Plan& plan) {
                BlockPlan none = plan.blocks.front().layout;
                BlockPlan full = none;
                full.recompute = Recompute::Full;
                plan.blocks = {{7, none}, {3, full}};
              }),
              HasSubstr("recomputed layers"));
}

TEST(MegatronExport, AsksOfJoinedPassesAndDispatchWhatMegatronDoes) {
  const auto problem = [](auto change) -> std::string {
    Plan plan = small_plan();
    plan.schedule = "combined-1f1b";
    plan.chunks = 2;
    plan.stage_blocks = even_stages(plan.network, 4);
    plan.blocks.front().layout.ep = 2;
    plan.blocks.front().layout.sequence_parallel = true;
    plan.network.spec.moe = {.experts = 8, .ffn_hidden = 64, .shared_ffn_hidden = 64};
    change(plan);
    return refusal("megatron", plan);
  };
  EXPECT_EQ(problem([](Plan&) {}), "");
  EXPECT_THAT(problem([](Plan& plan) { plan.chunks = 1; }),
              AllOf(HasSubstr("one chunk in a pipeline"), HasSubstr("--fix chunks=2")));
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks.front().layout.ep = 1; }),
              AllOf(HasSubstr("without expert parallelism"), HasSubstr("--forbid ep=1")));
  EXPECT_THAT(problem([](Plan& plan) {
                plan.blocks.front().layout.ep = 1;
                plan.network.spec.moe = {};
              }),
              AllOf(HasSubstr("without expert parallelism"), HasSubstr("--schedule 1f1b")));
  EXPECT_THAT(problem([](Plan& plan) {
                BlockPlan full = plan.blocks.front().layout;
                full.recompute = Recompute::Full;
                plan.blocks = {{1, plan.blocks.front().layout}, {9, full}};
              }),
              AllOf(HasSubstr("full recomputation"), HasSubstr("--forbid recompute=full")));
  EXPECT_THAT(problem([](Plan& plan) { plan.precision = DType::Fp32; }),
              AllOf(HasSubstr("in fp32"), HasSubstr("--precision bf16")));
  const auto beside = AllOf(HasSubstr("shared experts beside the dispatch"),
                            HasSubstr("--fix overlap_shared_experts=false"));
  EXPECT_THAT(problem([](Plan& plan) { plan.execution.overlap_shared_experts = true; }), beside);
  EXPECT_THAT(problem([](Plan& plan) {
                plan.schedule = "interleaved";
                plan.execution.deduplicated_dispatch = true;
                plan.execution.overlap_shared_experts = true;
              }),
              beside);
  EXPECT_THAT(problem([](Plan& plan) {
                plan.schedule = "interleaved";
                plan.execution.deduplicated_dispatch = true;
                plan.blocks.front().layout.tp = plan.blocks.front().layout.ep = 1;
              }),
              AllOf(HasSubstr("tp x ep > 1"), HasSubstr("--fix deduplicated_dispatch=false")));
  EXPECT_THAT(problem([](Plan& plan) {
                plan.schedule = "interleaved";
                plan.blocks.front().layout.sequence_parallel = false;
              }),
              AllOf(HasSubstr("expert parallelism with tensor parallelism, but without sequence"),
                    HasSubstr("--fix sequence_parallel=true")));
}

Plan fully_sharded_plan() {
  Plan plan = small_plan();
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan& layout = plan.blocks.front().layout;
  layout.tp = 1;
  layout.zero_stage = 3;
  layout.shard_degree = 8;
  plan.execution.bucket_bytes = 4 << 20;
  return plan;
}

TEST(DeepSpeedExport, ReadsBackEqual) {
  Plan plan = fully_sharded_plan();
  plan.execution.overlap_grad_reduce = plan.execution.overlap_param_gather;
  const std::string text = find_exporter("deepspeed").write(plan);
  const Plan read = find_importer("deepspeed").read(text, "ds.json", plan.cluster, &plan.network);
  EXPECT_EQ(to_json(read), to_json(plan));
  EXPECT_THAT(text, HasSubstr("\"communication_data_type\": \"fp32\""));
  EXPECT_THROW((void)find_exporter("deepspeed").write(small_plan()), Error);
  plan.execution.quantised_gather = plan.execution.quantised_reduce = true;
  plan.execution.hierarchical_gather = true;
  const std::string plus = find_exporter("deepspeed").write(plan);
  EXPECT_EQ(to_json(find_importer("deepspeed").read(plus, "ds.json", plan.cluster, &plan.network)),
            to_json(plan));
}

TEST(TorchTitanExport, PrintsTheMesh) {
  const std::string text = find_exporter("torchtitan").write(fully_sharded_plan());
  EXPECT_THAT(text, HasSubstr("data_parallel_replicate_degree = 2\n"));
  EXPECT_THAT(text, HasSubstr("data_parallel_shard_degree = 8\n"));
  EXPECT_THAT(text, HasSubstr("local_batch_size = 1\n"));
  EXPECT_THAT(refusal("torchtitan", small_plan()), HasSubstr("ZeRO-1"));
}

TEST(TorchTitanExport, RefusesWhatItsReleasesDoNotRun) {
  Plan plan = fully_sharded_plan();
  BlockPlan& layout = plan.blocks.front().layout;
  layout.recompute = Recompute::Selective;
  EXPECT_THAT(refusal("torchtitan", plan), HasSubstr("the attention core alone"));
  layout.recompute = Recompute::Products;
  EXPECT_THAT(find_exporter("torchtitan").write(plan), HasSubstr("selective_ac_option = \"op\""));
  layout.zero_stage = 0;
  layout.shard_degree = 0;
  EXPECT_THAT(find_exporter("torchtitan").write(plan),
              HasSubstr("data_parallel_replicate_degree = 16\n"));
  layout.tp = 2;
  layout.sequence_parallel = true;
  plan.dp = 8;
  EXPECT_THAT(refusal("torchtitan", plan), HasSubstr("replicas without sharding"));
  layout.zero_stage = 3;
  layout.sequence_parallel = false;
  EXPECT_THAT(refusal("torchtitan", plan), HasSubstr("without sequence parallelism"));
}

// TorchTitan by itself would take two stages a rank and cut them otherwise.
TEST(TorchTitanExport, NamesTheModulesOfEveryStage) {
  Plan plan = small_plan();
  plan.blocks.front().layout.zero_stage = 3;
  plan.blocks.front().layout.sequence_parallel = true;
  plan.stage_blocks = {7, 3};
  std::string text = find_exporter("torchtitan").write(plan);
  EXPECT_THAT(text, HasSubstr("pipeline_parallel_schedule = \"1F1B\""));
  EXPECT_THAT(text, HasSubstr("[\"layers.6\", \"layers.7\", \"norm\", \"output\"],\n]"));
  plan.chunks = 4;
  plan.schedule = "breadth-first";
  plan.stage_blocks = even_stages(plan.network, 8);
  text = find_exporter("torchtitan").write(plan);
  EXPECT_THAT(text, HasSubstr("pipeline_parallel_schedule = \"LoopedBFS\""));
  EXPECT_THAT(text, HasSubstr("    [\"tok_embeddings\", \"layers.0\"],\n"
                              "    [\"layers.1\"],\n"));
  plan.schedule = "zb-h1";
  EXPECT_THAT(refusal("torchtitan", plan), HasSubstr("the schedule zb-h1"));
}

TEST(TorchTitanExport, SaysHowContextRanksExchange) {
  Plan plan = fully_sharded_plan();
  plan.dp = 4;
  plan.blocks.front().layout.cp = 4;
  plan.blocks.front().layout.context = ContextParallel::Ring;
  EXPECT_THAT(find_exporter("torchtitan").write(plan),
              HasSubstr("context_parallel_rotate_method = \"alltoall\""));
  plan.blocks.front().layout.context = ContextParallel::Ulysses;
  EXPECT_THAT(refusal("torchtitan", plan), HasSubstr("Ulysses"));
}

// Layers 0-3 whole and recomputed, the others cut by 4 with sequence parallelism.
Plan plan_of_unlike_blocks() {
  Plan plan = small_plan();
  BlockPlan data;
  data.zero_stage = 3;
  data.recompute = Recompute::Full;
  BlockPlan tensor;
  tensor.tp = 4;
  tensor.sequence_parallel = true;
  tensor.zero_stage = 2;
  plan.blocks = {{1, tensor}, {4, data}, {5, tensor}};
  return plan;
}

TEST(GalvatronExport, HasNoQuantisedTraining) {
  Plan plan = plan_of_unlike_blocks();
  plan.precision = DType::Fp8;
  EXPECT_THAT(refusal("galvatron", plan), HasSubstr("fp8"));
}

TEST(GalvatronExport, PrintsAValueForEveryLayer) {
  const Json file =
      parse_json(find_exporter("galvatron").write(plan_of_unlike_blocks()), "galvatron");
  EXPECT_EQ(file.find("pp_deg")->as_integer(), 2);
  EXPECT_EQ(file.find("tp_sizes_enc")->as_string(), "1,1,1,1,4,4,4,4");
  EXPECT_EQ(file.find("dp_types_enc")->as_string(), "1,1,1,1,0,0,0,0");
  EXPECT_EQ(file.find("checkpoint")->as_string(), "1,1,1,1,0,0,0,0");
  EXPECT_EQ(file.find("pp_division")->as_string(), "4,4");
  EXPECT_EQ(file.find("default_dp_type")->as_string(), "zero2");
  EXPECT_EQ(file.find("pipeline_type")->as_string(), "pipedream_flush");
  EXPECT_EQ(file.find("chunks")->as_integer(), 32);
  EXPECT_EQ(file.find("vtp")->as_integer(), 4);
}

TEST(GalvatronExport, SaysWhatItCannotExpress) {
  const auto problem = [](auto change) -> std::string {
    Plan plan = plan_of_unlike_blocks();
    change(plan);
    return refusal("galvatron", plan);
  };
  EXPECT_EQ(problem([](Plan&) {}), "");
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks[1].layout.zero_stage = 1; }),
              HasSubstr("ZeRO-1"));
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks[1].layout.zero_stage = 0; }),
              HasSubstr("DDP and ZeRO-2"));
  EXPECT_THAT(problem([](Plan& plan) { plan.schedule = "zb-h1"; }), HasSubstr("zb-h1"));
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks[2].layout.recompute = Recompute::Selective; }),
              HasSubstr("selective recomputation"));
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks[0].layout.zero_stage = 3; }),
              HasSubstr("embedding and a head"));
}

TEST(AccelerateExport, PrintsTheMesh) {
  const std::string text = find_exporter("accelerate").write(fully_sharded_plan());
  EXPECT_THAT(text, HasSubstr("parallelism_config_dp_replicate_size: 2\n"));
  EXPECT_THAT(text, HasSubstr("parallelism_config_dp_shard_size: 8\n"));
  EXPECT_THAT(text, HasSubstr("num_processes: 16\n"));
  EXPECT_THAT(text, HasSubstr("mixed_precision: bf16\n"));
  EXPECT_THAT(text, HasSubstr("gradient_accumulation_steps 4"));
  EXPECT_THROW((void)find_exporter("accelerate").write(small_plan()), Error);  // two stages
  Plan whole = fully_sharded_plan();
  whole.blocks.front().layout.zero_stage = 1;
  EXPECT_THROW((void)find_exporter("accelerate").write(whole), Error);
}

// Of a field that no exporter can write a plan's user is told.
TEST(Exporters, WriteEveryFieldOfTheExecutionOrSayThatTheyDoNot) {
  const auto other = [](const Json& value) -> Json {
    return value.is_bool()      ? Json(!value.as_bool())
           : value.is_integer() ? Json(value.as_integer() + 1)
                                : Json();
  };
  Plan plan = small_plan();
  plan.execution = Execution();
  plan.pp = 1;
  plan.dp = plan.cluster.num_gpus();
  plan.stage_blocks = {10};
  plan.blocks = {{10, {.zero_stage = 3}}};
  const Json usual = to_json(plan.execution);
  for (const Exporter* exporter : exporter_table()) {
    EXPECT_NO_THROW((void)export_plan(*exporter, plan)) << exporter->name;
    for (const auto& [name, value] : usual.as_object()) {
      Json document = usual;
      document.set(name, other(value));
      Plan changed = plan;
      changed.execution = read_execution(JsonReader(document, "execution"));
      try {
        if (changed.execution != plan.execution &&
            export_plan(*exporter, changed) == export_plan(*exporter, plan)) {
          // What a framework does by itself is nothing that it would have to be told.
          const Json own = exporter->usual != nullptr ? to_json(exporter->usual(changed)) : usual;
          const auto named = testing::Contains(HasSubstr(name + " = "));
          if (*own.find(name) == *document.find(name)) {
            EXPECT_THAT(untold(*exporter, plan), named) << exporter->name;
          } else {
            EXPECT_THAT(untold(*exporter, changed), named) << exporter->name;
          }
        }
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(exporter->name));
      }
    }
  }
}

TEST(Exporters, RefuseMeshesAndMixes) {
  for (const Exporter* exporter : exporter_table()) {
    Plan plan = small_plan();
    plan.blocks = {{10, {.tp = 4, .tensor_parallel = TensorMesh::TwoD}}};
    EXPECT_THROW((void)export_plan(*exporter, plan), Error) << exporter->name;
    plan.blocks = {{10, {.cp = 4, .context = ContextParallel::Mix, .ulysses_degree = 2}}};
    EXPECT_THROW((void)export_plan(*exporter, plan), Error) << exporter->name;
  }
}

TEST(Exporters, NameWhatTheyDoNotTell) {
  Plan plan = small_plan(small_spec(), "hgx-h100:2");
  plan.precision = DType::Fp8;
  const Exporter& megatron_lm = find_exporter("megatron");
  EXPECT_THAT(untold(megatron_lm, plan), testing::ElementsAre("overlap_p2p = true"));
  plan.execution.overlap_p2p = false;  // it has no model chunks
  EXPECT_THAT(untold(megatron_lm, plan), testing::IsEmpty());
  Plan sharded = fully_sharded_plan();
  sharded.execution.bucket_bytes = 0;  // DeepSpeed has one of its own
  EXPECT_THAT(untold(find_exporter("deepspeed"), sharded), testing::Contains("bucket = \"0 B\""));
  plan.execution.fp8_gathers = false;
  plan.execution.fused_grad_accumulation = false;
  EXPECT_THAT(untold(megatron_lm, plan), testing::ElementsAre("fp8_gathers = false"));
  EXPECT_THAT(megatron(plan), HasSubstr("--no-gradient-accumulation-fusion"));
}

TEST(Exporters, UnknownNamesSuggestTheNearest) {
  try {
    (void)find_exporter("megatorn");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("megatron"));
  }
  EXPECT_THROW((void)find_importer("x"), Error);
}

}  // namespace
}  // namespace orrery::plan
