// SPDX-License-Identifier: Apache-2.0
// What a row says of overlap: what a clause names is on, what it denies is off, the rest is as the
// framework has it.
#include <gmock/gmock.h>

#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_overlap.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

plan::Execution execution(const std::string& framework, const std::string& overlap) {
  const Measurement row = testing::row_of({{"framework", framework}, {"overlap", overlap}});
  return row_execution(row, framework_of(row).facts);
}

std::vector<std::string> unread(const std::string& overlap, const std::string& stage = "1") {
  return unread_overlap(testing::row_of({{"overlap", overlap}, {"zero_stage", stage}}));
}

TEST(OverlapRows, WhatIsNamedIsOn) {
  for (const std::string overlap :
       {"grad RS+param AG overlap", "--overlap-grad-reduce --overlap-param-gather",
        "gradient sync overlapped, param all-gather overlapped", "DP overlap",
        "distributed optimizer overlap (inferred)"}) {
    const plan::Execution run = execution("Megatron-LM", overlap);
    EXPECT_TRUE(run.overlap_grad_reduce) << overlap;
    EXPECT_TRUE(run.overlap_param_gather) << overlap;
    EXPECT_FALSE(run.overlap_p2p) << overlap;
    EXPECT_FALSE(run.stream_tp) << overlap;
  }
  EXPECT_TRUE(
      execution("Megatron-LM", "DP all-reduce overlapped with backward").overlap_grad_reduce);
  EXPECT_TRUE(execution("Megatron-LM", "TP comm overlap").stream_tp);
  EXPECT_TRUE(execution("Megatron-LM", "TP/PP/DP overlap").stream_tp);
  EXPECT_TRUE(execution("Megatron-LM", "TP/PP/DP overlap").overlap_p2p);
  EXPECT_TRUE(execution("Megatron-LM", "TP/PP/DP overlap").overlap_param_gather);
}

TEST(OverlapRows, WhatIsDeniedIsOff) {
  EXPECT_FALSE(execution("NeMo", "no p2p overlap").overlap_p2p);
  EXPECT_FALSE(execution("NeMo", "p2p not overlapped").overlap_p2p);
  EXPECT_TRUE(execution("NeMo", "p2p not overlapped").overlap_grad_reduce);
  EXPECT_FALSE(execution("NeMo", "grad RS overlap; no TP overlap").stream_tp);
  EXPECT_FALSE(execution("NeMo", "TP GEMM overlap off").stream_tp);
  EXPECT_FALSE(execution("NeMo", "no overlap").overlap_grad_reduce);
  EXPECT_FALSE(execution("NeMo", "not overlapped").overlap_p2p);
  EXPECT_FALSE(execution("NeMo", "gradients summed after backward").overlap_grad_reduce);
}

TEST(OverlapRows, SettingsThatAreOff) {
  for (const std::string off :
       {"overlap_grad_reduce: False", "overlap_grad_reduce=0", "overlap_grad_reduce (off)",
        "--no-overlap-grad-reduce", "grad_reduce overlap = no", "DP overlap: N"}) {
    EXPECT_FALSE(execution("NeMo", off).overlap_grad_reduce) << off;
  }
  EXPECT_FALSE(execution("Megatron-LM", "tp_comm_overlap: N").stream_tp);
  EXPECT_FALSE(execution("NeMo", "overlap_p2p_comm=0").overlap_p2p);
  EXPECT_TRUE(execution("Megatron-LM", "overlap_p2p_comm=1").overlap_p2p);
}

TEST(OverlapRows, SettingsWithoutCommas) {
  const plan::Execution run = execution(
      "Megatron-LM", "overlap_grad_reduce=True overlap_param_gather=True tp_comm_overlap=False");
  EXPECT_TRUE(run.overlap_grad_reduce && run.overlap_param_gather);
  EXPECT_FALSE(run.stream_tp);
  EXPECT_TRUE(execution("Megatron-LM", "DP overlap true TP overlap false").overlap_grad_reduce);
}

