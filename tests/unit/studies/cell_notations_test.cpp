// SPDX-License-Identifier: Apache-2.0
// Numbers, schedules and recomputation in the notations of other tables.
#include <gmock/gmock.h>

#include <array>
#include <utility>

#include "studies/rows/framework_facts.hpp"
#include "studies/rows/metric_name.hpp"
#include "studies/rows/named_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::predicted;
using testing::row_of;

TEST(CellNotations, CountsWithUnitsArePowersOfTwo) {
  const auto length = [](const std::string& cell) { return row_of({{"seq_len", cell}}).seq_len; };
  EXPECT_EQ(length("4K"), 4096);
  EXPECT_EQ(length("8k"), 8192);
  EXPECT_EQ(length("128 K"), 131072);
  EXPECT_EQ(length("1M"), 1048576);
  EXPECT_EQ(length("1.5K"), 1536);
  EXPECT_EQ(length("~32K (packed)"), 32768);
  EXPECT_EQ(row_of({{"hidden", "4K"}}).hidden, 4096);
  EXPECT_EQ(row_of({{"gpus", "1K"}}).gpus, 1024);
  EXPECT_EQ(row_of({{"global_batch", "2K"}}).global_batch, 2048);
  EXPECT_THAT(predicted({{"seq_len", "2K"}}).assumed, ElementsAre("seq_len 2K as 2048"));
  EXPECT_EQ(predicted({{"seq_len", "2K"}}).predicted, predicted({}).predicted);
  EXPECT_THAT(predicted({{"seq_len", "2048"}}).assumed, IsEmpty());
  for (const std::string bad : {"K", "4KB", "4G", "4K8", "k4"}) {
    EXPECT_THAT(message_of([&] { length(bad); }), HasSubstr("seq_len")) << bad;
  }
  for (const auto& [column, bad] : Changes{{"tp", "4K"}, {"layers", "1K"}, {"micro_batch", "1M"}}) {
    EXPECT_THAT(message_of([&] { row_of({{column, bad}}); }), HasSubstr("is not a number"));
  }
}

TEST(CellNotations, VocabulariesAreRoundedToThousandsOrPowersOfTwo) {
  const auto vocab = [](const std::string& cell) { return row_of({{"vocab", cell}}).vocab; };
  EXPECT_EQ(vocab("32K"), 32768);
  EXPECT_EQ(vocab("50k"), 50000);
  EXPECT_EQ(vocab("50.3k"), 50300);
  EXPECT_EQ(vocab("50,257"), 50257);
}

TEST(CellNotations, NumbersWithWhatTheyCount) {
  EXPECT_EQ(row_of({{"seq_len", "4,096 tokens"}}).seq_len, 4096);
  EXPECT_EQ(row_of({{"global_batch", "1 024"}}).global_batch, 1024);
  EXPECT_EQ(row_of({{"global_batch", "256 sequences"}}).global_batch, 256);
  EXPECT_EQ(row_of({{"gpus", "64 GPUs"}}).gpus, 64);
  EXPECT_EQ(row_of({{"gpus", "16x8"}}).gpus, 128);
  EXPECT_EQ(row_of({{"gpus", "16 x 8"}}).gpus, 128);
  for (const std::string bad : {"16x", "x8", "2x2x2", "16xA100", "99999999x99999999"}) {
    EXPECT_THAT(message_of([&] { row_of({{"gpus", bad}}); }), HasSubstr("gpus")) << bad;
  }
  EXPECT_THAT(message_of([] { row_of({{"layers", "24 tokens"}}); }), HasSubstr("layers"));
}

TEST(CellNotations, BatchesOfTokens) {
  const Changes four_million = {{"global_batch", "4M tokens"}};
  EXPECT_EQ(row_of(four_million).global_batch, 2048);  // of 2048 tokens
  EXPECT_THAT(row_of(four_million).remarks,
              ElementsAre("global_batch 4M tokens as 2048 sequences"));
  EXPECT_EQ(row_of({{"global_batch", "4,000,000 tokens"}}).global_batch, 1953);
  EXPECT_EQ(row_of({{"micro_batch", "4096 tokens"}}).micro_batch, 2);
  EXPECT_EQ(row_of({{"global_batch", "4M tokens (2048 sequences)"}}).global_batch, 2048);
  const Changes open = {{"global_batch", "4M tokens"}, {"seq_len", ""}};
  EXPECT_THAT(predict_training_row(row_of(open), 0).skipped_because, HasSubstr("without seq_len"));
}

