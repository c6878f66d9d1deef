// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_experts.hpp"

#include <gmock/gmock.h>

#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::predicted;
using testing::row_of;

// Mixtral 8x7B on 64 GPUs: 8 data-parallel ranks of 4 tensor-parallel ones and 2 stages.
Changes mixtral(const std::string& column, const std::string& cell) {
  Changes changes = {{"model_family", "mixtral"},
                     {"layers", "32"},
                     {"hidden", "4096"},
                     {"heads", "32"},
                     {"kv_heads", "8"},
                     {"ffn_hidden", "14336"},
                     {"moe_ffn_hidden", "14336"},
                     {"gated_mlp", "1"},
                     {"vocab", "32000"},
                     {"experts", "8"},
                     {"top_k", "2"},
                     {"gpu", "H100-80GB-SXM"},
                     {"gpus", "64"},
                     {"inter_node", "8x400Gb IB NDR"},
                     {"framework", "Megatron-Core 0.12"},
                     {"tp", "4"},
                     {"pp", "2"},
                     {"ep", "8"},
                     {"dp", "8"},
                     {"global_batch", "64"},
                     {"measured_value", "1.0"}};
  changes[column] = cell;
  return changes;
}

int expert_tp(const Changes& changes) {
  return row_plan(row_of(changes)).value().layout_of(1).expert_tp;
}

TEST(StatedExperts, ExpertTensorParallelism) {
  EXPECT_EQ(expert_tp(mixtral("notes", "")), 0);
  for (const std::string one :
       {"ETP=1", "etp1", "expert tensor parallel 1", "expert_tensor_parallel_size 1",
        "parallel folding: ETP1", "--expert-tensor-parallel-size 1", "TP4EP8ETP1PP2",
        "expert tensor parallelism of 1", "no expert tensor parallelism"}) {
    EXPECT_EQ(expert_tp(mixtral("notes", one)), 1) << one;
    EXPECT_THAT(unread_experts(row_of(mixtral("notes", one))), IsEmpty()) << one;
  }
  EXPECT_EQ(expert_tp(mixtral("framework", "Megatron-Core 0.12 (ETP=1)")), 1);
  EXPECT_NE(predicted(mixtral("notes", "ETP=1")).predicted,
            predicted(mixtral("notes", "ETP=4")).predicted);
  EXPECT_EQ(predicted(mixtral("variant", "ETP1")).predicted,
            predicted(mixtral("notes", "ETP=1")).predicted);
}

TEST(StatedExperts, WordsThatStateNoExpertTensorParallelism) {
  for (const std::string none : {"setp 1", "expert parallel 8", "step 1", "ETP", "ETP=4"}) {
    EXPECT_EQ(expert_tp(mixtral("notes", none)), 0) << none;
  }
}

// Some of the tensor-parallel ranks, or fewer expert-parallel ones than these, which leaves copies.
TEST(StatedExperts, DegreesThatLeaveARestAreRead) {
  const Changes two = mixtral("notes", "ETP=2");
  EXPECT_EQ(expert_tp(two), 2);
  EXPECT_THAT(predicted(two).assumed, Not(Contains(HasSubstr("expert tensor parallelism"))));
  Changes few = mixtral("notes", "ETP=1");
  few["ep"] = "2";
  EXPECT_EQ(expert_tp(few), 1);
  EXPECT_EQ(predicted(few).skipped_because, "");
}

TEST(StatedExperts, DegreesThatPlansDoNotKnowAreNamed) {
  for (const std::string none : {"3", "8"}) {  // not of 4 ranks
    const Changes row = mixtral("notes", "ETP=" + none);
    EXPECT_EQ(expert_tp(row), 0);
    EXPECT_THAT(predicted(row).assumed, Contains("expert tensor parallelism " + none +
                                                 " with tp 4 and ep 8 as not stated"));
    EXPECT_EQ(predicted(row).skipped_because, "");
  }
  EXPECT_THAT(unread_experts(row_of({{"notes", "ETP=2"}})), IsEmpty());  // a dense network
}

}  // namespace
}  // namespace orrery::studies
