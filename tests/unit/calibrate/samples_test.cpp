// SPDX-License-Identifier: Apache-2.0
#include "calibrate/samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "calibrate/copies.hpp"
#include "tests/unit/calibrate/gemm_samples.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

std::string document(const std::string& sample) {
  return R"({"schema": "orrery-samples", "version": 1, "header": {"device": "Test GPU"},
             "samples": [)" +
         sample + "]}";
}

constexpr const char* kGemm =
    R"("kind": "gemm", "m": 128, "n": 256, "k": 512, "dtype": "bf16", "layout": "tn",
       "output": "fp32")";

SampleFile read(const std::string& text) {
  return read_samples(parse_json(text, "f.json"), "f.json");
}

std::string message(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Samples, ReadsAGemm) {
  const SampleFile file =
      read(document(std::string("{") + kGemm + R"(, "time_s": 2e-5, "source": "a.csv:3"})"));
  EXPECT_EQ(file.header.device, "Test GPU");
  ASSERT_EQ(file.samples.size(), 1U);
  const Sample& sample = file.samples[0];
  const GemmSample expected = {.m = 128, .n = 256, .k = 512, .output = DType::Fp32};
  EXPECT_EQ(std::get<GemmSample>(sample.shape), expected);
  EXPECT_EQ(sample.time.median.value(), 2e-5);
  EXPECT_EQ(sample.time.p25, sample.time.median);
  EXPECT_EQ(sample.source, "a.csv:3");
}

TEST(Samples, EveryKindSurvivesAFile) {
  SampleFile file;
  file.header = {.device = "Test GPU",
                 .gpu = "h100-sxm5-80gb",
                 .libraries = {{"cublasLt", "13.0.0"}},
                 .sm_clock_mhz = 1755,
                 .power_limit_w = 700,
                 .date = "2026-01-02T03:04:05Z",
                 .notes = {"one", "two"}};
  const GemmSample gemm = {.m = 1,
                           .n = 2,
                           .k = 3,
                           .groups = 4,
                           .layout = GemmLayout::NT,
                           .output = DType::Fp32,
                           .accumulate = true};
  const std::vector<Shape> shapes = {
      gemm,
      AttentionSample{.batch = 1,
                      .heads = 8,
                      .kv_heads = 2,
                      .q_len = 128,
                      .kv_len = 256,
                      .head_dim = 192,
                      .value_head_dim = 128,
                      .causal = false,
                      .window = 64,
                      .backward = true},
      MemorySample{.kernel = costmodel::MemoryKernel::CrossEntropy,
                   .operation = "cross-entropy",
                   .bytes_read = 10,
                   .rows = 2,
                   .columns = 5,
                   .backward = true},
      HostCopySample{.bytes = 4096, .direction = CopyDirection::Both, .pinned = false},
      LaunchSample{.count = 100, .graph = true, .host_only = true},
      CollectiveSample{.kind = sim::CommKind::SendReceive,
                       .bytes = 1024,
                       .ranks = 16,
                       .ranks_per_node = 8,
                       .nodes = 2,
                       .in_place = true,
                       .concurrent_groups = 2,
                       .beside = gemm,
                       .times_gemm = true}};
  for (const Shape& shape : shapes) {
    file.samples.push_back({.shape = shape,
                            .time = {Seconds(2e-6), Seconds(1e-6), Seconds(3e-6), 20},
                            .implementation = "cublasLt",
                            .source = "x.csv:7",
                            .flags = {.cold_l2 = true, .throttled = true}});
  }
  EXPECT_EQ(read_samples(parse_json(sample_text(file), "s.json"), "s.json"), file);
}

