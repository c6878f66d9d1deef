// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/measurement.hpp"

#include <gmock/gmock.h>

#include "tests/unit/base/testing.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::csv_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::row_of;

std::string message(const Changes& changes) {
  return message_of([&] { row_of(changes); });
}

TEST(MeasurementTest, ReadsTypedCells) {
  const Measurement row = row_of({{"kv_heads", "4"}, {"aux_metrics", "mfu=0.5; hfu=0.6"}});
  EXPECT_EQ(row.id, "r1");
  EXPECT_EQ(row.source, "t");
  EXPECT_EQ(row.layers, 24);
  EXPECT_EQ(row.kv_heads, 4);
  EXPECT_EQ(row.sequence_parallel, true);
  EXPECT_EQ(row.value, 2.0);
  EXPECT_TRUE(row.full);
  EXPECT_EQ(row.aux.at("mfu"), "0.5");
  EXPECT_EQ(row.aux.at("hfu"), "0.6");
  EXPECT_FALSE(row_of({{"confidence", "partial"}}).full);
}

TEST(MeasurementTest, BlankAndAbsentCellsAreNoValue) {
  const Measurement row = row_of({{"micro_batch", ""}, {"zero_stage", "n/a"}});
  EXPECT_FALSE(row.micro_batch.has_value());
  EXPECT_FALSE(row.zero_stage.has_value());
  EXPECT_FALSE(row.experts.has_value());  // no such column
  EXPECT_FALSE(row_of({{"vpp", "max (1 layer per chunk)"}}).vpp.has_value());
}

TEST(MeasurementTest, NamesFileLineAndColumnOfBadCells) {
  EXPECT_THAT(message({{"layers", "many"}}), HasSubstr("t.csv:2"));
  EXPECT_THAT(message({{"layers", "many"}}), HasSubstr("layers"));
  EXPECT_THAT(message({{"layers", "many"}}), HasSubstr("\"many\" is not a number"));
  EXPECT_THAT(message({{"layers", "2.5"}}), HasSubstr("2.5 is not a count"));
  EXPECT_THAT(message({{"layers", "-1"}}), HasSubstr("out of range"));
  EXPECT_THAT(message({{"layers", "99999999"}}), HasSubstr("is not a count"));
  EXPECT_THAT(message({{"zero_stage", "4"}}), HasSubstr("from 0 to 3"));
  EXPECT_THAT(message({{"sequence_parallel", "2"}}), HasSubstr("from 0 to 1"));
  EXPECT_THAT(message({{"hidden", "1e400"}}), HasSubstr("is not a number"));
  EXPECT_THAT(message({{"hidden", "inf"}}), HasSubstr("is not a number"));
}

// As data frames write what is missing.
TEST(MeasurementTest, NotANumberIsABlank) {
  for (const char* blank : {"nan", "NaN", "not disclosed"}) {
    EXPECT_FALSE(row_of({{"hidden", blank}}).hidden.has_value()) << blank;
    EXPECT_FALSE(row_of({{"vpp", blank}}).vpp.has_value()) << blank;
    EXPECT_THAT(predict_training_row(row_of({{"hidden", blank}}), 0).skipped_because,
                HasSubstr("hidden is not stated"));
  }
}

// The rows beside it count.
TEST(MeasurementTest, BadCellsCostTheirRowAlone) {
  const std::string good = csv_of();
  const std::string bad = csv_of({{"id", "r2"}, {"layers", "many"}});
  const auto rows =
      read_measurements(parse_csv(bad + good.substr(good.find('\n') + 1), "t.csv"), "t");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].id, "r2");
  EXPECT_TRUE(rows[0].full);
  EXPECT_EQ(predict_training_row(rows[0], 0).skipped_because,
            "t.csv:2: layers: \"many\" is not a number");
  EXPECT_EQ(rows[1].unknown, "");
  EXPECT_THAT(predict_training_row(rows[1], 0).subject, ::testing::StartsWith("gpt, 8 x A100"));
  EXPECT_EQ(rows[1].layers, 24);
}

TEST(MeasurementTest, ConfidenceIsFullOrPartial) {
  const auto confidence = [](const std::string& cell) {
    const Measurement row = row_of({{"confidence", cell}});
    return std::pair(row.full, row.remarks);
  };
  const std::vector<std::string> none;
  EXPECT_EQ(confidence("Full "), std::pair(true, none));
  EXPECT_EQ(confidence("PARTIAL"), std::pair(false, none));
  EXPECT_EQ(confidence("ful"), std::pair(true, std::vector<std::string>{"confidence ful as full"}));
  EXPECT_EQ(confidence("partial?"),
            std::pair(false, std::vector<std::string>{"confidence partial? as partial"}));
  EXPECT_EQ(confidence("full (inferred)"),
            std::pair(true, std::vector<std::string>{"confidence full (inferred) as full"}));
  EXPECT_EQ(confidence(""),
            std::pair(false, std::vector<std::string>{"confidence not stated, as partial"}));
  EXPECT_EQ(confidence("high"),
            std::pair(false, std::vector<std::string>{
                                 "confidence high as partial (it is full or partial)"}));
}

TEST(MeasurementTest, IdsThatStandTwiceAreRemarked) {
  const std::string one = csv_of();
  const auto rows =
      read_measurements(parse_csv(one + one.substr(one.find('\n') + 1), "t.csv"), "t");
  EXPECT_TRUE(rows[0].remarks.empty());
  EXPECT_THAT(rows[1].remarks, ::testing::ElementsAre("id r1 is that of t.csv:2, too"));
}

