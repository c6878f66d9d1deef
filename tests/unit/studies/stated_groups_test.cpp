// SPDX-License-Identifier: Apache-2.0
// Groups of ranks that share states, stages of unlike depth and context ranks that exchange heads.
#include "studies/rows/stated_groups.hpp"

#include <gmock/gmock.h>

#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_context.hpp"
#include "studies/rows/stated_stages.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::predicted;
using testing::row_of;

int shards_of(const std::string& notes, const std::string& stage = "3") {
  return state_shards(row_of({{"gpus", "64"},
                              {"tp", "1"},
                              {"pp", "1"},
                              {"dp", "64"},
                              {"zero_stage", stage},
                              {"notes", notes}}));
}

TEST(StatedGroups, SizesOfThem) {
  for (const char* notes :
       {"HSDP with shard group of 16", "HSDP: shard group 16", "HSDP, sharding group size 16",
        "dp_shard=16, dp_replicate=4", "HSDP (shard 16 x replicate 4)", "shard 16 x replicate 4",
        "data_parallel_shard_degree=16", "MiCS partition size 16", "FSDP group of 16",
        "ici_fsdp_parallelism=16, dcn_data_parallelism=4", "fsdp 16 x dp 4", "dp_replicate=4",
        "FSDP size 16", "shard degree: 16", "optimizer-state sharding group: 16 ranks"}) {
    EXPECT_EQ(shards_of(notes), 16) << notes;
  }
  EXPECT_EQ(shards_of("num_distributed_optimizer_instances=16", "1"), 4);
  EXPECT_EQ(shards_of("ici_fsdp_parallelism=8, dcn_fsdp_parallelism=2"), 16);
}

TEST(StatedGroups, InsideANode) {
  for (const char* notes : {"FSDP within a node, DP across nodes", "FSDP inside node",
                            "intra-node sharding", "HSDP", "FSDP in node"}) {
    EXPECT_EQ(shards_of(notes), 8) << notes;
  }
  EXPECT_EQ(shards_of("ZeRO-1 within node", "1"), 8);
  EXPECT_EQ(shards_of("ZeRO-1 within node", "0"), 0);
  EXPECT_EQ(shards_of("HSDP (2 replicas)"), 32);
  const Changes tensor = {{"gpus", "64"}, {"tp", "2"},         {"pp", "1"},
                          {"dp", "32"},   {"zero_stage", "3"}, {"notes", "HSDP"}};
  EXPECT_EQ(state_shards(row_of(tensor)), 4);
}

TEST(StatedGroups, OthersNameNone) {
  for (const char* notes :
       {"no HSDP", "FSDP2 prefetch", "FSDP=1 (Megatron-FSDP)", "FSDP shards over dp*cp",
        "dp_shard=-1", "dataset shards in node-local storage", "replicate 3 runs", "data shard 4",
        ""}) {
    EXPECT_EQ(shards_of(notes), 0) << notes;
  }
}

TEST(StatedGroups, SaysWhatIsNotRead) {
  const auto lines = [](const std::string& notes) {
    return unread_groups(row_of({{"zero_stage", "3"}, {"notes", notes}}));
  };
  EXPECT_THAT(lines("ZeRO++ hpZ=8"), ElementsAre(HasSubstr("hpz=8")));
  EXPECT_THAT(lines("shard groups: rows of 8 ranks"),
              ElementsAre("\"shard groups: rows of 8 ranks\": groups of ranks as not stated"));
  EXPECT_THAT(lines("HSDP: shard group 2"), IsEmpty());
  EXPECT_THAT(lines("ZeRO-1 over all DP ranks"), IsEmpty());
}

std::vector<int> stages_stated(const std::string& notes, int blocks = 80, int chunks = 1) {
  return stated_stages(row_of({{"notes", notes}}), {blocks, 4, chunks});
}

TEST(StatedStages, Lists) {
  for (const char* notes : {"layers per stage: 18/20/20/20", "Layers per stage: 18, 20, 20, 20",
                            "pipeline split 18/20/20/20", "layers per stage 18-20-20-20",
                            "layers per stage (embedding and head counted): [19, 20, 20, 21]"}) {
    EXPECT_THAT(stages_stated(notes), ElementsAre(19, 20, 20, 21)) << notes;
  }
  EXPECT_THAT(stages_stated("layers per stage: 18/20/20"), IsEmpty());
  EXPECT_THAT(stages_stated("layers per stage: 18/20/20/99"), IsEmpty());
  EXPECT_THAT(stages_stated("20 layers per stage; 4 nodes"), IsEmpty());
}

TEST(StatedStages, EndsOfTheirOwn) {
  const std::string both =
      "decoder_first_pipeline_num_layers=17 decoder_last_pipeline_num_layers=19";
  EXPECT_THAT(stages_stated(both), ElementsAre(18, 21, 21, 20));
  EXPECT_THAT(stages_stated("num-layers-in-first-pipeline-stage 18"), ElementsAre(19, 20, 20, 21));
  EXPECT_THAT(stages_stated("first stage 18 layers, last stage 18 layers"),
              ElementsAre(19, 21, 21, 19));
  EXPECT_THAT(stages_stated("decoder_first_pipeline_num_layers=12", 80, 2),
              ElementsAre(7, 11, 11, 11, 6, 11, 11, 12));
  for (const char* notes :
       {"first and last stages hold one fewer layer", "First and last stage hold one layer fewer",
        "account_for_embedding_in_pipeline_split=True, account_for_loss_in_pipeline_split"}) {
    EXPECT_THAT(stages_stated(notes), ElementsAre(20, 20, 20, 20)) << notes;
  }
  EXPECT_THAT(stages_stated("embedding and loss count as one layer slot each"),
              ElementsAre(20, 20, 20, 20));
  EXPECT_THAT(stages_stated("account_for_embedding_in_pipeline_split", 81),
              ElementsAre(20, 20, 20, 21));
  EXPECT_THAT(stages_stated("account_for_loss_in_pipeline_split=False"), IsEmpty());
  EXPECT_THAT(stages_stated("one layer fewer than the published network"), IsEmpty());
}