TEST(Samples, OneLineEach) {
  SampleFile file;
  file.header.device = "d";
  file.samples.assign(3, {.shape = LaunchSample{},
                          .time = {Seconds(1), Seconds(1), Seconds(1), 1},
                          .implementation = "",
                          .source = "",
                          .flags = {}});
  const std::string text = sample_text(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(Samples, RejectsTimesThatAreNone) {
  for (const char* time : {"0", "-1e-6", "1e9", "\"1 us\"", "null"}) {
    const std::string text =
        message(document(std::string("{") + kGemm + R"(, "time_s": )" + time + "}"));
    EXPECT_THAT(text, HasSubstr("f.json: /samples/0")) << time;
    EXPECT_THAT(text, HasSubstr("time_s")) << time;
  }
  EXPECT_THAT(message(document(std::string("{") + kGemm + R"(, "time_s": NaN})")),
              HasSubstr("f.json"));
  EXPECT_THAT(message(document(std::string("{") + kGemm + R"(, "time_s": 2e-6, "p25_s": 3e-6})")),
              HasSubstr("do not enclose the median"));
}

TEST(Samples, NamesTheSampleThatIsWrong) {
  const std::string good = std::string("{") + kGemm + R"(, "time_s": 1e-6})";
  const std::string bad = std::string("{") + kGemm + R"(, "time_s": 1e-6, "grups": 2})";
  const std::string text = message(document(good + "," + bad));
  EXPECT_THAT(text, HasSubstr("/samples/1"));
  EXPECT_THAT(text, HasSubstr("unknown key \"grups\""));
  EXPECT_THAT(text, HasSubstr("\"groups\""));
}

TEST(Samples, RejectsAnotherVersionAndSchema) {
  EXPECT_THAT(message(R"({"schema": "orrery-samples", "version": 2})"),
              HasSubstr("version 2 of orrery-samples"));
  EXPECT_THAT(message(R"({"schema": "orrery-plan", "version": 1})"), HasSubstr("orrery-samples"));
}

TEST(Samples, RejectsShapesThatCannotBe) {
  const auto with = [](const std::string& fields) {
    return message(document("{" + fields + R"(, "time_s": 1e-6})"));
  };
  EXPECT_THAT(with(R"("kind": "collective", "collective": "all-reduce", "bytes": 8, "ranks": 7,
                      "ranks_per_node": 4, "nodes": 2)"),
              HasSubstr("7 ranks are not 2 nodes of 4"));
  EXPECT_THAT(with(R"("kind": "collective", "collective": "copy", "bytes": 8, "ranks": 8,
                      "ranks_per_node": 4, "nodes": 2)"),
              HasSubstr("no collective"));
  EXPECT_THAT(with(R"("kind": "collective", "collective": "all-reduce", "bytes": 8, "ranks": 8,
                      "ranks_per_node": 4, "nodes": 2, "times_gemm": true)"),
              HasSubstr("without a GEMM"));
  EXPECT_THAT(with(R"("kind": "memory", "class": "norm", "operation": "x", "bytes_read": 0,
                      "bytes_written": 0, "dtype": "bf16")"),
              HasSubstr("moves no bytes"));
  EXPECT_THAT(with(R"("kind": "attention", "batch": 1, "heads": 3, "kv_heads": 2, "q_len": 1,
                      "kv_len": 1, "head_dim": 64, "value_head_dim": 64, "causal": true,
                      "dtype": "bf16", "backward": false)"),
              HasSubstr("do not divide"));
  EXPECT_THAT(with(R"("kind": "gem")"), HasSubstr("\"gemm\""));
}

// The document's names are those of the rest of the program.
TEST(Samples, NamesAgreeWithOtherRooms) {
  for (int kernel = 0; kernel < costmodel::kNumMemoryKernels; ++kernel) {
    SampleFile file;
    file.header.device = "d";
    file.samples.push_back({.shape = MemorySample{.kernel = costmodel::MemoryKernel{kernel},
                                                  .operation = "x",
                                                  .bytes_read = 1},
                            .time = {Seconds(1), Seconds(1), Seconds(1), 1},
                            .implementation = "",
                            .source = "",
                            .flags = {}});
    EXPECT_THAT(sample_text(file),
                HasSubstr(std::string(costmodel::to_text(costmodel::MemoryKernel{kernel}))));
  }
  for (int kind = 0; kind < 8; ++kind) {
    SampleFile file;
    file.header.device = "d";
    file.samples.push_back(
        {.shape = CollectiveSample{.kind = static_cast<sim::CommKind>(kind), .bytes = 1},
         .time = {Seconds(1), Seconds(1), Seconds(1), 1},
         .implementation = "",
         .source = "",
         .flags = {}});
    EXPECT_THAT(sample_text(file),
                HasSubstr("\"collective\": \"" +
                          std::string(sim::to_text(static_cast<sim::CommKind>(kind))) + "\""));
  }
}

Reading reading_of(std::vector<Sample> samples) {
  Reading reading;
  reading.files.push_back({{.device = "Test GPU"}, std::move(samples)});
  return reading;
}

TEST(Samples, SoundOnesOfADamagedDocument) {
  const std::string text = document(std::string("{") + kGemm + R"(, "time_s": 2e-5}, {)" + kGemm +
                                    R"(, "time_s": 0}, {"kind": "gem"})");
  std::vector<std::string> faults;
  const SampleFile file = read_samples(parse_json(text, "f.json"), "f.json", &faults);
  EXPECT_EQ(file.samples.size(), 1U);
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_THAT(faults[0], HasSubstr("f.json: /samples/1/time_s"));
  EXPECT_THAT(faults[1], HasSubstr("f.json: /samples/2/kind"));
  EXPECT_THAT(message(text), HasSubstr("f.json: /samples/1/time_s"));
}

TEST(Copies, OfOneFileCountOnceWhateverItsName) {
  CopyFinder copies;
  Reading first = reading_of({gemm_of(8, 1e-5, "a:1"), gemm_of(16, 2e-5, "a:2")});
  copies.drop_copies("a", first);
  EXPECT_EQ(first.files.front().samples.size(), 2U);
  EXPECT_TRUE(first.remarks.empty());
  Reading again = reading_of({gemm_of(8, 1e-5, "b:1"), gemm_of(16, 2e-5, "b:2")});
  copies.drop_copies("b", again);
  EXPECT_TRUE(again.files.front().samples.empty());
  ASSERT_EQ(again.remarks.size(), 1U);
  EXPECT_THAT(again.remarks.front(), HasSubstr("b: 2 of its 2 samples are those of a, too"));
  Reading table = reading_of({gemm_of(8, 1e-5, "c:1"), gemm_of(32, 1e-5, "c:2"),
                              gemm_of(16, 2e-5, "c:3"), gemm_of(64, 1e-5, "c:4")});
  copies.drop_copies("c", table);
  EXPECT_EQ(table.files.front().samples.size(), 2U);
}

TEST(Copies, MeasurementsThatAgreeByChanceStay) {
  CopyFinder copies;
  Reading first = reading_of(
      {gemm_of(8, 1e-5, ""), gemm_of(16, 2e-5, ""), gemm_of(32, 3e-5, ""), gemm_of(64, 4e-5, "")});
  copies.drop_copies("a", first);
  Reading second = reading_of({gemm_of(8, 1e-5, ""), gemm_of(16, 2.1e-5, ""),
                               gemm_of(32, 3.1e-5, ""), gemm_of(64, 4.1e-5, "")});
  copies.drop_copies("b", second);
  EXPECT_EQ(second.files.front().samples.size(), 4U);
  EXPECT_TRUE(second.remarks.empty());
  Reading other = reading_of(first.files.front().samples);
  other.files.front().header.device = "Other GPU";
  copies.drop_copies("c", other);
  EXPECT_EQ(other.files.front().samples.size(), 4U);
}

TEST(Copies, OfSamplesInOneDocumentCountOnce) {
  SampleFile file{{.device = "Test GPU"},
                  {gemm_of(8, 1e-5, "a:1"), gemm_of(8, 1e-5, "a:1"), gemm_of(8, 1e-5, "a:2")}};
  EXPECT_EQ(drop_repeated(file), 1U);
  EXPECT_EQ(file.samples.size(), 2U);
}

}  // namespace
}  // namespace orrery::calibrate
