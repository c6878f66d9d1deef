// SPDX-License-Identifier: Apache-2.0
// Overlap in general words, with exceptions, and in remarks.
#include "studies/rows/overlap_words.hpp"

#include <gmock/gmock.h>

#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_overlap.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::execution_of;
using testing::row_of;

plan::Execution of_overlap(const std::string& overlap, const std::string& framework = "NeMo") {
  return execution_of({{"framework", framework}, {"overlap", overlap}});
}

TEST(OverlapWords, GeneralWordsAreOfEverything) {
  for (const std::string off :
       {"overlap off", "comm overlap: off", "communication overlap disabled", "overlap: none",
        "overlap=False", "w/o overlap", "N", "nothing", "none (all of it off)"}) {
    const plan::Execution run = of_overlap(off);
    EXPECT_FALSE(run.overlap_grad_reduce || run.overlap_param_gather || run.overlap_p2p) << off;
    EXPECT_TRUE(unread_overlap(row_of({{"overlap", off}})).empty()) << off;
  }
  for (const std::string on : {"comm overlap on", "Y", "communication overlap: on"}) {
    const plan::Execution run = of_overlap(on, "Megatron-LM");
    EXPECT_TRUE(run.overlap_grad_reduce && run.overlap_p2p && run.stream_tp) << on;
  }
  for (const std::string_view open : {"framework defaults", "not fully overlapped", "", "comm"}) {
    EXPECT_FALSE(overlap_of_everything(open)) << open;
  }
  EXPECT_FALSE(overlap_of_everything("overlap_comm=false"));  // DeepSpeed's, of gradients
}

TEST(OverlapWords, NothingStatedIsNotNothing) {
  for (const std::string blank :
       {"none stated", "none reported", "none mentioned", "none given", "not disclosed"}) {
    EXPECT_TRUE(row_of({{"overlap", blank}}).overlap.empty()) << blank;
    EXPECT_TRUE(of_overlap(blank).overlap_grad_reduce) << blank;
  }
}

TEST(OverlapWords, ExceptionsAndSingleKinds) {
  for (const std::string data : {"none except DP", "DP only", "only DP", "DP overlap only"}) {
    const plan::Execution run = of_overlap(data);
    EXPECT_TRUE(run.overlap_grad_reduce && run.overlap_param_gather) << data;
    EXPECT_FALSE(run.overlap_p2p || run.stream_tp) << data;
  }
  const plan::Execution but = of_overlap("all but TP", "Megatron-LM");
  EXPECT_TRUE(but.overlap_grad_reduce && but.overlap_p2p);
  EXPECT_FALSE(but.stream_tp);
  EXPECT_FALSE(of_overlap("yes (DP)", "Megatron-LM").stream_tp);
  EXPECT_TRUE(of_overlap("yes (DP)", "Megatron-LM").overlap_grad_reduce);
  EXPECT_TRUE(of_overlap("no (p2p)").overlap_grad_reduce);
  EXPECT_FALSE(of_overlap("no (p2p)").overlap_p2p);
}

// What stands at the end of a list is said of all of it; how something is done says nothing else.
TEST(OverlapWords, ListsAndMeans) {
  const plan::Execution none = of_overlap("TP, grad/param and p2p overlap disabled");
  EXPECT_FALSE(none.stream_tp || none.overlap_grad_reduce || none.overlap_p2p);
  const plan::Execution tensor = of_overlap("TP, no PP overlap");
  EXPECT_TRUE(tensor.stream_tp);
  EXPECT_FALSE(tensor.overlap_p2p);
  EXPECT_TRUE(of_overlap("TP AG/RS overlap via TE UB (bulk)", "Megatron-LM").stream_tp);
  EXPECT_FALSE(of_overlap("TP AG/RS overlap via TE UB (off)", "Megatron-LM").stream_tp);
  const plan::Execution open = of_overlap("DP all-reduce (how is not stated)", "Megatron-LM");
  EXPECT_EQ(open.overlap_grad_reduce, of_overlap("", "Megatron-LM").overlap_grad_reduce);
  EXPECT_FALSE(
      of_overlap("scatter-gather optimisation for pipeline p2p", "Megatron-LM").overlap_p2p);
  EXPECT_TRUE(of_overlap("p2p overlap with scatter/gather", "Megatron-LM").overlap_p2p);
  EXPECT_TRUE(of_overlap("async tensor parallel", "torchtitan").stream_tp);
}

