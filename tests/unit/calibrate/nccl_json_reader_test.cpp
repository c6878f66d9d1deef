// SPDX-License-Identifier: Apache-2.0
// JSON documents of nccl-tests (-J), made here in the form it writes.
#include <gmock/gmock.h>

#include <algorithm>

#include "calibrate/collective_log.hpp"
#include "tests/unit/calibrate/reader_files.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

class NcclTestsJson : public ReaderFiles {
 protected:
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, from.size(), to);
  }
};

std::string nccl_json(const std::string& version, const std::string& time, const std::string& wrong,
                      const std::string& end) {
  return R"({"version": )" + version + R"(, "start_time": "x",
"args": ["/opt/build/all_gather_perf", "-J", "out.json"], "env": [], "nccl_version": 22809,
"config": {"nthreads": 1, "ngpus": 1, "devices": [
 {"rank": 0, "hostname": "a", "device_info": "NVIDIA B200"},
 {"rank": 1, "hostname": "b", "device_info": "NVIDIA B200"}]},
"results": [{"size": 4096, "count": 1024, "type": "float", "redop": "none", "root": "    -1",
 "out_of_place": {"time": )" +
         time + R"(, "alg_bw": 0.431158, "bus_bw": 0.215579, "nwrong": )" + wrong + R"(},
 "in_place": {"time": 8.0, "alg_bw": "nan", "bus_bw": 1, "nwrong": null},
 "in_place_per_iter": {"times_us": [7.0, 8.0, 9.0, 10.0, 6.0]}}],
"out_of_bounds": {"count": 0, "okay": "true"})" +
         end + "}";
}

TEST_F(NcclTestsJson, Documents) {
  const std::string end = R"(, "errors": [], "end_time": "y")";
  const Reading reading = read(write("j.json", nccl_json("3", "9.5", "0.0", end)));
  const SampleFile& file = reading.files.front();
  EXPECT_EQ(file.header.gpu, "b200-sxm-180gb");
  EXPECT_EQ(launch_mode(file.header), LaunchMode::ProcessPerGpu);
  ASSERT_EQ(file.samples.size(), 2U);
  EXPECT_EQ(std::get<CollectiveSample>(file.samples[0].shape),
            (CollectiveSample{.kind = sim::CommKind::AllGather,
                              .bytes = 4096,
                              .ranks = 2,
                              .ranks_per_node = 1,
                              .nodes = 2}));
  EXPECT_DOUBLE_EQ(file.samples[0].time.median.value(), 9.5e-6);
  EXPECT_DOUBLE_EQ(file.samples[1].time.p75.value(), 9e-6);
  const auto refused = [&](const std::string& text) { return message_of(write("b.json", text)); };
  EXPECT_THAT(refused(nccl_json("9", "9.5", "0.0", end)), HasSubstr("version 9"));
  EXPECT_THAT(refused(nccl_json("3", "9.5", "2.0", end)),
              testing::AllOf(HasSubstr("/results/0/out_of_place"), HasSubstr("2 wrong")));
  EXPECT_THAT(refused(nccl_json("3", "0.0", "0.0", end)), HasSubstr("not possible"));
  EXPECT_THAT(refused(nccl_json("3", "9.5", "0.0", "")), HasSubstr("did not end"));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = nccl_json("3", "9.5", "0.0", end);
    return refused(text.replace(text.find(from), from.size(), to));
  };
  EXPECT_THAT(changed(R"("count": 0, "okay": "true")", R"("count": 12, "okay": "false")"),
              HasSubstr("12 wrong results"));
  EXPECT_THAT(changed("0.431158", "4.311579"),
              HasSubstr("/results/0/out_of_place: algbw 4.31 GB/s, but 4 KiB in 9.5e-06 s"));
  EXPECT_THAT(changed("0.215579", "0.862316"),
              HasSubstr("/results/0/out_of_place: busbw 0.86 GB/s, but algbw 0.43 GB/s"));
  EXPECT_THAT(changed("\"count\": 1024", "\"count\": 1000"),
              HasSubstr("/results/0: size 4096, but 1000 elements of type float are 4000 bytes"));
  EXPECT_THAT(
      changed("\"b\", \"device_info\": \"NVIDIA B200", "\"b\", \"device_info\": \"NVIDIA GB200"),
      HasSubstr("/config/devices/1: a rank is on a NVIDIA GB200, but the first one on a "
                "NVIDIA B200"));
  EXPECT_THAT(changed("[7.0, 8.0", "[0, 8.0"), HasSubstr("not possible"));
  EXPECT_THAT(changed("[7.0, 8.0, 9.0, 10.0, 6.0]", "[1e6]"), HasSubstr("where the mean is 8 us"));
  EXPECT_THAT(refused(nccl_json("3", "9.5", "0.0", R"(, "end_time": "y", "errors": ["oops"])")),
              HasSubstr("oops"));
  EXPECT_THAT(refused(nccl_json("3", "9.5", "0.0", end).substr(0, 300)), HasSubstr("b.json"));
}