TEST(CellNotations, ParametersInUnits) {
  const auto billions = [](const std::string& cell) {
    return row_of({{"params_b", cell}}).params_b.value();
  };
  EXPECT_DOUBLE_EQ(billions("7B"), 7);
  EXPECT_DOUBLE_EQ(billions("345M"), 0.345);
  EXPECT_DOUBLE_EQ(billions("1T"), 1000);
  EXPECT_DOUBLE_EQ(billions("6.7e9"), 6.7);
  EXPECT_DOUBLE_EQ(billions("1008"), 1008);
  EXPECT_DOUBLE_EQ(billions("671B (37B active)"), 671);
  EXPECT_DOUBLE_EQ(billions("7B (approx.)"), 7);
  EXPECT_EQ(row_of({{"params_b", "8x7B"}}).params_b, std::nullopt);
  EXPECT_THAT(row_of({{"params_b", "8x7B"}}).remarks, ElementsAre("params_b 8x7B as not stated"));
}

TEST(CellNotations, ChunksInTheScheduleCell) {
  for (const std::string cell :
       {"Interleaved 1F1B (vpp=3)", "interleaved, v=3", "1F1B interleaved VPP 3", "interleaved x3",
        "interleaved-1F1B (3 model chunks)", "Interleaved (virtual stages: 3)", "VPP=3", "vpp3"}) {
    const Measurement row = row_of({{"schedule", cell}, {"vpp", ""}});
    EXPECT_EQ(row.schedule, "interleaved") << cell;
    EXPECT_EQ(row.vpp, 3) << cell;
  }
  for (const std::string cell :
       {"interleaved 1F1B", "1F1B", "ZB-V", "GPipe (8 micro-batches)", "1F1B, 2 stages",
        "interleaved (Megatron v0.9)", "interleaved (Megatron-LM v3)",
        "interleaved, 4 pipeline stages", "interleaved 8 micro-batches"}) {
    EXPECT_EQ(chunks_in_schedule(cell), std::nullopt) << cell;
  }
  const Changes other = {{"schedule", "interleaved (vpp=3)"}, {"vpp", "2"}};
  EXPECT_EQ(row_plan(row_of(other)).value().chunks, 2);
  EXPECT_THAT(predicted(other).assumed, Contains("vpp 2, not the 3 of \"interleaved (vpp=3)\""));
  EXPECT_EQ(row_of({{"schedule", "interleaved"}, {"vpp", ""}, {"variant", "vpp=4"}}).vpp, 4);
  const Changes stated = {{"schedule", "1F1B (vpp=2)"}, {"vpp", ""}};
  EXPECT_EQ(row_plan(row_of({{"schedule", "interleaved"}, {"vpp", "2"}})).value().chunks, 2);
  EXPECT_THAT(predicted(stated).assumed, Contains("schedule 1f1b with vpp 2 as interleaved"));
}

TEST(CellNotations, TheWayThatContextRanksShareASequence) {
  const auto way = [](const std::string& cp) {
    return row_plan(row_of({{"cp", cp}, {"dp", "1"}, {"global_batch", "8"}}))
        .value()
        .layout_of(1)
        .context;
  };
  EXPECT_EQ(way("2 (Ulysses)"), plan::ContextParallel::Ulysses);
  EXPECT_EQ(way("2 (ring)"), plan::ContextParallel::Ring);
  EXPECT_EQ(way("2"), plan::ContextParallel::Ring);
}

