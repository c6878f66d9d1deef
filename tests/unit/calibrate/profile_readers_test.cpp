// SPDX-License-Identifier: Apache-2.0
// Traces of PyTorch's profiler (Kineto), made here in the form that it writes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <thread>

#include "base/files.hpp"
#include "calibrate/byte_stream.hpp"
#include "tests/unit/calibrate/reader_files.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

class ProfileReaders : public ReaderFiles {
 protected:
  std::string zipped(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    gzclose(file);
    return path;
  }
};

constexpr const char* kTraceBegin =
    R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"},
 {"id": 1, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": [)";
constexpr const char* kOperator =
    R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 9.0,
 "args": {"External id": 7, "Input Dims": [[4096, 1024], [1024, 512]],
 "Input Strides": [[1024, 1], [1, 1024]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}},)";
constexpr const char* kKernels =
    R"json({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 30.0, "args": {"External id": 7}},
{"ph": "X", "cat": "kernel", "name": "splitk", "ts": 40, "dur": 10, "args": {"External id": 7}},
{"ph": "X", "cat": "kernel", "name": "relu", "ts": 60, "dur": 4, "args": {"External id": 8}},
{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 70, "dur": 50,
 "args": {"bytes": 1000000}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(x)", "ts": 90, "dur": 100,
 "args": {"Collective name": "_allgather_base", "In msg nelems": 1000, "Out msg nelems": 4000,
 "Group size": 4, "dtype": "BFloat16", "Process Group Ranks": "[0, 1, 2, 3]"}})json";

TEST_F(ProfileReaders, KernelsFindTheShapesOfTheirOperators) {
  const std::string text = std::string(kTraceBegin) + kOperator + kKernels + "]}";
  const Reading reading = read(write("trace.json", text));
  ASSERT_EQ(reading.files.size(), 1U);
  const SampleFile& file = reading.files.front();
  EXPECT_EQ(file.header.gpu, "h100-sxm5-80gb");
  ASSERT_EQ(file.samples.size(), 3U);
  bool gemm_seen = false;
  for (const Sample& sample : file.samples) {
    if (const auto* gemm = std::get_if<GemmSample>(&sample.shape)) {
      EXPECT_EQ(*gemm, (GemmSample{.m = 4096, .n = 512, .k = 1024}));
      EXPECT_DOUBLE_EQ(sample.time.median.value(), 40e-6);  // both kernels of the operator
      gemm_seen = true;
    } else if (const auto* copy = std::get_if<HostCopySample>(&sample.shape)) {
      EXPECT_EQ(copy->bytes, 1'000'000);
      EXPECT_TRUE(copy->pinned);
    } else {
      EXPECT_EQ(std::get<CollectiveSample>(sample.shape),
                (CollectiveSample{.kind = sim::CommKind::AllGather,
                                  .bytes = 8000,
                                  .ranks = 4,
                                  .ranks_per_node = 2,
                                  .nodes = 2}));
    }
  }
  EXPECT_TRUE(gemm_seen);
  ASSERT_EQ(reading.kernels.size(), 1U);
  EXPECT_EQ(reading.kernels.front().name, "relu");
}