// Megatron-LM batches the messages that it does not overlap.
TEST(OverlapRows, BatchedMessagesAreNotOverlapped) {
  EXPECT_FALSE(execution("NeMo", "batch_p2p_comm").overlap_p2p);
  EXPECT_FALSE(execution("NeMo", "batch_p2p_comm=True").overlap_p2p);
  EXPECT_TRUE(execution("NeMo", "batch_p2p_comm=False").overlap_p2p);
  EXPECT_FALSE(execution("Megatron-LM", "batch_p2p_comm=False").overlap_p2p);
}

TEST(OverlapRows, EverythingAndNothing) {
  for (const std::string overlap : {"all communication overlapped", "Everything overlapped",
                                    "all overlaps on", "full overlap"}) {
    const plan::Execution run = execution("Megatron-LM", overlap);
    EXPECT_TRUE(run.overlap_grad_reduce && run.overlap_param_gather) << overlap;
    EXPECT_TRUE(run.overlap_p2p && run.stream_tp) << overlap;
  }
  for (const std::string overlap : {"no communication overlap", "comm not overlapped"}) {
    const plan::Execution run = execution("NeMo", overlap);
    EXPECT_FALSE(run.overlap_grad_reduce || run.overlap_p2p || run.stream_tp) << overlap;
  }
  EXPECT_TRUE(execution("Megatron-LM", "DP comm overlapped").overlap_grad_reduce);
  EXPECT_FALSE(execution("NeMo", "no grad overlap").overlap_grad_reduce);
}

TEST(OverlapRows, OneWordIsOfEverything) {
  for (const std::string overlap : {"yes", "All", "full", "enabled", "true"}) {
    const plan::Execution run = execution("Megatron-LM", overlap);
    EXPECT_TRUE(run.overlap_grad_reduce && run.overlap_p2p && run.stream_tp) << overlap;
  }
  for (const std::string overlap : {"no", "disabled", "False", "0"}) {
    const plan::Execution run = execution("NeMo", overlap);
    EXPECT_FALSE(run.overlap_grad_reduce || run.overlap_p2p || run.stream_tp) << overlap;
  }
}

// "communication not overlapped" of one kind leaves the others as they are.
TEST(OverlapRows, OneKindIsNotEverything) {
  const plan::Execution data = execution("NeMo", "DP communication not overlapped");
  EXPECT_FALSE(data.overlap_grad_reduce);
  EXPECT_TRUE(data.overlap_p2p);
  const plan::Execution tensor =
      execution("NeMo", "tensor-parallel communication not overlapped; no overlap of p2p");
  EXPECT_TRUE(tensor.overlap_grad_reduce);
  EXPECT_FALSE(tensor.overlap_p2p);
  EXPECT_TRUE(execution("NeMo", "tensor-parallel communication overlapped").stream_tp);
  EXPECT_TRUE(execution("Megatron-LM", "DP grad reduce-scatter hidden").overlap_grad_reduce);
}

TEST(OverlapRows, OtherWordsChangeNothing) {
  for (const std::string overlap :
       {"", "CP p2p overlapped with attention", "FSDP: no reshard after forward",
        "framework defaults", "DP all-reduce (implementation not stated)",
        "backward: TP all-reduce overlapped with weight-gradient GEMM"}) {
    const plan::Execution run = execution("NeMo", overlap);
    EXPECT_TRUE(run.overlap_param_gather) << overlap;
    EXPECT_TRUE(run.overlap_p2p) << overlap;
    EXPECT_FALSE(execution("Megatron-LM", overlap).overlap_grad_reduce) << overlap;
    EXPECT_FALSE(execution("Megatron-LM", overlap).overlap_p2p) << overlap;
  }
}

// Kinds and one word for them.
TEST(OverlapRows, ListsOfKinds) {
  for (const std::string overlap : {"DP+TP+PP", "dp, tp, pp", "DP: yes; TP: yes; PP: yes",
                                    "DP=on, TP=on, PP=on", "TP & DP & p2p hidden"}) {
    const plan::Execution run = execution("Megatron-LM", overlap);
    EXPECT_TRUE(run.overlap_grad_reduce && run.overlap_param_gather) << overlap;
    EXPECT_TRUE(run.overlap_p2p && run.stream_tp) << overlap;
  }
  EXPECT_FALSE(execution("NeMo", "DP=yes, TP=no").stream_tp);
  EXPECT_TRUE(execution("NeMo", "DP=yes, TP=no").overlap_grad_reduce);
  EXPECT_TRUE(execution("Megatron-LM", "yes (default)").overlap_grad_reduce);
  EXPECT_TRUE(execution("Megatron-LM", "communication overlap").overlap_p2p);
}