TEST(CellNotations, ScalesOfFp8) {
  const auto scaling = [](const std::string& precision, const std::string& framework) {
    const Measurement row = row_of({{"precision", precision}, {"framework", framework}});
    return row_execution(row, framework_of(row).facts).fp8_scaling;
  };
  EXPECT_EQ(scaling("FP8 (delayed scaling)", "torchtitan"), plan::Fp8Scaling::Delayed);
  EXPECT_EQ(scaling("fp8", "torchtitan"), plan::Fp8Scaling::Current);
  EXPECT_EQ(scaling("fp8 (block-wise)", "NeMo"), plan::Fp8Scaling::Blocks);
  EXPECT_EQ(scaling("fp8 current scaling", "NeMo"), plan::Fp8Scaling::Current);
  EXPECT_EQ(scaling("fp8", "NeMo"), plan::Fp8Scaling::Delayed);
}

TEST(CellNotations, PipelinesWithoutAScheduleRun1f1b) {
  EXPECT_THAT(predicted({{"schedule", "none"}}).assumed,
              ElementsAre("schedule none of 2 stages as 1f1b"));
  EXPECT_EQ(predicted({{"schedule", "none"}}).predicted, predicted({}).predicted);
}

TEST(CellNotations, SchedulesInSentences) {
  const auto schedule = [](const std::string& cell) {
    return row_of({{"schedule", cell}}).schedule;
  };
  EXPECT_EQ(schedule("1F1B, no interleaving"), "1f1b");
  EXPECT_EQ(schedule("1F1B without interleaving"), "1f1b");
  EXPECT_EQ(schedule("non-interleaved 1F1B schedule"), "1f1b");
  EXPECT_EQ(schedule("1F1B with interleaving"), "interleaved");
  EXPECT_EQ(schedule("Zero Bubble (ZB-H1)"), "zb-h1");
  EXPECT_EQ(schedule("Zero Bubble (ours)"), "zb-1p");
  EXPECT_EQ(schedule("Seq1F1B"), "seq1f1b");
  EXPECT_EQ(schedule("PipeDream 2BW"), "pipedream-2bw");
  EXPECT_EQ(schedule("eager 1F1B"), "eager 1f1b");  // another one, which is not known
}

StatedRecompute stated_in(const Changes& changes) {
  const Measurement row = row_of(changes);
  return stated_recompute(row, framework_of(row).facts).value();
}

TEST(CellNotations, RecomputationOfSomeLayers) {
  const auto share = [](const std::string& cell, const std::string& detail = "") {
    const StatedRecompute stated = stated_in({{"recompute", cell}, {"recompute_detail", detail}});
    return std::pair(stated.share, stated.every);
  };
  EXPECT_EQ(share("50%"), std::pair(1, 2));
  EXPECT_EQ(share("25 % of layers"), std::pair(1, 4));
  EXPECT_EQ(share("20 of 32 layers"), std::pair(5, 8));
  EXPECT_EQ(share("1/2 of layers"), std::pair(1, 2));
  EXPECT_EQ(share("custom", "50% of layers"), std::pair(1, 2));
  EXPECT_EQ(share("100%"), std::pair(1, 1));
  EXPECT_EQ(stated_in({{"recompute", "attn+mlp"}}).operators,
            stated_in({{"recompute", "attention+mlp"}}).operators);
  EXPECT_EQ(stated_in({{"recompute", "100%"}}).operators, "full");
  EXPECT_EQ(stated_in({{"recompute", "0%"}}).operators, "none");

  const auto first = [](const std::string& cell, const std::string& detail = "") {
    return stated_in({{"recompute", cell}, {"recompute_detail", detail}}).first;
  };
  EXPECT_EQ(first("8 layers"), 8);
  EXPECT_EQ(first("partial (8 layers)"), 8);
  EXPECT_EQ(first("full", "8 layers"), 8);
  EXPECT_EQ(first("custom", "first 4 layers"), 4);
  EXPECT_EQ(first("full", "uniform, 1 layer"), 0);
  EXPECT_EQ(first("full", "all 24 layers"), 0);
  EXPECT_EQ(first("full", "every 2 layers"), 0);
}

TEST(CellNotations, FlagsOfRecomputationLeaveTheKindToTheDetail) {
  EXPECT_EQ(stated_in({{"recompute", "yes (selective)"}}).operators, "selective");
  EXPECT_EQ(stated_in({{"recompute", "1"}, {"recompute_detail", "selective"}}).operators,
            "selective");
  EXPECT_EQ(stated_in({{"recompute", "1"}, {"recompute_detail", "not selective"}}).operators,
            "full");
}