// Megatron-Core's --pipeline-model-parallel-layout.
TEST(StatedStages, DrawnByLetters) {
  EXPECT_THAT(stages_stated("pipeline layout Et*18|(t*20|)*2t*20L"), ElementsAre(19, 20, 20, 21));
  EXPECT_THAT(stages_stated("layout='E(tt)*9|t*20|t*20|(tttt)*5mL'"), ElementsAre(19, 20, 20, 21));
  for (const char* notes :
       {"layout Et*18|t*20|t*40L", "layout Et*17|(t*20|)*2t*20L", "layout Et*|(t|)*L",
        "layout Et*18|)t*20|t*20|t*20L", "layout Et*99999999999|tL", "layout Ett|||L"}) {
    EXPECT_THAT(stages_stated(notes), IsEmpty()) << notes;
  }
}

TEST(StatedStages, SaysWhatIsNotRead) {
  const auto lines = [](const std::string& notes) {
    return unread_stages(row_of({{"pp", "2"}, {"notes", notes}}));
  };
  EXPECT_THAT(lines("pipeline layout Et*11|t*12L"),
              ElementsAre("\"pipeline layout et*11|t*12l\": layers of the stages as even"));
  EXPECT_THAT(lines("layers per stage: 11/12"), ElementsAre(HasSubstr("as even")));
  EXPECT_THAT(lines("layers per stage: 11/13"), IsEmpty());
  EXPECT_THAT(lines("12 layers per stage"), IsEmpty());
}

TEST(StatedContext, ExchangesOfHeads) {
  for (const char* notes : {"cp_comm_type=a2a", "CP via all-to-all", "CP is A2A", "Ulysses"}) {
    EXPECT_TRUE(exchanges_heads(row_of({{"notes", notes}}))) << notes;
  }
  EXPECT_TRUE(exchanges_heads(row_of({{"cp", "2 (a2a)"}})));
  EXPECT_TRUE(exchanges_heads(row_of({{"variant", "Ulysses"}})));
  for (const char* notes : {"no Ulysses", "MoE all-to-all; CP ring", "EP a2a", "cp_comm_type=p2p",
                            "cp_comm_type=a2a+p2p"}) {
    EXPECT_FALSE(exchanges_heads(row_of({{"notes", notes}}))) << notes;
  }
}

TEST(StatedContext, VariantsThatAreReadAreNoPlainPlan) {
  for (const char* variant : {"Ulysses", "torch.compile", "8-bit AdamW", "HSDP: shard group 2"}) {
    EXPECT_THAT(predicted({{"framework", "PyTorch FSDP"},
                           {"tp", "1"},
                           {"pp", "1"},
                           {"dp", "8"},
                           {"zero_stage", "3"},
                           {"variant", variant}})
                    .assumed,
                Not(Contains(HasSubstr("plain plan"))))
        << variant;
  }
  EXPECT_THAT(predicted({{"variant", "my method"}}).assumed,
              Contains("\"my method\" as the plain plan"));
}

TEST(StatedGroups, CountsBeforeTheirNoun) {
  const auto shards = [](const std::string& notes) {
    return state_shards(row_of({{"gpus", "512"},
                                {"dp", "512"},
                                {"tp", "1"},
                                {"pp", "1"},
                                {"zero_stage", "3"},
                                {"notes", notes}}));
  };
  for (const char* notes :
       {"HSDP with 64-GPU shard groups", "HSDP, shard groups of 64 GPUs", "HSDP with 8 replicas",
        "8 replicas of 64-way FSDP", "ZeRO states sharded over 64 ranks",
        "optimizer states sharded in groups of 64 ranks", "HSDP: 8 shard groups of 64"}) {
    EXPECT_EQ(shards(notes), 64) << notes;
  }
  for (const char* notes :
       {"experts sharded over 64 ranks", "dataset sharded over 64 ranks",
        "8 replicas of the service", "weights sharded over 8 nodes", "tensor 8-way sharding",
        "no 8-way sharding", "embedding parameters sharded over 8 ranks"}) {
    EXPECT_EQ(shards(notes), 0) << notes;
  }
}

// Groups that trade heads for tokens, joined by rings.
TEST(StatedGroups, UlyssesAndRings) {
  const auto heads = [](const Changes& changes) {
    Changes row = {{"gpus", "16"}, {"tp", "1"}, {"pp", "1"}, {"dp", "1"}, {"cp", "16"}};
    row.insert(changes.begin(), changes.end());
    return row_plan(row_of(row)).value().blocks.front().layout.ulysses_degree;
  };
  EXPECT_EQ(heads({{"notes", "Ulysses 8 x ring 2"}}), 8);
  EXPECT_EQ(heads({{"notes", "2D attention: head parallel 4, context parallel 4"}}), 4);
  EXPECT_EQ(heads({{"notes", "ring attention"}}), 1);
  EXPECT_EQ(heads({{"notes", "Ulysses: 4 heads a rank"}}), 1);
  EXPECT_EQ(heads({{"notes", "Ulysses SP=16"}}), 1);  // all of them
}

}  // namespace
}  // namespace orrery::studies
