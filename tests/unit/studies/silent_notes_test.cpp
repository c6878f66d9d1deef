// SPDX-License-Identifier: Apache-2.0
// Notes that say nothing of the run's plan leave it as it is.
#include <gmock/gmock.h>

#include "studies/rows/assumptions.hpp"
#include "studies/rows/other_training.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::row_of;

// Of two nodes with experts; what remarks may state is blank.
Changes open_row() {
  return {{"gpus", "16"},
          {"dp", "4"},
          {"ep", "2"},
          {"experts", "8"},
          {"top_k", "2"},
          {"ffn_hidden", "8192"},
          {"moe_ffn_hidden", "4096"},
          {"inter_node", ""},
          {"precision", ""},
          {"attention_impl", ""},
          {"zero_stage", ""},
          {"recompute", ""},
          {"micro_batch", ""},
          {"num_microbatches", ""},
          {"global_batch", "32"},
          {"confidence", "partial"}};
}

std::string written_plan(Changes changes, std::string_view why) {
  changes.merge(open_row());
  Measurement row = row_of(changes);
  assume_defaults(row);
  const auto plan = row_plan(row);
  EXPECT_TRUE(plan) << why << ": " << (plan ? "" : plan.error());
  return plan ? to_json(*plan).dump() : plan.error();
}

void expect_silent(const std::vector<std::string>& notes, const Changes& changes = {}) {
  const std::string plain = written_plan(changes, "no notes");
  for (const std::string& text : notes) {
    Changes with = changes;
    with["notes"] = text;
    EXPECT_EQ(written_plan(with, text), plain) << text;
  }
}

TEST(SilentNotes, Networks) {
  expect_silent({"login node has 1 Gb/s Ethernet", "data loaded via 10G Ethernet",
                 "peak network use 5 GB/s", "network traffic is 10 GB/s on average",
                 "the network has 40 GB of parameters", "dataset of 500 GB read over the network",
                 "management Ethernet 1 Gb/s"});
  for (const char* notes : {"100 Gb/s Ethernet", "NCCL over 25G Ethernet", "Ethernet at 25 Gb/s",
                            "200 Gb/s HDR InfiniBand", "25GbE RoCE"}) {
    EXPECT_FALSE(row_of({{"inter_node", ""}, {"notes", notes}}).inter_node.empty()) << notes;
  }
}

TEST(SilentNotes, LayersWithExperts) {
  expect_silent({"each token uses 2 of 8 experts in all 24 layers", "MoE alternative gating",
                 "experts on every other node", "sparse attention in every second layer",
                 "tokens alternate between experts", "expert load alternates",
                 "12 of 24 GPUs hold experts of all layers",
                 "half of the layers' experts are cached"});
}

TEST(SilentNotes, WindowsAndCapacity) {
  expect_silent({"loss smoothed with a window size of 100", "throughput window size 128 samples",
                 "timing window size=100", "local window 512 of the profiler",
                 "sliding window of 1024 not used", "Mistral's sliding window 1024 disabled",
                 "cf 2 in the appendix", "cf. 4 other runs"});
}

TEST(SilentNotes, Recomputation) {
  expect_silent({"all layers' weights checkpointed hourly",
                 "attention maps recomputed for the plots",
                 "activations checkpointed to disk every 100 steps", "we recompute nothing",
                 "gradient checkpointing saves 40%"});
  expect_silent({"ZeRO stage 1 but no offload", "zero stage 1 only"}, {{"zero_stage", "1"}});
  expect_silent({"", "x"}, {{"recompute", "full"},
                            {"recompute_detail", "all layers (pipeline stages not balanced)"}});
}

TEST(SilentNotes, Overlap) {
  expect_silent({"no overlap of requests", "without overlap the step takes 17 s",
                 "all overlap flags as in the recipe"});
  const auto overlap = [](const std::string& cell) {
    Changes changes = open_row();
    changes["overlap"] = cell;
    return to_json(row_plan([&] {
                     Measurement row = row_of(changes);
                     assume_defaults(row);
                     return row;
                   }())
                       .value())
        .dump();
  };
  EXPECT_EQ(overlap("everything except optimizer"), overlap(""));
}

TEST(SilentNotes, CountsAndStages) {
  expect_silent({"1.5 microbatches in flight", "warm-up of 10 microbatches discarded",
                 "32 or 64 microbatches", "paper: 16 microbatches"});
  expect_silent({"environment modules rocm/5.4", "--recompute-modules core_attn"},
                {{"gpu", "MI250X"}, {"gpus_per_node", "4"}, {"recompute", "none"}});
  const auto stage = [](const std::string& framework) {
    return row_of({{"zero_stage", ""}, {"framework", framework}}).zero_stage;
  };
  EXPECT_EQ(stage("PyTorch FSDP/DDP"), std::nullopt);
  EXPECT_EQ(stage("PyTorch DDP"), 0);
  EXPECT_EQ(stage("DeepSpeed ZeRO-Infinity"), 3);
}

TEST(SilentNotes, PrecisionAndTuning) {
  expect_silent({"fp32 precision of softmax", "router in fp32 precision",
                 "logits in fp32 precision", "PEFT library installed",
                 "prompt tuning was later applied"});
  const auto lines = [](const std::string& notes) {
    return unmodelled_remarks(row_of({{"notes", notes}}));
  };
  for (const char* notes :
       {"sequence length capped to 8192", "oversubscription 1:1",
        "3D parallelism with tensor, pipeline and data", "DiLoCo is future work"}) {
    EXPECT_THAT(lines(notes), IsEmpty()) << notes;
  }
  EXPECT_EQ(lines("GPUs capped to 400W").size(), 1U);
}

TEST(SilentNotes, ParametersStay) {
  const auto offload = [](const std::string& detail) {
    return row_plan(row_of({{"zero_stage", "3"},
                            {"notes", detail},
                            {"framework", "DeepSpeed"},
                            {"pp", "1"},
                            {"dp", "4"},
                            {"schedule", "none"},
                            {"num_microbatches", "4"}}))
        .value()
        .layout_of(1)
        .offload;
  };
  EXPECT_EQ(offload("ZeRO-3-Offload").parameters, plan::Tier::Host);
  EXPECT_EQ(offload("ZeRO-3-Offload (params on GPU)").parameters, plan::Tier::Device);
  EXPECT_EQ(offload("ZeRO-3-Offload (params on GPU)").optimizer, plan::Tier::Host);
}

// What notes do state is printed.
TEST(SilentNotes, StatedSettingsAreNamed) {
  for (const auto& [notes, line] : {std::pair("experts on every other layer", "one of 2 layers"),
                                    std::pair("sliding window 1024", "window of 1024 keys"),
                                    std::pair("cf=1.25", "capacity factor 1.25"),
                                    std::pair("no overlap", "of all communication"),
                                    std::pair("routing imbalance 1.66", "1.66 times the mean")}) {
    Changes changes = open_row();
    changes["notes"] = notes;
    Measurement row = row_of(changes);
    EXPECT_THAT(assume_defaults(row), Contains(HasSubstr(line))) << notes;
  }
}

}  // namespace
}  // namespace orrery::studies