TEST(MeasurementTest, RefusesFiguresThatAreNotPositive) {
  EXPECT_THAT(message({{"measured_value", "0"}}), HasSubstr("positive number is missing"));
  EXPECT_THAT(message({{"measured_value", "-3"}}), HasSubstr("out of range"));
  EXPECT_THAT(message({{"measured_value", "inf"}}), HasSubstr("is not a number"));
}

TEST(MeasurementTest, NamesMissingColumns) {
  std::string text = csv_of();
  const std::size_t column = text.find("hidden");
  text.replace(column, 6, "hiden_");
  EXPECT_THAT(message_of([&] { read_measurements(parse_csv(text, "t.csv"), "t"); }),
              HasSubstr("hidden"));
}

// Of a range the middle, where its ends are as near as those of one run.
TEST(MeasurementTest, RangesAreTheirMiddle) {
  const auto value = [](const std::string& cell, const std::string& metric = "iteration_s") {
    return row_of({{"measured_value", cell}, {"measured_metric", metric}}).value;
  };
  EXPECT_DOUBLE_EQ(value("8.0-8.2"), 8.1);
  EXPECT_DOUBLE_EQ(value("8.0 to 8.2 s"), 8.1);
  EXPECT_DOUBLE_EQ(value("8000..8200 ms"), 8.1);
  EXPECT_DOUBLE_EQ(value("0.40-0.42", "mfu"), 0.41);
  EXPECT_DOUBLE_EQ(value("40% - 42%", "mfu"), 0.41);
  EXPECT_DOUBLE_EQ(value("40-42%", "mfu"), 0.41);
  EXPECT_THAT(row_of({{"measured_value", "8.0-8.2"}}).remarks,
              ::testing::Contains("measured_value 8.0-8.2 as 8.1"));
  EXPECT_DOUBLE_EQ(value("8e-1"), 0.8);
  for (const std::string wide : {"4-8", "8.2-8.0", "a-b"}) {
    EXPECT_ANY_THROW(row_of({{"measured_value", wide}})) << wide;
  }
}

// What other columns count, and units of others, are no count and no figure of this one.
TEST(MeasurementTest, NounsOfOtherColumnsAreRefused) {
  for (const auto& [column, cell] :
       std::vector<std::pair<std::string, std::string>>{{"hidden", "8 GPUs"},
                                                        {"hidden", "24 layers"},
                                                        {"seq_len", "3 s"},
                                                        {"layers", "8 heads"},
                                                        {"vpp", "3 s"},
                                                        {"heads", "8 experts"}}) {
    EXPECT_ANY_THROW(row_of({{column, cell}})) << column << " " << cell;
  }
  EXPECT_EQ(row_of({{"heads", "32 query heads"}}).heads, 32);
  EXPECT_EQ(row_of({{"layers", "32 layers"}}).layers, 32);
  EXPECT_EQ(row_of({{"tp", "8 GPUs"}}).tp, 8);
  const auto unknown = [](const std::string& cell, const std::string& metric) {
    return row_of({{"measured_value", cell}, {"measured_metric", metric}}).unknown;
  };
  EXPECT_THAT(unknown("3 s", "tokens_per_s_per_gpu"), HasSubstr("is not in s"));
  EXPECT_THAT(unknown("8 GPUs", "tflops_per_gpu"), HasSubstr("is not in GPUs"));
  EXPECT_EQ(unknown("3 s", "iteration_s"), "");
  EXPECT_EQ(unknown("3 tokens/s", "tokens_per_s"), "");
}

// All that are missing at once; further columns are welcome, but not a misspelt one.
TEST(MeasurementTest, NamesEveryMissingAndMisspeltColumn) {
  const auto read = [](std::string_view from, std::string_view to) {
    std::string text = csv_of();
    text.replace(text.find(from), from.size(), to);
    return read_measurements(parse_csv(text, "t.csv"), "t");
  };
  EXPECT_THAT(message_of([&] { read("gpu,gpus", "a,b"); }),
              HasSubstr("t.csv: no column gpu, gpus"));
  EXPECT_THAT(
      message_of([&] { read("sequence_parallel", "sequence_paralel"); }),
      HasSubstr("unknown column \"sequence_paralel\" (did you mean \"sequence_parallel\"?)"));
  EXPECT_THAT(message_of([&] { read("measured_metric", "measured_metrics"); }),
              HasSubstr("unknown column \"measured_metrics\" (did you mean \"measured_metric\"?)"));
  for (const std::string other : {"seq_len (tokens)", "Sequence length", "seq_length"}) {
    EXPECT_THAT(message_of([&] { read("seq_len", other); }),
                HasSubstr("(did you mean \"seq_len\"?)"))
        << other;
  }
  EXPECT_THAT(message_of([&] { read("micro_batch", "mbs"); }),
              HasSubstr("unknown column \"mbs\" (did you mean \"micro_batch\"?)"));
  EXPECT_NO_THROW(read("sequence_parallel", "cluster_name"));
  EXPECT_NO_THROW(read("gpus_per_node", "gpus_per_rack"));
  EXPECT_NO_THROW(read(",vpp,", ",sp,"));
}

TEST(MeasurementTest, TruncatedFilesAreErrors) {
  const std::string text = csv_of();
  const std::string cut = text.substr(0, text.size() - 10);
  EXPECT_THAT(message_of([&] { read_measurements(parse_csv(cut, "t.csv"), "t"); }),
              HasSubstr("t.csv"));
}

}  // namespace
}  // namespace orrery::studies
