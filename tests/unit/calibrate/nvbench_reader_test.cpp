// SPDX-License-Identifier: Apache-2.0
// Results of NVIDIA's nvbench, made here in the form it writes.
#include <gmock/gmock.h>

#include "tests/unit/calibrate/reader_files.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

class NvbenchReader : public ReaderFiles {};

std::string nvbench(const std::string& major, const std::string& axes, const std::string& time) {
  return R"({"meta": {"argv": [], "version": {"json": {"major": )" + major +
         R"(, "minor": 0, "patch": 0, "string": "x"}, "nvbench": {"major": 0}}},
"devices": [{"id": 0, "name": "NVIDIA H200"}],
"benchmarks": [{"name": "bench", "axes": [], "states": [{"name": "s", "device": 0,
"axis_values": )" +
         axes + R"(, "summaries": [
{"tag": "nv/cold/sample_size", "data": [{"name": "value", "type": "int64", "value": "100"}]},
{"tag": "nv/gmem/reads/in", "data": [{"name": "value", "type": "int64", "value": "4096"}]},
{"tag": "nv/cold/time/gpu/mean", "data": [{"name": "value", "type": "float64", "value": ")" +
         time + R"("}]}], "is_skipped": false},
{"name": "t", "device": 0, "axis_values": null, "summaries": null, "is_skipped": true,
 "skip_reason": "needs 96 GB"}]}]})";
}

TEST_F(NvbenchReader, States) {
  const Reading reading =
      read(write("n.json", nvbench("1", R"([{"name": "T", "type": "string", "value": "BF16"},
 {"name": "M", "type": "int64", "value": "64"}, {"name": "N", "type": "int64", "value": "32"},
 {"name": "K", "type": "int64", "value": "16"}])",
                                   "2.5e-05")));
  const Sample& sample = reading.files.front().samples.front();
  EXPECT_EQ(reading.files.front().header.gpu, "h200-sxm5-141gb");
  EXPECT_EQ(std::get<GemmSample>(sample.shape), (GemmSample{.m = 64, .n = 32, .k = 16}));
  EXPECT_DOUBLE_EQ(sample.time.median.value(), 25e-6);
  EXPECT_EQ(sample.time.repetitions, 100);
  ASSERT_EQ(reading.remarks.size(), 1U);
  EXPECT_THAT(reading.remarks.front(), HasSubstr("1 x state that was skipped: needs 96 GB"));
  const Reading memory = read(write("m.json", nvbench("1", "[]", "1e-05")));
  EXPECT_EQ(std::get<MemorySample>(memory.files.front().samples.front().shape).bytes_read, 4096);
  EXPECT_THAT(message_of(write("v.json", nvbench("2", "[]", "1e-05"))), HasSubstr("version 2"));
  EXPECT_THAT(message_of(write("z.json", nvbench("1", "[]", "-1"))), HasSubstr("not possible"));
}

// Axes are lists of objects, too.
TEST_F(NvbenchReader, WholeStatesOfAFileThatIsCutOff) {
  std::string text = nvbench("1", "[]", "1e-05");
  const std::string second =
      R"({"name": "u", "device": 0, "axis_values": [{"name": "x", "value": "1"}, {)";
  text = text.substr(0, text.find(R"({"name": "t")")) + second;
  const std::string path = write("cut.json", text);
  EXPECT_THAT(message_of(path), HasSubstr("cut.json"));
  const Reading reading = read(path, true);
  EXPECT_EQ(reading.files.front().samples.size(), 1U);
  EXPECT_THAT(reading.remarks, testing::Contains(HasSubstr("; 1 whole state before it")));
}

TEST_F(NvbenchReader, PartialReadsTheOtherStates) {
  std::string text = nvbench("1", "[]", "1e-05");
  text.replace(text.find(R"("name": "t", "device": 0)"), 24, R"("name": "t", "device": -1)");
  const std::string path = write("d.json", text);
  EXPECT_THAT(message_of(path), HasSubstr("/benchmarks/0/states/1/device"));
  const Reading reading = read(path, true);
  EXPECT_EQ(reading.files.front().samples.size(), 1U);
  EXPECT_THAT(reading.remarks, testing::Contains(HasSubstr("/benchmarks/0/states/1/device")));
}

std::string product_axes(const std::string& more) {
  return R"([{"name": "M", "value": "64"}, {"name": "N", "value": "32"},
 {"name": "K", "value": "16"}, )" +
         more + "]";
}

TEST_F(NvbenchReader, ProductsOfUnknownTypesAreLeftOut) {
  const std::string axes = product_axes(R"({"name": "T", "value": "I8"})");
  const Reading reading = read(write("i.json", nvbench("1", axes, "1e-05")));
  EXPECT_TRUE(reading.files.empty());
  EXPECT_THAT(reading.remarks, testing::Contains(HasSubstr("1 x product of type I8")));
}

TEST_F(NvbenchReader, BatchesAreMarked) {
  const std::string axes = product_axes(R"({"name": "Batch", "value": "8"})");
  const Reading reading = read(write("b.json", nvbench("1", axes, "1e-05")));
  EXPECT_EQ(std::get<GemmSample>(reading.files.front().samples.front().shape),
            (GemmSample{.m = 64, .n = 32, .k = 16, .groups = 8, .batched = true}));
  EXPECT_THAT(message_of(write("c.json", nvbench("1", product_axes(R"({"name": "Batch",
 "value": "x"})"),
                                                 "1e-05"))),
              HasSubstr("a batch of \"x\" is not a positive whole number"));
}

TEST_F(NvbenchReader, BenchmarksMayHaveNoStates) {
  std::string text = nvbench("1", "[]", "1e-05");
  const std::string empty = R"({"name": "none", "axes": [], "states": null}, )";
  text.insert(text.find(R"({"name": "bench")"), empty);
  EXPECT_EQ(read(write("e.json", text)).files.front().samples.size(), 1U);
}

TEST_F(NvbenchReader, StatesThatAreMalformedAreNamed) {
  EXPECT_THAT(message_of(write("t.json", nvbench("1", "[]", "fast"))),
              HasSubstr("/benchmarks/0/states/0: the time \"fast\" is not a number"));
  const std::string axes = R"([{"name": "M", "value": "64.5"}, {"name": "N", "value": "32"},
 {"name": "K", "value": "16"}])";
  EXPECT_THAT(message_of(write("a.json", nvbench("1", axes, "1e-05"))),
              HasSubstr("/states/0: axis m: \"64.5\" is not a positive whole number"));
  std::string other = nvbench("1", "[]", "1e-05");
  other.replace(other.find("\"id\": 0"), 7, "\"id\": 3");
  EXPECT_THAT(message_of(write("d.json", other)),
              HasSubstr("/states/0: device 0 is not among the devices"));
}

}  // namespace
}  // namespace orrery::calibrate