TEST(OverlapRows, WordsThatNobodyKnowsAreRemarked) {
  using ::testing::ElementsAre;
  EXPECT_THAT(unread("grad RS overlap; gradeint sync"),
              ElementsAre("overlap \"gradeint sync\" as not stated (did you mean \"gradient\"?)"));
  EXPECT_THAT(
      unread("some; router overlap"),
      ElementsAre("overlap \"some\" as not stated", "overlap \"router overlap\" as not stated"));
  for (const std::string known :
       {"", "none (TP overlap, grad/param overlap and p2p overlap all off)", "framework defaults",
        "XLA latency hiding; FSDP in node, DP across nodes", "+misc", "yes", "DP=yes, TP=no",
        "bucketed all-reduce overlapped with backward, bucket_cap 25 MB", "no",
        "FSDP prefetch; mixed_precision=PURE", "CP p2p overlapped with attention",
        "FSDP: no reshard after forward; async p2p; CP all-gather exposed",
        "recipe-dependent (not in table)", "TP overlap; CP overlap; p2p overlap"}) {
    EXPECT_THAT(unread(known), ::testing::IsEmpty()) << known;
  }
  EXPECT_THAT(unread("+EP overlap"), ElementsAre("overlap \"+ep overlap\" as not stated"));
  EXPECT_THAT(testing::predicted({{"overlap", "foo"}}).assumed,
              ElementsAre("overlap \"foo\" as not stated"));
}

// Gathers and reductions by their own names are those of sharded parameters.
TEST(OverlapRows, CollectivesOfShardedParameters) {
  const auto sharded = [](const std::string& overlap, const std::string& framework = "FSDP") {
    const Measurement row = testing::row_of(
        {{"framework", framework}, {"overlap", overlap}, {"zero_stage", "3"}, {"tp", "1"}});
    EXPECT_THAT(unread_overlap(row), ::testing::IsEmpty()) << overlap;
    return row_execution(row, framework_of(row).facts);
  };
  for (const std::string off : {"no prefetch", "all-gather not overlapped",
                                "backward_prefetch=None", "parameters not prefetched"}) {
    EXPECT_FALSE(sharded(off).overlap_param_gather) << off;
    EXPECT_TRUE(sharded(off).overlap_grad_reduce) << off;
  }
  EXPECT_TRUE(sharded("backward prefetch only").overlap_param_gather);
  EXPECT_TRUE(sharded("all-gather not overlapped, reduce-scatter overlapped").overlap_grad_reduce);
  EXPECT_FALSE(sharded("reduce-scatter not overlapped").overlap_grad_reduce);
  EXPECT_FALSE(sharded("all-gather and reduce-scatter exposed").overlap_param_gather);
  EXPECT_THAT(unread("reduce-scatter overlapped"),
              ::testing::ElementsAre("overlap \"reduce-scatter overlapped\" as not stated"));
  EXPECT_THAT(unread("tp reduce-scatter in bf16", "3"), ::testing::SizeIs(1));
}

// A ladder of steps, each on top of those before it.
TEST(OverlapRows, StepsAddUp) {
  EXPECT_FALSE(execution("Megatron-LM", "+TP overlap").overlap_p2p);
  EXPECT_TRUE(execution("Megatron-LM", "+PP overlap").stream_tp);
  EXPECT_FALSE(execution("Megatron-LM", "+PP overlap").overlap_grad_reduce);
  EXPECT_TRUE(execution("Megatron-LM", "+DP overlap").overlap_p2p);
  EXPECT_TRUE(execution("Megatron-LM", "+misc").overlap_param_gather);
}

}  // namespace
}  // namespace orrery::studies