// Operands are recorded as fp32 whether tensor cores multiply them or not.
TEST_F(ProfileReaders, KernelsTellProductsInTf32) {
  const auto product = [&](const std::string& type, const std::string& kernel) {
    const std::string text = std::string(kTraceBegin) +
                             R"({"ph":"X","cat":"cpu_op","name":"aten::bmm","dur":1,"args":
{"External id": 7, "Input Dims": [[3, 8, 4], [3, 4, 2]], "Input type": [")" +
                             type + "\", \"" + type + R"("]}}, {"ph":"X","cat":"kernel","name":")" +
                             kernel + R"(","dur":3,"args":{"External id": 7}}]})";
    const Reading reading = read(write("trace.json", text));
    return std::get<GemmSample>(reading.files.front().samples.front().shape);
  };
  EXPECT_EQ(product("float", "ampere_sgemm_128x64_tn").dtype, DType::Fp32);
  EXPECT_EQ(product("float", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn").dtype, DType::Tf32);
  EXPECT_EQ(product("float", "cutlass_80_tensorop_s1688gemm_128x128").dtype, DType::Tf32);
  EXPECT_EQ(product("c10::Half", "turing_fp16_s1688gemm_fp16").dtype, DType::Fp16);
  EXPECT_TRUE(product("float", "ampere_sgemm_128x64_tn").batched);
}

TEST_F(ProfileReaders, OperandStridesTellTheLayout) {
  const auto layout = [&](const std::string& strides) {
    const std::string text = std::string(kTraceBegin) +
                             R"({"ph":"X","cat":"cpu_op","name":"aten::mm","dur":1,"args":
{"External id": 7, "Input Dims": [[8, 4], [4, 2]], "Input Strides": )" +
                             strides +
                             R"(, "Input type": ["c10::Half", "c10::Half"]}},
{"ph":"X","cat":"kernel","name":"k","dur":3,"args":{"External id": 7}}]})";
    const Reading reading = read(write("trace.json", text));
    return std::get<GemmSample>(reading.files.front().samples.front().shape).layout;
  };
  EXPECT_EQ(layout("[[4, 1], [1, 4]]"), GemmLayout::TN);
  EXPECT_EQ(layout("[[4, 1], [2, 1]]"), GemmLayout::NN);
  EXPECT_EQ(layout("[[1, 8], [2, 1]]"), GemmLayout::NT);
}

TEST_F(ProfileReaders, TracesMayBeginWithAByteOrderMark) {
  const std::string text = std::string(kTraceBegin) + kOperator + kKernels + "]}";
  EXPECT_EQ(read(write("marked.json", "\xEF\xBB\xBF" + text)).files.front().samples.size(), 3U);
  EXPECT_THAT(message_of(write("mark.json", "\xEF\xBB\xBF")), HasSubstr("the file is empty"));
}

TEST_F(ProfileReaders, TracesMayBeGzipped) {
  const std::string text = std::string(kTraceBegin) + kOperator + kKernels + "]}";
  const std::string path = zipped("trace.json.gz", text);
  EXPECT_EQ(read(path).files.front().samples.size(), 3U);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(message_of(path), HasSubstr("cut off"));
}

TEST_F(ProfileReaders, LogsTablesAndSamplesMayBeGzipped) {
  const std::string log =
      "# gpu: A100-SXM4-80GB  nodes: 1  gpus_per_node: 8  ranks: 8\n"
      "#  size  count  type  redop  root  time  algbw  busbw\n"
      "  1048576  262144  float  sum  -1  41.20  25.45  44.54\n"
      "  2097152  524288  float  sum  -1  52.90  39.64  69.38\n";
  const std::string table = "m,n,k,cublas_us\n4096,4096,4096,150\n";
  const std::string samples = R"({"schema": "orrery-samples", "version": 1,
      "header": {"device": "A100"}, "samples": [{"kind": "gemm", "m": 64, "n": 64, "k": 64,
      "dtype": "bf16", "layout": "tn", "output": "bf16", "time_s": 1e-5}]})";
  for (const auto& [name, text] : {std::pair("all_reduce.txt", log), std::pair("gemm.csv", table),
                                   std::pair("samples.json", samples)}) {
    const std::string plain = write(name, text);
    const std::string path = zipped(std::string(name) + ".gz", text);
    const ReadOptions options = {.partial = false, .device = "a100-sxm4-80gb"};
    const auto expected = read_foreign(plain, "", options).files.front().samples;
    const auto unpacked = read_foreign(path, "", options).files.front().samples;
    ASSERT_EQ(unpacked.size(), expected.size()) << name;
    EXPECT_EQ(unpacked.front().shape, expected.front().shape) << name;
    EXPECT_EQ(unpacked.front().time, expected.front().time) << name;
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    EXPECT_THAT(message_of(path), HasSubstr("cut off")) << name;
  }
  const std::string bomb = zipped("bomb.txt", std::string(1 << 20, ' '));
  EXPECT_THROW(read_sound_part(bomb, 1 << 16), Error);
  EXPECT_EQ(read_sound_part(bomb, 1 << 20).text.size(), 1U << 20);
}