// As where nothing is stated: the least that fits.
TEST(CellNotations, RecomputationInWordsOfNoMeaningIsChosen) {
  const Changes large = {{"hidden", "8192"},      {"heads", "64"},   {"layers", "40"},
                         {"seq_len", "8192"},     {"tp", "4"},       {"dp", "1"},
                         {"global_batch", "8"},   {"recompute", ""}, {"confidence", "partial"},
                         {"recompute_detail", ""}};
  const RowResult open = predicted(large);
  ASSERT_THAT(open.assumed, Contains(HasSubstr("that fits"))) << open.skipped_because;
  Changes partial = large;
  partial["recompute"] = "partial";
  const RowResult words = predicted(partial);
  EXPECT_EQ(words.predicted, open.predicted);
  EXPECT_THAT(words.assumed, Contains("recomputation \"partial\" as not stated"));
  Changes custom = large;
  custom["recompute"] = "custom";
  EXPECT_THAT(predicted(custom).assumed, Contains("recomputation \"custom\" as not stated"));
}

TEST(CellNotations, OptimizerShardingInOtherWords) {
  const auto stage = [](const std::string& cell) {
    return row_of({{"zero_stage", cell}}).zero_stage;
  };
  EXPECT_EQ(stage("FSDP (SHARD_GRAD_OP)"), 2);
  EXPECT_EQ(stage("FSDP (full shard)"), 3);
  EXPECT_EQ(stage("FSDP (reshard after forward)"), 3);
  EXPECT_EQ(stage("ZeRO-1 + distributed optimizer"), 1);
  EXPECT_EQ(stage("fully sharded"), 3);
  EXPECT_EQ(stage("ZeRO-2/3"), std::nullopt);
}

TEST(CellNotations, UnitsBehindTheValue) {
  const auto figure = [](const std::string& metric, const std::string& value) {
    const Measurement row = row_of({{"measured_metric", metric}, {"measured_value", value}});
    return std::pair(row.metric, row.value);
  };
  EXPECT_EQ(figure("step time", "5.1 s"), std::pair(std::string("iteration_s"), 5.1));
  EXPECT_EQ(figure("iteration time", "2000 ms"), std::pair(std::string("iteration_s"), 2.0));
  EXPECT_EQ(figure("throughput", "3,000 tok/s/GPU"),
            std::pair(std::string("tokens_per_s_per_gpu"), 3000.0));
  EXPECT_EQ(figure("MFU", "45 %"), std::pair(std::string("mfu"), 0.45));
  for (const std::string bad : {"5 bananas", "5 s s2", "5 GiB", "2,0"}) {  // of iteration_s
    EXPECT_THAT(message_of([&] { figure("iteration_s", bad); }), HasSubstr("is not a number"))
        << bad;
  }
}

TEST(CellNotations, UnitsOfTheValueItself) {
  const auto figure = [](const std::string& metric, const std::string& value) {
    const Measurement row = row_of({{"measured_metric", metric}, {"measured_value", value}});
    EXPECT_EQ(row.remarks.size(), 1U) << value;
    return row.value;
  };
  EXPECT_DOUBLE_EQ(figure("iteration_s", "2000 ms"), 2);
  EXPECT_DOUBLE_EQ(figure("iteration_s", "2000ms"), 2);
  EXPECT_DOUBLE_EQ(figure("iteration_s", "2 min"), 120);
  EXPECT_DOUBLE_EQ(figure("layer_forward_ms", "0.5 s"), 500);
  EXPECT_DOUBLE_EQ(figure("peak_mem_gib", "30720 MiB"), 30);
  EXPECT_DOUBLE_EQ(figure("tokens_per_s", "8k"), 8000);
  EXPECT_DOUBLE_EQ(figure("mfu", "45"), 0.45);
  EXPECT_THAT(row_of({{"measured_value", "2000 ms"}}).remarks,
              ElementsAre("measured_value 2000 ms as iteration_s 2"));
  EXPECT_THAT(row_of({{"measured_value", "2 s"}}).remarks, ::testing::IsEmpty());
  EXPECT_DOUBLE_EQ(row_of({{"measured_value", "2.0 s/it"}}).value, 2);
  EXPECT_DOUBLE_EQ(row_of({{"measured_value", "2.0 \xC2\xB1 0.1 s"}}).value, 2);
  EXPECT_DOUBLE_EQ(row_of({{"measured_value", "2.0+/-0.1"}}).value, 2);
  EXPECT_EQ(metric_name("steps per second").name, "iterations_per_s");
}

