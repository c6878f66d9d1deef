// SPDX-License-Identifier: Apache-2.0
// GPUs that the stated degrees leave over, and ranks over sequences in other words.
#include <gmock/gmock.h>

#include "studies/rows/assumptions.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_context.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::predicted;
using testing::row_of;

// 64 GPUs, of which dp 8 leaves 8 over.
Measurement left_over(Changes changes) {
  changes.insert({{"gpus", "64"},
                  {"tp", "1"},
                  {"pp", ""},
                  {"cp", ""},
                  {"dp", "8"},
                  {"vpp", ""},
                  {"schedule", ""},
                  {"num_microbatches", ""},
                  {"global_batch", "64"},
                  {"confidence", "partial"}});
  Measurement row = row_of(changes);
  assume_defaults(row);
  return row;
}

using Degrees = std::array<std::int64_t, 3>;

Degrees degrees_of(const Changes& changes) {
  const Measurement row = left_over(changes);
  return {row.pp.value_or(1), row.cp.value_or(1), row.dp.value_or(1)};
}

TEST(LeftoverRanks, AreStagesUnlessTheRowNamesOthers) {
  EXPECT_EQ(degrees_of({}), (Degrees{8, 1, 8}));
  EXPECT_EQ(degrees_of({{"schedule", "1f1b"}, {"notes", "ring attention"}}), (Degrees{8, 1, 8}));
  for (const char* words : {"Ulysses", "ring attention", "context parallel", "CP via all-to-all"}) {
    EXPECT_EQ(degrees_of({{"variant", words}}), (Degrees{1, 8, 8})) << words;
  }
  EXPECT_EQ(degrees_of({{"framework", "DeepSpeed-Ulysses"}}), (Degrees{1, 8, 8}));
  EXPECT_EQ(degrees_of({{"schedule", "none"}}), (Degrees{1, 8, 8}));
  EXPECT_EQ(degrees_of({{"notes", "no context parallelism"}}), (Degrees{8, 1, 8}));
}

TEST(LeftoverRanks, AreCopiesOrShardsOfStatesThatGroupsShare) {
  for (const char* words :
       {"HSDP", "dp_replicate=8, dp_shard=8", "HSDP 8x8", "hybrid_shard in a node"}) {
    EXPECT_EQ(degrees_of({{"notes", words}, {"zero_stage", "3"}}), (Degrees{1, 1, 64})) << words;
  }
  EXPECT_EQ(degrees_of({{"zero_stage", "HYBRID_SHARD"}, {"pp", "1"}}), (Degrees{1, 1, 64}));
  EXPECT_EQ(degrees_of({{"notes", "no HSDP"}, {"zero_stage", "3"}}), (Degrees{8, 1, 8}));
  // Their product is the stated dp: what is left over is something else.
  EXPECT_EQ(degrees_of({{"notes", "dp_replicate=2, dp_shard=4"}}), (Degrees{8, 1, 8}));
}

// Some sources print the ranks that hold one expert.
TEST(LeftoverRanks, AreThoseThatExpertsAreSpreadOver) {
  const Changes experts = {{"experts", "8"},    {"top_k", "2"}, {"moe_ffn_hidden", "1024"},
                           {"ep", "8"},         {"pp", "4"},    {"dp", "2"},
                           {"schedule", "1f1b"}};
  EXPECT_EQ(degrees_of(experts), (Degrees{4, 1, 16}));
  Changes contexts = experts;
  contexts["notes"] = "context parallel";
  EXPECT_EQ(degrees_of(contexts), (Degrees{4, 8, 2}));
  Changes others = experts;
  others["dp"] = "4";  // of 64 = 4 x 4 x 4
  EXPECT_EQ(degrees_of(others), (Degrees{4, 4, 4}));
}

TEST(LeftoverRanks, EveryReadingIsNoted) {
  const auto assumed = [](Changes changes) {
    changes.insert({{"tp", "1"}, {"pp", ""}, {"schedule", ""}, {"num_microbatches", ""}});
    return predicted(changes).assumed;
  };
  EXPECT_THAT(assumed({{"dp", "4"}, {"notes", "HSDP"}, {"zero_stage", "3"}}),
              Contains("dp 4 as 8 (as printed those of one group)"));
  EXPECT_THAT(assumed({{"dp", "4"}, {"variant", "Ulysses"}, {"vpp", ""}}),
              Contains("cp 2 (context parallelism takes the rest)"));
  // A dp that contradicts the other degrees.
  EXPECT_THAT(assumed({{"cp", "8"}, {"dp", "8"}}), Contains("dp 8 as 1"));
}