// What stands before the cut is used where that is wanted, as of files that are not packed.
TEST_F(ProfileReaders, PartsOfDamagedGzipFilesAreUsedWhereWanted) {
  std::string log =
      "# gpu: A100-SXM4-80GB  nodes: 1  gpus_per_node: 8  ranks: 8\n"
      "#  size  count  type  redop  root  time  algbw  busbw\n";
  std::string table = "m,n,k,cublas_us\n";
  std::mt19937 random(7);
  for (int row = 0; row < 4000; ++row) {
    const double bytes = 1024.0 * (row + 1);
    const double time_us = 40.0 + static_cast<double>(random() % 10'000) / 100;
    const double algbw = bytes / time_us / 1e3;
    log += fmt::format("  {}  {}  float  sum  -1  {:.2f}  {:.5f}  {:.5f}\n", 1024 * (row + 1),
                       256 * (row + 1), time_us, algbw, algbw * 1.75);
    table += fmt::format("{},{},4096,1{}\n", 512 + row, random() % 4096 + 64, random() % 100'000);
  }
  for (const auto& [name, text] :
       {std::pair("all_reduce.txt", log), std::pair("gemm.csv", table)}) {
    const std::string path = zipped(std::string(name) + ".gz", text);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    EXPECT_THAT(message_of(path), HasSubstr("cut off")) << name;
    const Reading part = read_foreign(path, "", {.partial = true, .device = "a100-sxm4-80gb"});
    EXPECT_GT(part.files.front().samples.size(), 1000U) << name;
    EXPECT_THAT(part.remarks, testing::Contains(HasSubstr("cut off"))) << name;
  }
}

// A pipe is read once; gzip'ed files may be joined.
TEST_F(ProfileReaders, GzippedPipesAreUnpacked) {
  const std::string one = read_file(zipped("one.gz", "\xEF\xBB\xBFone "), 1 << 20);
  const std::string two = read_file(zipped("two.gz", "two"), 1 << 20);
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR), 0);
  EXPECT_THAT(message_of(pipe), HasSubstr("--format"));
  std::thread writer([&] { std::ofstream(pipe) << one << two; });
  EXPECT_EQ(read_sound_part(pipe, 1 << 20).text, "one two");
  writer.join();
}

TEST_F(ProfileReaders, CutTracesNameTheLineAndCanBeUsedInPart) {
  const std::string cut = write(
      "cut.json", std::string(kTraceBegin) + kOperator + std::string(kKernels).substr(0, 300));
  EXPECT_THAT(message_of(cut), testing::AllOf(HasSubstr("cut.json"), HasSubstr("line "),
                                              HasSubstr("cut off or damaged")));
  const Reading reading = read(cut, true);
  EXPECT_EQ(reading.files.front().samples.size(), 1U);
  EXPECT_FALSE(reading.remarks.empty());
  const std::string negative =
      write("neg.json", std::string(kTraceBegin) +
                            R"({"ph":"X","cat":"kernel","name":"k","dur":-3,"args":{}}]})");
  EXPECT_THAT(message_of(negative), testing::AllOf(HasSubstr("event 1"), HasSubstr("-3 us")));
  const std::string deep = write("deep.json", R"({"traceEvents": )" + std::string(500, '['));
  EXPECT_THAT(message_of(deep), HasSubstr("nested deeper"));
}