TEST(CellNotations, FiguresInWordsSayWhyTheyAreNone) {
  const auto reason = [](const std::string& value) {
    return predicted({{"measured_value", value}}).skipped_because;
  };
  EXPECT_EQ(reason("OOM"), "measured_value \"OOM\": the run did not fit");
  EXPECT_EQ(reason("50%"), "measured_value \"50%\": iteration_s is no share");
  EXPECT_EQ(reason(">2"), "measured_value \">2\": a bound is no figure");
  EXPECT_EQ(predicted({{"measured_metric", "step time"}, {"measured_value", "2"}}).skipped_because,
            "metric \"step time\" cannot be compared (did you mean \"iteration_s\"?)");
  EXPECT_EQ(predicted({{"measured_metric", "tokens"}, {"measured_value", "2"}}).skipped_because,
            "metric \"tokens\" cannot be compared (did you mean \"tokens_per_s\"?)");
}

TEST(CellNotations, MetricsThatSayHowFlopsAreCounted) {
  const auto convention = [](const std::string& metric) {
    const Measurement row = row_of({{"measured_metric", metric}, {"measured_value", "150"}});
    EXPECT_EQ(row.metric, "tflops_per_gpu") << metric;
    return row.flops_convention;
  };
  EXPECT_EQ(convention("TFLOPs/GPU (HFU)"), "hardware FLOPs");
  EXPECT_EQ(convention("hardware TFLOP/s per GPU"), "hardware FLOPs");
  EXPECT_EQ(convention("model TFLOPS/GPU"), "model FLOPs");
}

TEST(CellNotations, CountsInOtherNotations) {
  EXPECT_EQ(row_of({{"seq_len", "2^11"}}).seq_len, 2048);
  EXPECT_EQ(row_of({{"seq_len", "2**11"}}).seq_len, 2048);
  EXPECT_EQ(row_of({{"tp", "TP2"}}).tp, 2);
  EXPECT_EQ(row_of({{"pp", "pp=2"}}).pp, 2);
  EXPECT_EQ(row_of({{"gpus", "2 nodes x 8 GPUs"}}).gpus, 16);
  EXPECT_EQ(row_of({{"params_b", "1.0B params"}}).params_b, 1.0);
  EXPECT_EQ(row_of({{"tp", "2-way"}}).tp, 2);
  EXPECT_EQ(row_of({{"pp", "2 stages"}}).pp, 2);
  EXPECT_EQ(row_of({{"global_batch", "16 seqs"}}).global_batch, 16);
  EXPECT_EQ(row_of({{"global_batch", "32768 tok"}}).global_batch, 16);
  EXPECT_EQ(row_of({{"sequence_parallel", "Y"}}).sequence_parallel, true);
  for (const std::string bad : {"2^", "^2", "2*3", "2^1.5", "2^9999"}) {
    EXPECT_THAT(message_of([&] {
                  row_of({{"seq_len", bad}});
                }),
                HasSubstr("is not a number"))
        << bad;
  }
  EXPECT_THAT(message_of([] {
                row_of({{"sequence_parallel", "maybe"}});
              }),
              HasSubstr("maybe is no flag (0, 1, yes or no)"));
}

TEST(CellNotations, MetricsAndPrecisionsInOtherWords) {
  EXPECT_EQ(metric_name("TGS").name, "tokens_per_s_per_gpu");
  EXPECT_EQ(metric_name("TPS/GPU").name, "tokens_per_s_per_gpu");
  EXPECT_EQ(metric_name("TPS").name, "tokens_per_s_of_some");  // of a GPU or of all?
  EXPECT_EQ(metric_name("images/s").name, "samples_per_s");
  EXPECT_DOUBLE_EQ(metric_name("HFU (%)").scale, 0.01);
  EXPECT_EQ(row_of({{"precision", "Mixed precision"}}).precision, "mixed");
}

