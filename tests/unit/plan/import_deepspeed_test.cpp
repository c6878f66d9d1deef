// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/document/untold.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Plan sharded_plan() {
  Plan plan = small_plan();
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout = {.zero_stage = 2};
  return plan;
}

Plan read(const std::string& text) {
  const Plan plan = sharded_plan();
  return find_importer("deepspeed").read(text, "ds.json", plan.cluster, &plan.network);
}

// A configuration of `precision`, with some more members.
std::string configuration(const std::string& precision, const std::string& members) {
  return R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, ")" + precision +
         R"(": {"enabled": true}, )" + members + "}";
}

std::string refusal(const std::string& precision, const std::string& members) {
  try {
    (void)read(configuration(precision, members));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Without ZeRO bf16 is accumulated in fp32, with it in bf16 (runtime/engine.py, get_data_types).
TEST(DeepSpeedImport, ShardedGradientsHaveTheModelsPrecision) {
  const auto fp32 = [](const std::string& precision, const std::string& members) {
    return read(configuration(precision, members)).execution.fp32_gradients;
  };
  EXPECT_TRUE(fp32("bf16", R"("wall_clock_breakdown": false)"));
  EXPECT_TRUE(fp32("bf16", R"("zero_optimization": {"stage": 0})"));
  EXPECT_FALSE(fp32("bf16", R"("zero_optimization": {"stage": 2})"));
  EXPECT_TRUE(fp32("bf16", R"("zero_optimization": {"stage": 2},
                              "data_types": {"grad_accum_dtype": "fp32"})"));
  EXPECT_FALSE(fp32("fp16", R"("zero_optimization": {"stage": 0})"));
}

TEST(DeepSpeedImport, GradientsTravelInTheTypeThatTheyAreKeptIn) {
  EXPECT_TRUE(
      read(configuration("bf16", R"("communication_data_type": "fp32")")).execution.fp32_gradients);
  EXPECT_FALSE(
      read(configuration("fp16", R"("communication_data_type": "fp16")")).execution.fp32_gradients);
  EXPECT_FALSE(read(configuration("bf16", R"("communication_data_type": "bf16",
                                             "data_types": {"grad_accum_dtype": "bf16"})"))
                   .execution.fp32_gradients);
  const std::string message = refusal("bf16", R"("communication_data_type": "bf16")");
  EXPECT_THAT(message, HasSubstr("ds.json: /communication_data_type: gradients summed in bf16 and "
                                 "accumulated in fp32 are not modelled"));
  EXPECT_THAT(message, HasSubstr(R"(write "fp32", or "data_types": {"grad_accum_dtype": "bf16"})"));
  EXPECT_THAT(refusal("fp16", R"("communication_data_type": "fp32")"), HasSubstr("summed in fp32"));
}

TEST(DeepSpeedImport, RefusesOtherTypesOfCommunication) {
  EXPECT_THAT(refusal("bf16", R"("communication_data_type": "int8")"), HasSubstr("fp32"));
  EXPECT_THAT(refusal("bf16", R"("communication_data_type": "auto")"), HasSubstr("elsewhere"));
  EXPECT_THAT(refusal("bf16", R"("comunication_data_type": "fp32")"),
              HasSubstr("did you mean \"communication_data_type\"?"));
}

TEST(DeepSpeedImport, ReadsTheTypesThatTheExporterWrites) {
  for (const DType precision : {DType::Bf16, DType::Fp16, DType::Fp32}) {
    for (const bool fp32 : {true, false}) {
      Plan plan = sharded_plan();
      plan.precision = precision;
      plan.execution.fp32_gradients = fp32 || precision == DType::Fp32;
      const Plan again = read(find_exporter("deepspeed").write(plan));
      EXPECT_EQ(again.precision, precision);
      EXPECT_EQ(again.execution.fp32_gradients, plan.execution.fp32_gradients);
    }
  }
}

// Between sequence-parallel ranks another key names the type, and is fp32 without it (runtime/
// engine.py, _configure_distributed_model). 0.16.5 renamed it.
TEST(DeepSpeedImport, SequenceParallelGradientsTravelInTheirOwnType) {
  const std::string members = R"("sequence_parallel_size": 2, "zero_optimization": {"stage": 2})";
  const std::string fp32 = R"(, "data_types": {"grad_accum_dtype": "fp32"})";
  EXPECT_TRUE(read(configuration("bf16", members + fp32)).execution.fp32_gradients);
  EXPECT_THAT(refusal("bf16", members),
              HasSubstr("write \"seq_parallel_communication_data_type\": \"bf16"));
  for (const std::string name :
       {"seq_parallel_communication_data_type", "seq_parallel_comm_data_type"}) {
    const std::string key = ", \"" + name + "\": ";
    EXPECT_FALSE(read(configuration("bf16", members + key + "\"bf16\"")).execution.fp32_gradients);
    EXPECT_THAT(refusal("bf16", members + key + "\"bf16\"" + fp32),
                HasSubstr("gradients summed in bf16 and accumulated in fp32"));
    EXPECT_EQ(refusal("bf16", R"("zero_optimization": {"stage": 2})" + key + "\"fp32\""), "");
  }
  // The key of other runs is not asked then, nor this one in them.
  EXPECT_EQ(refusal("bf16", members + fp32 + R"(, "communication_data_type": "bf16")"), "");
}

TEST(DeepSpeedImport, BothNamesOfTheTypeAgree) {
  const auto both = [](const std::string& older) {
    return refusal("bf16", R"("sequence_parallel_size": 2, "zero_optimization": {"stage": 2},
                              "seq_parallel_communication_data_type": "bf16",
                              "seq_parallel_comm_data_type": ")" +
                               older + "\"");
  };
  EXPECT_EQ(both("bf16"), "");
  EXPECT_THAT(both("fp32"), HasSubstr("ds.json: /seq_parallel_comm_data_type: "
                                      "seq_parallel_communication_data_type says otherwise"));
  EXPECT_THAT(refusal("bf16", R"("seq_parallel_comunication_data_type": "fp32")"),
              HasSubstr("did you mean \"seq_parallel_communication_data_type\"?"));
}

TEST(DeepSpeedImport, DataAndSequenceRanksMakeAllGpus) {
  const auto refused = [](const std::string& members) {
    return refusal("bf16", members + R"(, "data_types": {"grad_accum_dtype": "fp32"},
                                          "zero_optimization": {"stage": 2})");
  };
  EXPECT_EQ(refused(R"("sequence_parallel_size": 2, "data_parallel_size": 8)"), "");
  EXPECT_THAT(
      refused(R"("sequence_parallel_size": 2, "data_parallel_size": 4)"),
      HasSubstr("16 GPUs in groups of 2 sequence-parallel ranks are 8 data-parallel ranks"));
  EXPECT_EQ(refused(R"("data_parallel_size": 4)"), "");  // not asked alone
}

// DeepSpeedZeroOptimizer, of stages 1 and 2, keeps on the host what an offload_optimizer of any
// device says; ZeRO++ is of stage 3.
TEST(DeepSpeedImport, OnlyStage3HasDisksAndQuantisedCollectives) {
  const auto imported = [](int stage) {
    return read(configuration("bf16", R"("data_types": {"grad_accum_dtype": "fp32"},
                                         "zero_optimization": {"stage": )" +
                                          std::to_string(stage) +
                                          R"(, "offload_optimizer": {"device": "nvme"},
                                          "zero_quantized_weights": true,
                                          "zero_quantized_gradients": true})"));
  };
  const Plan second = imported(2);
  EXPECT_EQ(second.blocks.front().layout.offload.optimizer, Tier::Host);
  EXPECT_FALSE(second.execution.quantised_gather || second.execution.quantised_reduce);
  const Plan third = imported(3);
  EXPECT_EQ(third.blocks.front().layout.offload.optimizer, Tier::Disk);
  EXPECT_TRUE(third.execution.quantised_gather && third.execution.quantised_reduce);
}

// DeepSpeed's engine raises NotImplementedError (runtime/engine.py, _do_optimizer_sanity_check).
TEST(DeepSpeedExport, RefusesGradientsThatTheEngineRefusesWithoutZero) {
  const auto refused = [](DType precision, bool fp32, int zero) {
    Plan plan = sharded_plan();
    plan.precision = precision;
    plan.execution.fp32_gradients = fp32;
    plan.blocks.front().layout.zero_stage = zero;
    try {
      (void)find_exporter("deepspeed").write(plan);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(DType::Fp16, true, 0),
              HasSubstr("fp16 with gradients accumulated in fp32 without ZeRO"));
  EXPECT_THAT(refused(DType::Bf16, false, 0), HasSubstr("--fix fp32_gradients=true"));
  EXPECT_EQ(refused(DType::Fp16, false, 0), "");
  EXPECT_EQ(refused(DType::Bf16, true, 0), "");
  EXPECT_EQ(refused(DType::Fp32, true, 0), "");
  EXPECT_EQ(refused(DType::Fp16, true, 1), "");
  EXPECT_EQ(refused(DType::Bf16, false, 1), "");
}

// BF16_Optimizer takes ZeRO-1 with fp32 gradients of bf16: it reduces after the backward, as the
// engine does without ZeRO.
TEST(DeepSpeedExport, NamesOverlapsThatTheOptimizerDoesNotHave) {
  const Exporter& deepspeed = find_exporter("deepspeed");
  const auto is_untold = [&](DType precision, int zero, Tier optimizer) {
    Plan plan = sharded_plan();
    plan.precision = precision;
    plan.execution.fp32_gradients = precision == DType::Bf16;
    plan.blocks.front().layout.zero_stage = zero;
    plan.blocks.front().layout.offload.optimizer = optimizer;
    const std::vector<std::string> fields = untold(deepspeed, plan);
    const bool named =
        std::find(fields.begin(), fields.end(), "overlap_grad_reduce = true") != fields.end();
    EXPECT_THAT(deepspeed.write(plan),
                HasSubstr(named ? R"("overlap_comm": false)" : R"("overlap_comm": true)"));
    return named;
  };
  EXPECT_TRUE(is_untold(DType::Bf16, 1, Tier::Device));
  EXPECT_TRUE(is_untold(DType::Bf16, 0, Tier::Device));
  EXPECT_TRUE(is_untold(DType::Fp16, 0, Tier::Device));
  EXPECT_FALSE(is_untold(DType::Bf16, 1, Tier::Host));
  EXPECT_FALSE(is_untold(DType::Fp16, 1, Tier::Device));
  EXPECT_FALSE(is_untold(DType::Bf16, 2, Tier::Device));
}

// What a configuration alone does not do.
TEST(Exporters, SayWhatTheTrainingScriptHasToDo) {
  Plan plan = sharded_plan();
  plan.execution.fp32_gradients = false;
  const Exporter& deepspeed = find_exporter("deepspeed");
  const Exporter& accelerate = find_exporter("accelerate");
  EXPECT_THAT(deepspeed.script(plan), IsEmpty());
  EXPECT_THAT(accelerate.script(plan), ElementsAre(HasSubstr("sync_each_batch=True")));
  EXPECT_THAT(accelerate.write(plan), HasSubstr("# sync_each_batch True\n"));
  plan.batch = plan.micro_batch * plan.dp;
  plan.blocks.front().layout.recompute = Recompute::Full;
  EXPECT_THAT(accelerate.script(plan), IsEmpty());
  EXPECT_THAT(accelerate.write(plan), testing::Not(HasSubstr("sync_each_batch")));
  EXPECT_THAT(deepspeed.script(plan),
              ElementsAre(HasSubstr("must call deepspeed.checkpointing.checkpoint")));
}

TEST(DeepSpeedImport, ReadsZeroAndBatch) {
  const models::Network network = small_plan().network;
  const auto read = [&](const std::string& text) {
    return find_importer("deepspeed")
        .read(text, "ds.json", topologies::load_cluster("dgx-a100:2"), &network);
  };
  const Plan plan = read(
      R"({"train_batch_size": 64, "gradient_accumulation_steps": 2, "bf16": {"enabled": true},
          "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e7, "mics_shard_size": 8},
          "optimizer": {"type": "Adam"}, "steps_per_print": 10})");
  EXPECT_EQ(plan.dp, 16);
  EXPECT_EQ(plan.micro_batch, 2);
  EXPECT_EQ(plan.layout_of(0).zero_stage, 3);
  EXPECT_EQ(plan.layout_of(0).shard_degree, 8);
  EXPECT_EQ(plan.execution.bucket_bytes, 100'000'000);  // of gradients in bf16
  for (const char* bad :
       {"{}", "[]", "{", R"({"train_batch_size": 63})", R"({"train_batch_size": "auto"})",
        R"({"train_batch_size": 64, "train_batch_size": 64})",
        R"({"train_batch_size": 64, "zero_optimization": {"stage": 4}})",
        R"({"train_batch_size": 64, "zero_optimization": {"offload_param": {"device": "cpu"}}})",
        R"({"train_batch_size": 64, "zero_optimization": {"zero_hpz_partition_size": 4}})",
        R"({"train_batch_size": 64, "fp16": {"enabled": true}, "bf16": {"enabled": true}})"}) {
    EXPECT_THROW((void)read(bad), Error) << bad;
  }
}

TEST(DeepSpeedImport, MisspeltKeysAreErrors) {
  const models::Network network = small_plan().network;
  const auto message = [&](const std::string& members) -> std::string {
    try {
      const Plan plan = find_importer("deepspeed")
                            .read(R"({"train_batch_size": 64, )" + members + "}", "ds.json",
                                  topologies::load_cluster("dgx-a100:2"), &network);
      return plan.layout_of(0).offload.parameters == Tier::Host ? "parameters on the host" : "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(message(R"("zero_optimization": {"stag": 3})"), HasSubstr("did you mean \"stage\""));
  EXPECT_THAT(message(R"("zero_optimisation": {"stage": 3})"),
              HasSubstr("did you mean \"zero_optimization\""));
  EXPECT_THAT(message(R"("zero_optimization": {"zenflow": {}})"), HasSubstr("not modelled"));
  EXPECT_THAT(message(R"("bf16": {"enabledd": true})"), HasSubstr("did you mean \"enabled\""));
  EXPECT_THAT(message(R"("activation_checkpointing": {"cpu_checkpointingg": true})"),
              HasSubstr("did you mean \"cpu_checkpointing\""));
  EXPECT_THAT(message(R"("zero_optimization": {"stage": 3, "offload_optimizer":
                          {"device": "cpu", "ratoi": 1}})"),
              HasSubstr("did you mean \"ratio\""));
  EXPECT_EQ(message(R"("bf16": {"enabled": true, "immediate_grad_update": true},
                       "activation_checkpointing": {"partition_activations": true, "profile": false},
                       "zero_optimization": {"stage": 3, "cpu_offload": true, "offload_param":
                          {"device": "cpu", "pin_memory": true, "buffer_count": 5}})"),
            "parameters on the host");
  EXPECT_THAT(message(R"("zero_optimization": {"stage": 3, "offload_optimizer":
                        {"device": "cpu", "ratio": 0.5}})"),
              HasSubstr("not modelled"));
  EXPECT_EQ(message(R"("zero_optimization": {"stage": 3, "cpu_offload_param": true,
                                              "cpu_offload": true})"),
            "parameters on the host");
  EXPECT_EQ(message(R"("wall_clock_breakdown": false, "zero_optimization":
                      {"stage": 3, "stage3_max_live_parameters": 1e9, "sub_group_size": 1e9})"),
            "");
}

TEST(DeepSpeedImport, SaysHowToGiveTheNetwork) {
  try {
    (void)find_importer("deepspeed").read("{}", "ds.json", topologies::load_cluster("dgx-a100:2"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--network"));
  }
}

}  // namespace
}  // namespace orrery::plan