TEST(RanksOverSequences, InOtherWords) {
  const auto context = [](Changes changes) {
    changes.insert({{"tp", "1"}, {"gpus", "64"}, {"pp", "1"}, {"dp", ""}});
    const Measurement row = row_of(changes);
    return std::pair(row.cp.value_or(1), exchanges_heads(row));
  };
  EXPECT_EQ(context({{"variant", "DeepSpeed-Ulysses SP=8"}}), std::pair(std::int64_t{8}, true));
  EXPECT_EQ(context({{"notes", "Ulysses sequence parallel size 8"}}),
            std::pair(std::int64_t{8}, true));
  EXPECT_EQ(context({{"notes", "sp=8"}}), std::pair(std::int64_t{8}, false));
  EXPECT_EQ(context({{"notes", "sp=8"}, {"framework", "Megatron-DeepSpeed"}}),
            std::pair(std::int64_t{8}, true));
  EXPECT_EQ(context({{"notes", "sp=8"}, {"tp", "8"}}), std::pair(std::int64_t{1}, false));
  EXPECT_EQ(context({{"notes", "sp=1"}}), std::pair(std::int64_t{1}, false));
  EXPECT_EQ(context({{"sequence_parallel", "Ulysses 8"}}), std::pair(std::int64_t{8}, true));
  EXPECT_EQ(context({{"sequence_parallel", "8"}, {"framework", "DeepSpeed"}}),
            std::pair(std::int64_t{8}, true));
  EXPECT_EQ(context({{"cp", "8"}, {"framework", "DeepSpeed"}, {"notes", "ring attention"}}),
            std::pair(std::int64_t{8}, false));
}

// Tensor ranks stay in a node: 12 GPUs are 4 on each of three, not 6 on two.
TEST(PartsOfNodes, HoldWholeTensorGroups) {
  const auto used = [](const std::string& gpus, const std::string& tp, const std::string& cp = "") {
    const auto cluster = row_cluster(row_of({{"gpus", gpus}, {"tp", tp}, {"cp", cp}}));
    return cluster ? cluster->node.gpus : 0;
  };
  EXPECT_EQ(used("12", "4"), 4);
  EXPECT_EQ(used("12", "2"), 6);
  EXPECT_EQ(used("12", "1"), 6);
  EXPECT_EQ(used("12", "2", "2"), 4);
  EXPECT_EQ(used("12", "4", "3"), 4);
  EXPECT_EQ(used("16", "8"), 8);
  EXPECT_EQ(used("32", "16"), 8);
  EXPECT_EQ(used("20", "4"), 4);
  EXPECT_EQ(used("6", "4"), 6);  // one node
  EXPECT_EQ(used("9", "1"), 0);
}

// 257 patches of an image are in no equal parts on eight ranks.
TEST(AssumedSequenceParallelism, OnlyWhereRanksShareTheSequence) {
  const auto parallel = [](const std::string& length, const std::string& stated) {
    Measurement row = row_of({{"framework", "NeMo"},
                              {"seq_len", length},
                              {"sequence_parallel", stated},
                              {"confidence", "partial"}});
    assume_defaults(row);
    return row.sequence_parallel.value_or(false);
  };
  EXPECT_TRUE(parallel("2048", ""));
  EXPECT_FALSE(parallel("2047", ""));
  EXPECT_TRUE(parallel("2047", "1"));
  const RowResult images = predicted({{"framework", "NeMo"},
                                      {"model_family", "vit"},
                                      {"model_name", "ViT-22B"},
                                      {"layers", ""},
                                      {"hidden", ""},
                                      {"heads", ""},
                                      {"vocab", ""},
                                      {"seq_len", "257"},
                                      {"tp", "8"},
                                      {"pp", "1"},
                                      {"dp", "1"},
                                      {"sequence_parallel", ""},
                                      {"confidence", "partial"}});
  EXPECT_GT(images.predicted, 0) << images.skipped_because;
  EXPECT_THAT(images.assumed, Not(Contains(HasSubstr("vocab"))));
}

}  // namespace
}  // namespace orrery::studies
