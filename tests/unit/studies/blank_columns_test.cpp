// SPDX-License-Identifier: Apache-2.0
// Columns that are blank and what notes and the framework's name say of them.
#include <gmock/gmock.h>

#include "studies/rows/named_network.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_groups.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using testing::row_of;

TEST(BlankColumns, StageInTheFrameworksName) {
  const auto stage = [](const std::string& framework) {
    return row_of({{"framework", framework}, {"zero_stage", ""}}).zero_stage;
  };
  EXPECT_EQ(stage("DeepSpeed ZeRO-1"), 1);
  EXPECT_EQ(stage("DeepSpeed (stage 2)"), 2);
  EXPECT_EQ(stage("FSDP SHARD_GRAD_OP"), 2);
  EXPECT_EQ(stage("PyTorch DDP"), 0);
  EXPECT_EQ(stage("Megatron-LM"), std::nullopt);
  EXPECT_EQ(row_of({{"framework", "PyTorch DDP"}, {"zero_stage", "1"}}).zero_stage, 1);
  const Measurement hybrid = row_of(
      {{"framework", "FSDP HYBRID_SHARD"}, {"zero_stage", "3"}, {"tp", "1"}, {"gpus", "16"}});
  EXPECT_EQ(state_shards(hybrid), 8);
}

TEST(BlankColumns, SequenceParallelism) {
  const auto said = [](const std::string& notes) {
    return row_of({{"sequence_parallel", ""}, {"notes", notes}}).sequence_parallel;
  };
  EXPECT_EQ(said("no sequence parallel"), false);
  EXPECT_EQ(said("sequence_parallel=False"), false);
  EXPECT_EQ(said("--sequence-parallel"), true);
  EXPECT_EQ(said("sequence parallelism (ring self-attention)"), std::nullopt);
  EXPECT_EQ(said("eager"), std::nullopt);
}

TEST(BlankColumns, Precision) {
  const auto said = [](const std::string& notes) {
    return row_of({{"precision", "n/a"}, {"notes", notes}}).precision;
  };
  EXPECT_EQ(said("FP8 training"), "fp8");
  EXPECT_EQ(said("bf16 mixed precision"), "bf16");
  EXPECT_EQ(said("grads in fp32 precision"), "");
  for (const std::string blank : {"n/a", "-", "?", "unknown", "not stated", "TBD"}) {
    EXPECT_EQ(row_of({{"precision", blank}}).precision, "") << blank;
  }
}

TEST(BlankColumns, Network) {
  EXPECT_EQ(row_of({{"inter_node", ""}, {"notes", "seed 1; NCCL over 100G Ethernet"}}).inter_node,
            "NCCL over 100G Ethernet");
  EXPECT_EQ(row_of({{"inter_node", "HDR"}, {"notes", "100G Ethernet"}}).inter_node, "HDR");
  EXPECT_EQ(row_of({{"inter_node", ""}, {"notes", "100 Gb/s network to storage"}}).inter_node, "");
  EXPECT_EQ(row_of({{"inter_node", ""}, {"notes", "2 GPUs in a network"}}).inter_node, "");
}

TEST(BlankColumns, ScheduleDegreesAndSteps) {
  const auto noted = [](const std::string& notes) {
    return row_of({{"notes", notes},
                   {"schedule", ""},
                   {"vpp", ""},
                   {"num_microbatches", ""},
                   {"global_batch", ""}});
  };
  EXPECT_EQ(noted("GPipe schedule").schedule, "gpipe");
  EXPECT_EQ(noted("zero bubble").schedule, "zb-1p");
  EXPECT_EQ(noted("interleaved with 5 virtual stages").schedule, "interleaved");
  EXPECT_EQ(noted("interleaved with 5 virtual stages").vpp, 5);
  for (const std::string other : {"faster than GPipe", "interleaved data loading"}) {
    EXPECT_EQ(noted(other).schedule, "") << other;
  }
  const Measurement variant = row_of({{"variant", "GPipe"}, {"schedule", ""}});
  EXPECT_EQ(variant.schedule, "gpipe");
  EXPECT_EQ(variant.variant, "");
  EXPECT_EQ(noted("2 gradient accumulation steps").num_microbatches, 2);
  const Measurement degrees = row_of({{"tp", ""}, {"pp", ""}, {"dp", ""}, {"notes", "TP=4, PP=2"}});
  EXPECT_EQ(degrees.tp, 4);
  EXPECT_EQ(degrees.pp, 2);
  EXPECT_EQ(row_of({{"notes", "TP=4"}}).tp, 2);
}

TEST(BlankColumns, LayersWithExperts) {
  const auto frequency = [](const std::string& notes) {
    const Measurement row = row_of({{"experts", "8"},
                                    {"top_k", "2"},
                                    {"ep", "2"},
                                    {"ffn_hidden", "8192"},
                                    {"moe_ffn_hidden", "4096"},
                                    {"notes", notes}});
    const auto network = row_network(row, framework_of(row).facts);
    return network ? network->moe.layer_frequency : 0;  // 0: refused
  };
  for (const std::string other :
       {"MoE every other layer", "experts on every other layer", "moe_layer_freq=2",
        "--expert-interval 2", "12 of 24 layers are MoE", "interleave_moe_layer_step=2",
        "decoder_sparse_step=2", "MoE layer frequency 1/2"}) {
    EXPECT_EQ(frequency(other), 2) << other;
  }
  EXPECT_EQ(frequency("experts on every fourth layer"), 4);
  EXPECT_EQ(frequency("recompute every other layer of the MoE"), 1);
  EXPECT_EQ(frequency("no MoE on every other layer"), 1);
  EXPECT_EQ(frequency("10 of 24 layers are MoE"), 0);
  EXPECT_EQ(frequency("moe_layer_freq=[0]*3+[1]*21"), 0);
}

TEST(BlankColumns, LayersWithExpertsOfANamedNetwork) {
  Measurement row = row_of({{"model_family", "llama4"},
                            {"model_name", "llama4-maverick"},
                            {"layers", ""},
                            {"hidden", ""},
                            {"heads", ""},
                            {"vocab", ""}});
  complete_from_name(row);
  EXPECT_EQ(row_network(row, framework_of(row).facts)->moe.layer_frequency, 2);
}

TEST(BlankColumns, Windows) {
  const auto window = [](const std::string& notes, const std::string& attention = "flash") {
    const Measurement row = row_of({{"notes", notes}, {"attention_impl", attention}});
    return row_network(row, framework_of(row).facts)->sliding_window;
  };
  EXPECT_EQ(window("SWA 1024"), 1024);
  EXPECT_EQ(window("window_size=(1023,0)"), 1024);
  EXPECT_EQ(window("window_size=1024 (keys)"), 1024);
  EXPECT_EQ(window("window_size=(-1,-1)"), 0);
  EXPECT_EQ(window("local attention window 1024"), 1024);
  EXPECT_EQ(window("", "flash, sliding window 1024"), 1024);
  EXPECT_EQ(window("averaged with window size 100"), 0);
  const Measurement row = row_of({{"notes", "sliding window 1024 in 3 of 4 layers"}});
  EXPECT_EQ(row_network(row, framework_of(row).facts)->global_attention_interval, 4);
}

}  // namespace
}  // namespace orrery::studies