TEST_F(NcclTestsJson, WholeResultsOfADocumentThatIsCutOff) {
  std::string text = nccl_json("3", "9.5", "0.0", R"(, "end_time": "y")");
  text =
      replaced(text, R"(}],
"out_of_bounds")",
               R"(}, {"size": 8192, "count": 2048, "type": "float", "out_of_place": {"time": 12}},
 {"size": 16384, "count": 4096, "type": "float", "out_of_place": {"ti)");
  const std::string path = write("cut.json", text.substr(0, text.rfind(R"({"ti)") + 4));
  EXPECT_THAT(message_of(path), HasSubstr("cut.json"));
  const Reading reading = read(path, true);
  EXPECT_EQ(reading.files.front().samples.size(), 3U);
  EXPECT_THAT(reading.remarks, testing::Contains(HasSubstr("; 2 whole results before it")));
  EXPECT_THAT(reading.remarks, testing::Contains(HasSubstr("the run did not end")));
  const std::string headless = write("head.json", text.substr(0, text.find("\"results\"")));
  EXPECT_THAT(message_of(headless, true), HasSubstr("head.json"));
}

TEST_F(NcclTestsJson, PartialReadsTheOtherResults) {
  const std::string more = R"(, {"size": 8192, "count": 2048, "type": "float",
 "out_of_place": {"time": )";
  std::string text = nccl_json("3", "9.5", "0.0", R"(, "end_time": "y")");
  text = replaced(text, R"(}],
"out_of_bounds")",
                  "}" + more + "-3}}" + more + R"(12}}],
"out_of_bounds")");
  const std::string path = write("n.json", text);
  EXPECT_THAT(message_of(path), HasSubstr("/results/1/out_of_place/time"));
  const Reading reading = read(path, true);
  EXPECT_EQ(reading.files.front().samples.size(), 3U);
  EXPECT_THAT(reading.remarks, testing::Contains(HasSubstr("/results/1/out_of_place/time")));
}

TEST_F(NcclTestsJson, DocumentsOfSplitForcedAndShortenedRuns) {
  const std::string end = R"(, "errors": [], "end_time": "y")";
  std::string text = nccl_json("3", "9.5", "0.0", end);
  text = replaced(text, R"("env": [])", R"("env": ["A=b", "NCCL_PROTO=LL"])");
  text = replaced(text, R"({"times_us": [7.0)",
                  R"({"skipped_iterations": 2, "times_us": [70, 80, 7.0)");
  const Reading reading = read(write("j.json", text));
  const std::vector<std::string>& notes = reading.files.front().header.notes;
  EXPECT_EQ(std::count(notes.begin(), notes.end(), "NCCL_PROTO=LL"), 1);
  EXPECT_DOUBLE_EQ(reading.files.front().samples.at(1).time.median.value(), 8e-6);
  const std::string split =
      replaced(nccl_json("3", "9.5", "0.0", end), R"({"rank": 0,)",
               R"({"rank": 2, "group": 1, "hostname": "a", "device_info": "NVIDIA B200"},
 {"rank": 3, "group": 1, "hostname": "b", "device_info": "NVIDIA B200"}, {"rank": 0,)");
  const Reading groups = read(write("s.json", split));
  const auto& shape = std::get<CollectiveSample>(groups.files.front().samples.front().shape);
  EXPECT_EQ(shape.ranks, 2);
  EXPECT_EQ(shape.nodes, 2);
  EXPECT_EQ(shape.concurrent_groups, 2);
}

}  // namespace
}  // namespace orrery::calibrate