// Letters before a number and words behind it say what the column counts anyway.
TEST(CellNotations, CountsBetweenWords) {
  for (const char* cell : {"TP-2", "t=2", "2-way TP", "2 ranks", "tp: 2"}) {
    EXPECT_EQ(row_of({{"tp", cell}}).tp, 2) << cell;
  }
  for (const char* cell : {"MBS=1", "1 sequence", "1 sample per GPU"}) {
    EXPECT_EQ(row_of({{"micro_batch", cell}}).micro_batch, 1) << cell;
  }
  for (const char* cell : {"GBS 16", "16 sequence", "16 sequences per step"}) {
    EXPECT_EQ(row_of({{"global_batch", cell}}).global_batch, 16) << cell;
  }
  for (const char* cell : {"8 GPU", "8 GPUs", "2 nodes (8 GPUs)"}) {
    EXPECT_EQ(row_of({{"gpus", cell}}).gpus, 8) << cell;
  }
  EXPECT_EQ(row_of({{"gpus_per_node", "8 GPUs/node"}}).gpus_per_node, 8);
  EXPECT_EQ(row_of({{"layers", "24-layer"}}).layers, 24);
  EXPECT_EQ(row_of({{"layers", "L=24"}}).layers, 24);
  EXPECT_EQ(row_of({{"hidden", "h=2048"}}).hidden, 2048);
  EXPECT_EQ(row_of({{"num_microbatches", "8 micro-batches"}}).num_microbatches, 8);
  EXPECT_EQ(row_of({{"kv_heads", "8 groups"}}).kv_heads, 8);
  EXPECT_EQ(row_of({{"kv_heads", "GQA-8"}}).kv_heads, 8);
  EXPECT_EQ(row_of({{"seq_len", "2Ki"}}).seq_len, 2048);
  EXPECT_EQ(row_of({{"params_b", "1.3 billion"}}).params_b, 1.3);
  EXPECT_EQ(row_of({{"sequence_parallel", "\xE2\x9C\x93"}}).sequence_parallel, true);
  const auto refused =
      std::to_array<std::pair<const char*, const char*>>({{"tp", "PP=2"},
                                                          {"gpus", "8 H100"},
                                                          {"gpus", "8 GB200"},
                                                          {"gpus", "8 DGX"},
                                                          {"gpus", "8 nodes of 8"},
                                                          {"ffn_hidden", "4x"},
                                                          {"ffn_hidden", "4d"},
                                                          {"ffn_hidden", "2.0001h"},
                                                          {"global_batch", "4M seqs"},
                                                          {"layers", "4 layers per stage"},
                                                          {"layers", "24 million"},
                                                          {"tp", "2 to the node"},
                                                          {"pp", "2 or more"}});
  for (const auto& [column, cell] : refused) {
    EXPECT_THAT(message_of([&, name = column, text = cell] {
                  row_of({{name, text}});
                }),
                HasSubstr("is not a number"))
        << column << " " << cell;
  }
}

TEST(CellNotations, SchedulesInOtherWords) {
  for (const char* cell :
       {"one-forward-one-backward", "1F1B schedule", "1F1B pipeline", "standard 1F1B", "plain 1F1B",
        "Megatron 1F1B", "1F1B-flush", "PP (1F1B)", "non-interleaving",
        "forward_backward_pipelining_without_interleaving"}) {
    EXPECT_EQ(schedule_name(cell), "1f1b") << cell;
  }
  EXPECT_EQ(schedule_name("gpipe schedule"), "gpipe");
  EXPECT_EQ(schedule_name("zero-bubble-h1"), "zb-h1");
  EXPECT_EQ(schedule_name("zero bubble 2p"), "zb-2p");
  EXPECT_EQ(schedule_name("interleaved pipeline"), "interleaved");
  EXPECT_EQ(precision_name("FP4"), "nvfp4");
}

}  // namespace
}  // namespace orrery::studies