TEST_F(ProfileReaders, EventsInAnyOrderOfMembersAndWithEscapes) {
  const std::string text =
      R"({"traceEvents": [
{"args": {"Python id": 1, "nested": {"a": [1, {"b": "]}\"{["}]}}, "name": "f", "cat": "python_function"},
{"name": "aten::\u006dm", "args": {"Input Dims": [[4096, 1024], [1024, 512], 3, "", []],
 "Input type": ["c10::BFloat16", "c10::BFloat16", null], "External id": 7}, "dur": 9e0, "ph": "X", "cat": "cpu_op"},
{"dur": 40.0, "args": {"External id": 7, "x": "\ud83d\ude00"}, "cat": "Kernel", "name": "gemm"}, 12, "text"
], "deviceProperties": [{"name": "NVIDIA H100 80GB HBM3", "sms": {"n": 132}}, 7], "traceName": "t"})";
  const Reading reading = read(write("order.json", text));
  ASSERT_EQ(reading.files.size(), 1U);
  EXPECT_EQ(reading.files.front().header.gpu, "h100-sxm5-80gb");
  ASSERT_EQ(reading.files.front().samples.size(), 1U);
  const Sample& sample = reading.files.front().samples.front();
  EXPECT_EQ(std::get<GemmSample>(sample.shape), (GemmSample{.m = 4096, .n = 512, .k = 1024}));
  EXPECT_DOUBLE_EQ(sample.time.median.value(), 40e-6);
}

TEST_F(ProfileReaders, DamagedTracesAreNotValidJson) {
  const std::string begin = R"({"traceEvents": [)";
  for (const char* rest :
       {R"({"ph" "X"}]})", R"({"ph": "X",}]})", R"({"cat": "kernel", "dur": 1.2.3}]})",
        R"({"cat": "kernel", "dur": nul}]})", R"({"cat": "kernel", "name": "\x"}]})",
        R"({"cat": "kernel", "name": "\ud800"}]})", R"({"cat": "python_function", "a": [}]})",
        R"({"cat": "cpu_op"}]} {})", "{\"cat\": \"kernel\", \"name\": \"a\nb\"}]}"}) {
    const std::string path = write("damaged.json", begin + "\n" + rest);
    EXPECT_THAT(message_of(path), HasSubstr("not valid JSON at line ")) << rest;
  }
}

std::int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::stoll(line.substr(6));
    }
  }
  return 0;
}

// 200 MB of events: what is held does not grow with the file.
TEST_F(ProfileReaders, LargeTracesStayOnDisk) {
  const std::string path = (folder_ / "large.json").string();
  {
    std::ofstream file(path, std::ios::binary);
    file << kTraceBegin << kOperator;
    const std::string filler = R"({"ph":"X","cat":"python_function","name":")" +
                               std::string(4000, 'f') +
                               R"(","ts":1,"dur":2,"args":{"Python id":1}},)";
    for (int event = 0; event < 50'000; ++event) {
      file << filler << '\n';
    }
    file << kKernels << "]}";
  }
  ASSERT_GT(std::filesystem::file_size(path), 200'000'000U);
  const std::int64_t before = resident_kib();
  EXPECT_EQ(read(path).files.front().samples.size(), 3U);
  EXPECT_LT(resident_kib() - before, 32'000);
}

constexpr const char* kTwoKinds =
    R"({"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"},
 {"name": "NVIDIA A100-SXM4-80GB", "id": 1}], "traceEvents": [)";

std::string kernel_on(const std::string& device, const std::string& id) {
  return R"({"ph": "X", "cat": "kernel", "name": "k", "dur": 30.0, "args": {"External id": )" + id +
         device + "}}";
}

TEST_F(ProfileReaders, KernelsOfGpusOfSeveralKindsStayApart) {
  std::string other = kOperator;
  other.replace(other.find("id\": 7"), 6, "id\": 8");
  const std::string text = kTwoKinds + (kOperator + other) + kernel_on(R"(, "device": 1)", "7") +
                           "," + kernel_on(R"(, "device": 0)", "8") + "]}";
  const Reading reading = read(write("two.json", text));
  ASSERT_EQ(reading.files.size(), 2U);
  EXPECT_EQ(reading.files[0].header.gpu, "a100-sxm4-80gb");
  EXPECT_EQ(reading.files[0].samples.size(), 1U);
  EXPECT_EQ(reading.files[1].header.gpu, "h100-sxm5-80gb");
  const std::string unknown = kTwoKinds + (kOperator + kernel_on("", "7")) + "]}";
  EXPECT_THAT(message_of(write("unknown.json", unknown)),
              HasSubstr("event 2: does not state its device, in a trace of GPUs of several kinds"));
}

