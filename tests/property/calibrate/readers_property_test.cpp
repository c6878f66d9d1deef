// SPDX-License-Identifier: Apache-2.0
// Every reader on damaged files: cut, with bytes changed, doubled or dropped. Whatever comes in,
// there are samples or one Error with a message of bounded length; the reader chosen by content and
// each one forced by name.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "calibrate/reader.hpp"

namespace orrery::calibrate {
namespace {

const std::vector<std::string>& originals() {
  static const std::vector<std::string> kTexts = {
      "# nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor)\n"
      "# Collective test starting: all_reduce_perf\n"
      "#  Rank  0 Group  0 Pid 11 on n1 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
      "#  Rank  1 Group  0 Pid 11 on n1 device  1 [0x0a] NVIDIA H100 80GB HBM3\n"
      "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
      "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n"
      "8 2 float sum -1 12.5 0.00 0.00 0 11.0 0.00 0.00 N/A\n"
      "16 4 float sum -1 13.5 0.00 0.00 0 12.0 0.00 0.00 0\n"
      "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 42.5\n",
      "gpu,dtype,m,n,k,time_us,tflops\nH100-SXM,bf16,64,128,256,5.25,0.8\n"
      "H100-SXM,fp8_e4m3,64,128,256,3.5,1.2\n",
      "gpu,kernel,impl,pass_,x_name,x,config,time_us_p50,time_us_p20,time_us_p80,date\n"
      "B200,softmax,liger,forward,N,1024,\"{\"\"M\"\": 4096}\",20,19,22,2024-09-03\n",
      "file,gpu,nodes,gpus_per_node,ranks,collective,dtype,bytes,time_us,time_inplace_us\n"
      "a.txt,B200,1,8,8,all_reduce,float,1024,9.5,\na.txt,B200,2,8,16,alltoall,half,2048,9,8\n",
      R"({"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 9.0, "args": {"External id": 7,
 "Input Dims": [[40, 10], [10, 5]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}},
{"ph": "X", "cat": "kernel", "name": "g", "ts": 5, "dur": 3.5, "args": {"External id": 7}},
{"ph": "X", "cat": "kernel", "name": "nccl", "dur": 100, "args": {"Collective name": "allreduce",
 "In msg nelems": 1000, "Group size": 4, "dtype": "Float", "Process Group Ranks": "[0, 1]"}}]})",
      R"({"meta": {"version": {"json": {"major": 1}, "nvbench": {}}}, "devices": [{"id": 0, "name":
"NVIDIA H200"}], "benchmarks": [{"name": "b", "states": [{"device": 0, "axis_values": [{"name": "M",
 "value": "64"}, {"name": "N", "value": "32"}, {"name": "K", "value": "16"}], "summaries": [{"tag":
 "nv/cold/time/gpu/mean", "data": [{"name": "value", "value": "2.5e-05"}]}]}]}]})",
      R"({"version": 3, "args": ["all_reduce_perf"], "nccl_version": 22809, "config": {"nthreads": 1,
 "ngpus": 2, "devices": [{"hostname": "a", "device_info": "NVIDIA B200"}]}, "results": [{"size": 4096,
 "type": "float", "out_of_place": {"time": 9.5, "nwrong": 0.0}, "in_place": null}],
 "errors": [], "end_time": "y"})",
      R"({"schema": "orrery-samples", "version": 1, "header": {"device": "x"}, "samples": [
 {"kind": "gemm", "m": 1, "n": 2, "k": 3, "dtype": "bf16", "layout": "tn", "output": "bf16",
 "time_s": 1e-6}]})"};
  return kTexts;
}

std::string damaged() {
  std::string text = *rc::gen::elementOf(originals());
  const int times = *rc::gen::inRange(0, 6);
  for (int change = 0; change < times && !text.empty(); ++change) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const auto length = *rc::gen::inRange<std::size_t>(1, 40);
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text[at] = *rc::gen::arbitrary<char>();
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.insert(at, *rc::gen::element<std::string>("-", "1e999", "0", ",", "[[[[", "\"", "\n",
                                                       "nan", "999999999999999999999"));
    }
  }
  return text;
}

// Every number a fit would see is sound.
bool sound(const Reading& reading) {
  for (const SampleFile& file : reading.files) {
    for (const Sample& sample : file.samples) {
      const double median = sample.time.median.value();
      if (!std::isfinite(median) || median <= 0 || sample.time.p25 > sample.time.median ||
          sample.time.p75 < sample.time.median || sample.time.repetitions < 1) {
        return false;
      }
    }
  }
  return true;
}

class DamagedFiles : public testing::Test {
 protected:
  void SetUp() override { path_ = testing::TempDir() + "damaged"; }
  void TearDown() override { std::filesystem::remove(path_); }

  bool total(const std::string& text, const std::string& format, bool partial) const {
    std::ofstream(path_, std::ios::binary) << text;
    try {
      return sound(read_foreign(path_, format, {.partial = partial, .device = "A100"}));
    } catch (const Error& error) {
      return error.kind() == ErrorKind::BadInput && std::string_view(error.what()).size() < 4100;
    }
  }
  std::string path_;
};

TEST_F(DamagedFiles, GiveSamplesOrOneError) {
  EXPECT_TRUE(rc::check([this] { RC_ASSERT(total(damaged(), "", *rc::gen::arbitrary<bool>())); }));
}

TEST_F(DamagedFiles, AnyReaderOnAnyFile) {
  EXPECT_TRUE(rc::check([this] {
    const SampleReader* reader = *rc::gen::elementOf(
        std::vector<const SampleReader*>(reader_table().begin(), reader_table().end()));
    RC_ASSERT(total(damaged(), std::string(reader->name), *rc::gen::arbitrary<bool>()));
  }));
}

TEST_F(DamagedFiles, TheOriginalsAreRead) {
  for (const std::string& text : originals()) {
    std::ofstream(path_, std::ios::binary) << text;
    const Reading reading = read_foreign(path_, "", {});
    EXPECT_FALSE(reading.files.empty()) << text;
  }
}

}  // namespace
}  // namespace orrery::calibrate