// By the collectives' long and short names; alone they are those of data-parallel ranks where there
// are no others.
TEST(OverlapWords, CollectivesByAnyName) {
  const auto run = [](const std::string& overlap, const std::string& tp = "1",
                      const std::string& stage = "1") {
    return execution_of({{"framework", "PyTorch DDP"},
                         {"tp", tp},
                         {"zero_stage", stage},
                         {"year", "2020"},
                         {"overlap", "none; " + overlap}});
  };
  for (const char* words :
       {"grad-reduce", "gradient reduction", "gradient all-reduce", "DP allreduce hidden",
        "allreduce overlapped with backward", "AG/RS overlap", "RS+AG", "AR overlap"}) {
    EXPECT_TRUE(run(words).overlap_grad_reduce) << words;
    EXPECT_TRUE(unread_overlap(row_of({{"tp", "1"}, {"overlap", words}})).empty()) << words;
  }
  EXPECT_TRUE(run("AG/RS overlap").overlap_param_gather);
  EXPECT_FALSE(run("AR overlap").overlap_param_gather);
  EXPECT_FALSE(run("DP AR").overlap_param_gather);
  EXPECT_FALSE(run("no gradient all-reduce overlap").overlap_grad_reduce);
  EXPECT_FALSE(run("AR overlap", "2").overlap_grad_reduce);  // of whom?
  EXPECT_EQ(unread_overlap(row_of({{"overlap", "AR overlap"}})).size(), 1U);
  for (const char* words :
       {"all-gather", "AG+RS", "weight all-gather", "BACKWARD_PRE", "param-gather"}) {
    EXPECT_TRUE(run(words, "2", "3").overlap_param_gather) << words;
  }
}

TEST(OverlapWords, Denials) {
  EXPECT_FALSE(of_overlap("TP overlap not supported with this config", "Megatron-LM").stream_tp);
  const plan::Execution run =
      of_overlap("DP grad reduce overlapped with backward, param gather not");
  EXPECT_TRUE(run.overlap_grad_reduce);
  EXPECT_FALSE(run.overlap_param_gather);
}

TEST(OverlapWords, FlagsAreClauses) {
  const plan::Execution run = of_overlap("--no-overlap-grad-reduce --tp-comm-overlap");
  EXPECT_FALSE(run.overlap_grad_reduce);
  EXPECT_TRUE(run.stream_tp);
}

TEST(OverlapWords, RemarksStateIt) {
  const auto noted = [](const std::string& notes, const std::string& overlap = "") {
    return execution_of({{"framework", "NeMo"}, {"notes", notes}, {"overlap", overlap}});
  };
  EXPECT_TRUE(noted("TP comm overlap enabled").stream_tp);
  EXPECT_TRUE(noted("tp_comm_overlap=True").stream_tp);
  EXPECT_FALSE(noted("seed 1; --no-overlap-grad-reduce").overlap_grad_reduce);
  EXPECT_FALSE(noted("DP gradient all-reduce not overlapped").overlap_grad_reduce);
  const plan::Execution none = noted("no communication overlap");
  EXPECT_FALSE(none.overlap_grad_reduce || none.overlap_param_gather);
  // The column counts against remarks, and these may be of something else.
  EXPECT_TRUE(noted("no gradient overlap", "grad reduce overlap").overlap_grad_reduce);
  EXPECT_TRUE(noted("gradient checkpointing does not overlap").overlap_grad_reduce);
  EXPECT_FALSE(noted("TP overlap not supported").stream_tp);
  EXPECT_FALSE(noted("all overlaps as in the other run").stream_tp);
}

TEST(OverlapWords, RemarksOfShardedParameters) {
  const auto sharded = [](const std::string& notes) {
    return execution_of({{"framework", "PyTorch FSDP"}, {"zero_stage", "3"}, {"notes", notes}});
  };
  EXPECT_TRUE(sharded("").overlap_param_gather);
  EXPECT_FALSE(sharded("no prefetch").overlap_param_gather);
  EXPECT_FALSE(sharded("all-gather not overlapped").overlap_param_gather);
  EXPECT_FALSE(sharded("overlap_comm=false").overlap_grad_reduce);
}

// Longer and shorter than what a string holds in itself.
TEST(OverlapWords, NotesThatTurnAllOfItOffAreNamed) {
  for (const char* notes : {"no comm overlap", "overlap disabled", "communication overlap disabled",
                            "long words before it; communication overlap disabled"}) {
    EXPECT_EQ(unread_overlap(row_of({{"notes", notes}})).size(), 1U) << notes;
  }
}

}  // namespace
}  // namespace orrery::studies