TEST_F(ProfileReaders, TracesWithoutDevicePropertiesSayWhatIsMissing) {
  const std::string text = std::string(R"({"traceEvents": [)") + kOperator + kKernels + "]}";
  const Reading reading = read_foreign(write("t.json", text), "", {.device = "a100-sxm4-80gb"});
  EXPECT_EQ(reading.files.front().header.gpu, "a100-sxm4-80gb");
  EXPECT_EQ(reading.files.front().samples.size(), 2U);  // not the collective
  EXPECT_THAT(reading.remarks,
              testing::UnorderedElementsAre(HasSubstr("taken for a100-sxm4-80gb"),
                                            HasSubstr("1 x collective of unknown nodes")));
}

TEST_F(ProfileReaders, WhatTracesHoldBeyondSamplesIsSaid) {
  const auto copy = [](const std::string& name, const std::string& rest) {
    return R"({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy )" + name + "\"" + rest + "}";
  };
  const auto all = [&](const std::string& events) {
    return write("c.json",
                 std::string(kTraceBegin) + kOperator + kernel_on("", "7") + "," + events + "]}");
  };
  EXPECT_THAT(message_of(all(copy("HtoD", R"(, "dur": -5, "args": {"bytes": 9})"))),
              HasSubstr("event 3: a copy of -5 us is not possible"));
  EXPECT_THAT(message_of(all(copy("HtoD", R"(, "args": {"bytes": 9})"))),
              HasSubstr("event 3: a copy without a number \"dur\""));
  EXPECT_THAT(message_of(all(R"({"cat": "kernel", "dur": 5, "dur": 7, "name": "k"})")),
              HasSubstr("member \"dur\" comes twice in event 3"));
  const Reading reading = read(all(copy("HtoD", R"(, "dur": 0, "args": {"bytes": 9})") + "," +
                                   copy("HtoD", R"(, "dur": 4)") + "," +
                                   copy("DtoD", R"(, "dur": 4, "args": {"bytes": 9})")));
  EXPECT_EQ(reading.files.front().samples.size(), 1U);
  EXPECT_THAT(reading.remarks, testing::UnorderedElementsAre(
                                   HasSubstr("copy of 0 us"), HasSubstr("copy of unknown size"),
                                   HasSubstr("not between host and GPU")));
  const std::string twice = std::string(kTraceBegin) + kOperator + kOperator + kernel_on("", "7");
  const Reading shared = read(write("s.json", twice + "]}"));
  EXPECT_TRUE(shared.files.empty());
  EXPECT_THAT(shared.remarks.front(), HasSubstr("External id is that of several operators"));
  EXPECT_THAT(message_of(write("none.json", std::string(kTraceBegin) + R"({"cat": "cpu_op"}]})")),
              HasSubstr("no kernels of a GPU among its 1 events"));
}

TEST_F(ProfileReaders, EventsOfTracesThatAreMalformedAreNamed) {
  const auto fault = [&](const std::string& events) {
    return message_of(write("e.json", std::string(kTraceBegin) + kOperator + events + "]}"));
  };
  EXPECT_THAT(fault(R"({"ph": "X", "cat": "kernel", "name": "k", "dur": "x"})"),
              HasSubstr("event 2: a kernel without a number \"dur\""));
  EXPECT_THAT(
      fault(R"({"ph": "X", "cat": "kernel", "name": "k", "dur": 3, "args": {"device": 2}})"),
      HasSubstr("event 2: device 2 is not among the deviceProperties"));
  EXPECT_EQ(fault(R"({"ph": "X", "cat": "kernel", "name": "k", "dur": 3, "args": {"device": 1}})"),
            "");
}

}  // namespace
}  // namespace orrery::calibrate
