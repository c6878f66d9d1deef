// SPDX-License-Identifier: Apache-2.0
// Layouts as the versions of NVIDIA/nccl-tests print them (src/common.cu and src/util.cu of 1.x,
// 2.0 and 2.19).
#include <gmock/gmock.h>

#include <map>
#include <tuple>

#include "calibrate/collective_log.hpp"
#include "tests/unit/calibrate/reader_files.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

constexpr const char* kRanks =
    "#  Rank  0 Group  0 Pid  11 on node1 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid  12 on node1 device  1 [0x0a] NVIDIA H100 80GB HBM3\n"
    "#  Rank  2 Group  0 Pid  13 on node2 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
    "#  Rank  3 Group  0 Pid  14 on node2 device  1 [0x0a] NVIDIA H100 80GB HBM3\n";
constexpr const char* kTest = "# Collective test starting: all_reduce_perf\n";
constexpr const char* kConfig =
    "# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20\n";
constexpr const char* kHeader =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time"
    "   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)"
    "  (GB/s)  (GB/s)\n";
constexpr const char* kRows =
    "        1024           256     float     sum      -1    12.50    0.08    0.12      0    11.00"
    "    0.09    0.14      0\n"
    "        2048           512     float     sum      -1    13.50    0.15    0.23      0    12.00"
    "    0.17    0.26    N/A\n"
    "        4096          1024     float     sum      -1    14.50    0.28    0.42      0    13.00"
    "    0.32    0.47      0\n";
// Of all-gather and reduce-scatter on the four ranks.
constexpr const char* kDividedRows =
    "        1024            64     float    none      -1    12.50    0.08    0.06      0    11.00"
    "    0.09    0.07      0\n"
    "        2048           128     float    none      -1    13.50    0.15    0.11      0    12.00"
    "    0.17    0.13    N/A\n"
    "        4096           256     float    none      -1    14.50    0.28    0.21      0    13.00"
    "    0.32    0.24      0\n";
constexpr const char* kFooter = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.3 \n#\n";

class NcclTests : public ReaderFiles {
 protected:
  std::string text() const {
    return std::string(kTest) + kConfig + kRanks + kHeader + kRows + kFooter;
  }
  std::vector<Sample> samples(const std::string& text, bool partial = false) const {
    const Reading reading = read(write("x.log", text), partial);
    EXPECT_EQ(reading.files.size(), 1U);
    return reading.files.front().samples;
  }
  std::string refused(const std::string& text) const { return message_of(write("x.log", text)); }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, from.size(), to);
  }
};

TEST_F(NcclTests, HostsAreNodesAndProcessesTheLaunchMode) {
  const Reading reading = read(write("x.log", text()));
  const SampleFile& file = reading.files.front();
  EXPECT_EQ(file.header.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(launch_mode(file.header), LaunchMode::ProcessPerGpu);
  ASSERT_EQ(file.samples.size(), 6U);
  const CollectiveSample expected{
      .kind = sim::CommKind::AllReduce, .bytes = 1024, .ranks = 4, .ranks_per_node = 2, .nodes = 2};
  EXPECT_EQ(std::get<CollectiveSample>(file.samples[0].shape), expected);
  EXPECT_DOUBLE_EQ(file.samples[0].time.median.value(), 12.5e-6);
  EXPECT_TRUE(std::get<CollectiveSample>(file.samples[1].shape).in_place);
  EXPECT_EQ(file.samples[0].source, "x.log:9");
  const std::string one_process = replaced(
      replaced(replaced(text(), "Pid  12", "Pid  11"), "Pid  14", "Pid  13"), "nGpus 1", "nGpus 2");
  EXPECT_EQ(launch_mode(read(write("y.log", one_process)).files.front().header),
            LaunchMode::OneProcess);
}

TEST_F(NcclTests, FirstVersionsPrintMilliseconds) {
  const std::vector<Sample> result = samples(
      "nThread 1 nGpus 2 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 5\n"
      "# collective: all_reduce\n"
      "#   Rank  0 on       host device  0 [0x04] Tesla P100-SXM2-16GB\n"
      "#   Rank  1 on       host device  1 [0x05] Tesla P100-SXM2-16GB\n"
      "#                                                 out-of-place                    in-place\n"
      "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw"
      "  busbw      res\n"
      "     8388608       2097152   float     sum    0.500  16.78  16.78    0e+00    0.600  13.98"
      "  13.98  \tN/A\n"
      " Out of bounds values : 0 OK\n Avg bus bandwidth    : 15.4 \n");
  ASSERT_EQ(result.size(), 2U);
  EXPECT_DOUBLE_EQ(result[0].time.median.value(), 0.5e-3);
  EXPECT_EQ(std::get<CollectiveSample>(result[0].shape).ranks, 2);
}

TEST_F(NcclTests, TimeStampsAndIterationColumns) {
  const std::vector<Sample> stamped = samples(
      std::string(kTest) + kRanks +
      "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp\n"
      "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s) %Y-%m-%d %H:%M:%S\n"
      "1024 256 float sum -1 12.5 0.1 0.1 0 11.0 0.1 0.1 0 2026-01-01 12:00:00\n");
  EXPECT_EQ(stamped.size(), 2U);
  const std::vector<Sample> iterations = samples(
      std::string(kTest) + kRanks +
      "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw "
      "busbw #wrong i_min i_max i_p99 i_cv%\n"
      "1024 256 float sum -1 12.5 0.1 0.1 0 10 20 19 3 11.0 0.1 0.1 0 9 18 17 4\n");
  ASSERT_EQ(iterations.size(), 2U);
  EXPECT_DOUBLE_EQ(iterations[1].time.median.value(), 11e-6);
}

TEST_F(NcclTests, TaggedCyclesAndSeveralTests) {
  std::string tagged;
  for (const std::string_view line : {kTest, kRanks, kHeader, kRows, kRows, kFooter}) {
    std::string_view rest = line;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n') + 1;
      tagged += "[1,0]<stdout>:" + std::string(rest.substr(0, end));
      rest.remove_prefix(end);
    }
  }
  EXPECT_EQ(samples(tagged).size(), 12U);
  const std::string second =
      replaced(replaced(text(), kRows, kDividedRows), "all_reduce", "all_gather");
  const std::vector<Sample> both = samples(text() + second);
  ASSERT_EQ(both.size(), 12U);
  EXPECT_EQ(std::get<CollectiveSample>(both.back().shape).kind, sim::CommKind::AllGather);
}

TEST_F(NcclTests, RefusesWithFileAndLine) {
  EXPECT_THAT(refused(replaced(text(), "0.42      0", "0.42      3")),
              testing::AllOf(HasSubstr("x.log:11"), HasSubstr("3 wrong values")));
  EXPECT_THAT(refused(replaced(text(), "   13.50", "    0.00")),
              testing::AllOf(HasSubstr("x.log:10"), HasSubstr("not possible")));
  EXPECT_THAT(refused(replaced(text(), "   13.50", "   -3.50")), HasSubstr("x.log:10: time"));
  EXPECT_THAT(refused(replaced(text(), "   13.50", "   13,50")), HasSubstr("decimal comma"));
  EXPECT_THAT(refused(text() + "node1: Test NCCL failure common.cu:958 'internal error'\n"),
              testing::AllOf(HasSubstr("x.log:15"), HasSubstr("the run failed")));
  for (const std::string end :
       {"Segmentation fault (core dumped)", "srun: error: n0: task 3: Killed", "Killed",
        "slurmstepd: error: *** STEP 7.0 ON n0 CANCELLED AT 2026-01-01T00:00:00 ***",
        "mpirun noticed that process rank 3 exited on signal 9"}) {
    EXPECT_THAT(refused(text() + end + "\n"), HasSubstr("the run failed")) << end;
  }
  EXPECT_THAT(refused(replaced(text(), "values : 0 OK", "values : 2 FAILED")),
              HasSubstr("the run failed"));
  EXPECT_THAT(refused(replaced(text(), "     time", "  cputime")), HasSubstr("cputime"));
  EXPECT_THAT(refused(text().substr(0, text().find("        4096"))),
              HasSubstr("ends at 2048 of 4096 bytes"));
  EXPECT_THAT(refused(text().substr(0, text().find("    0.32"))), HasSubstr("x.log:11"));
  EXPECT_THAT(refused(std::string("# algbw busbw") + '\0'), HasSubstr("binary"));
}

// What NCCL says of itself and what ranks that end one after the other lose stops no run.
TEST_F(NcclTests, HarmlessWarningsAreNoFailures) {
  for (const std::string line :
       {"n1:11:20 [0] NCCL WARN NUMA auto balancing enabled which can lead to variability",
        "n1:11:20 [0] misc/socket.cc:484 NCCL WARN Connect to 10.0.0.1 failed : retrying",
        "n1:11:20 [0] NCCL INFO Out of memory handles, Connection closed by remote peer",
        "srun: warning: can't run 1 processes on 2 nodes", "numKilled 0"}) {
    EXPECT_EQ(refused(line + "\n" + text()), "") << line;
  }
  const std::string lost = "n1:11:20 [0] NCCL WARN Connection closed by remote peer n2<1234>\n";
  EXPECT_EQ(refused(text() + lost), "");
  EXPECT_THAT(refused(replaced(text(), "        4096", lost + "        4096")),
              testing::AllOf(HasSubstr("x.log:11: the run failed"), HasSubstr("--partial")));
}

TEST_F(NcclTests, LaunchersAndDriversSayThatARunFailed) {
  for (const std::string end :
       {"[n1:11] *** Process received signal ***\nAborted (core dumped)", "[1,3]<stderr>:Killed",
        "./run.sh: line 3: 99 Aborted ./all_reduce_perf",
        "n1:11:20 [0] NCCL WARN Cuda failure 'out of memory'",
        "n1:11:20 [0] enqueue.cc:99 NCCL WARN Cuda failure 700 'an illegal memory access'",
        "ncclUnhandledCudaError: unhandled cuda error, NCCL version 2.21.5",
        "srun: error: n0: tasks 0-7: Exited with exit code 1",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0",
        "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
        "a process returned a non-zero exit code", "Out of memory: Killed process 99"}) {
    EXPECT_THAT(refused(text() + end + "\n"), HasSubstr("the run failed")) << end;
    EXPECT_EQ(samples(text() + end + "\n", true).size(), 6U) << end;
  }
}

// A time that its own bandwidth contradicts, and nodes with unequal numbers of ranks.
TEST_F(NcclTests, RefusesWhatContradictsItself) {
  const std::string fast = replaced(text(), "14.50    0.28", "14.50   28.00");
  EXPECT_THAT(refused(fast), HasSubstr("x.log:11: algbw 28.00 GB/s, but 4 KiB in 1.45e-05 s"));
  EXPECT_THAT(refused(replaced(text(), "12.50    0.08    0.12", "12.50    0.10    0.15")),
              HasSubstr("x.log:9: algbw 0.10 GB/s, but 1 KiB in 1.25e-05 s are 0.08 GB/s"));
  EXPECT_THAT(refused(replaced(text(), "0.28    0.42", "0.28    0.28")),
              HasSubstr("x.log:11: busbw 0.28 GB/s, but algbw 0.28 GB/s of all-reduce on 4 ranks "
                        "is 0.42 GB/s"));
  EXPECT_THAT(refused(replaced(text(), "2048           512", "2048           511")),
              HasSubstr("x.log:10: size 2048, but 511 elements of type float are 2044 bytes"));
  const std::string uneven = replaced(text(), "Pid  12 on node1", "Pid  12 on node2");
  EXPECT_THAT(refused(uneven), HasSubstr("1 ranks on node1, but 3 on node2"));
  const std::string mixed = replaced(text(), "device  1 [0x0a] NVIDIA H100 80GB HBM3",
                                     "device  1 [0x0a] NVIDIA A100-SXM4-80GB");
  EXPECT_THAT(refused(mixed), HasSubstr("x.log:4: rank 1 is on a NVIDIA A100-SXM4-80GB, but the "
                                        "first one on a NVIDIA H100 80GB HBM3"));
  EXPECT_THAT(message_of(write("x.log", mixed), true), HasSubstr("nothing in it can be used"));
}

// Fewer digits leave more room, and the first versions leave the own part of a rank out of algbw.
TEST_F(NcclTests, RoundingIsNoContradiction) {
  EXPECT_EQ(refused(replaced(text(), "12.50    0.08", "   12    0.08")), "");
  EXPECT_THAT(refused(replaced(text(), "12.50    0.08", "   16    0.08")), HasSubstr("x.log:9"));
  EXPECT_EQ(refused(replaced(text(), "12.50    0.08    0.12", "1.3e1    0.1     0.1 ")), "");
  const std::string first =
      replaced(replaced(text(), kRows, kDividedRows), "all_reduce", "all_gather");
  const std::string row = "1024            64     float    none      -1    12.50    0.08    0.06";
  EXPECT_THAT(refused(replaced(first, row, row.substr(0, row.size() - 4) + "0.08")),
              HasSubstr("x.log:9: busbw 0.08 GB/s"));
  EXPECT_EQ(refused(replaced(first, row, "1024 256 float none -1 12.50 0.25 0.25")), "");
}

TEST_F(NcclTests, RefusesTwoRanksInOneFile) {
  std::string mixed = std::string(kTest) + kConfig + kRanks + kHeader;
  std::string_view rows = kRows;
  while (!rows.empty()) {
    const std::size_t end = rows.find('\n') + 1;
    mixed += std::string(rows.substr(0, end)) + std::string(rows.substr(0, end));
    rows.remove_prefix(end);
  }
  EXPECT_THAT(refused(mixed), HasSubstr("two ranks or runs"));
  EXPECT_THAT(refused(std::string(kTest) + kConfig + kRanks + kHeader + kHeader + kRows),
              HasSubstr("second header"));
  EXPECT_THAT(refused(replaced(text(), "        2048", "1:      2048")), HasSubstr("another rank"));
}

// Two logs in one file: told where nothing else differs, refused where the runs do.
TEST_F(NcclTests, JoinedLogs) {
  const Reading twice = read(write("x.log", text() + text()));
  ASSERT_EQ(twice.remarks.size(), 1U);
  EXPECT_THAT(twice.remarks.front(), HasSubstr("a second table of all_reduce behind that of line"));
  EXPECT_EQ(twice.files.front().samples.size(), 12U);
  EXPECT_TRUE(read(write("x.log", text())).remarks.empty());
  const auto after = [&](const std::string& notes) {
    return refused("# nodes: 2  gpu: H100  nccl: 2.26.2\n" + text() + notes + text());
  };
  EXPECT_EQ(after("# nodes: 2  gpu: H100  nccl: 2.26.2+cuda12.8\n"), "");
  EXPECT_THAT(after("# nccl: 2.27.3\n"), HasSubstr("NCCL 2.27.3, but 2.26.2 of the rows before"));
  EXPECT_THAT(after("# gpu: A100\n"), HasSubstr("two runs wrote into this file"));
  EXPECT_THAT(after("# nodes: 1\n"), HasSubstr("nodes 1, but 2 of the rows before"));
}

// The logs of two nodes are not that of a run on both.
TEST_F(NcclTests, RanksStayWhereTheyWere) {
  EXPECT_EQ(refused(text() + text()), "");
  EXPECT_THAT(refused(text() + replaced(text(), "Pid  11 on node1", "Pid  11 on node9")),
              HasSubstr("rank 0 on node9, but on node1 of the rows before"));
  const std::string more = replaced(text(), kRanks,
                                    std::string(kRanks) +
                                        "#  Rank  4 Group  0 Pid  15 on node1 "
                                        "device  2 [0x0b] NVIDIA H100 80GB HBM3\n");
  EXPECT_THAT(refused(text() + more), HasSubstr("rank 4, but 4 ranks of the rows before"));
}

TEST_F(NcclTests, TheFileNamesTheCollectiveOfOlderLogs) {
  const std::string unnamed = std::string(kConfig) + kRanks + kHeader + kDividedRows + kFooter;
  const Reading reading = read(write("h100-reduce_scatter-2.log", unnamed));
  ASSERT_EQ(reading.files.size(), 1U);
  EXPECT_EQ(std::get<CollectiveSample>(reading.files[0].samples[0].shape).kind,
            sim::CommKind::ReduceScatter);
  EXPECT_THAT(message_of(write("run.log", unnamed)), HasSubstr("nor the name of the file"));
  EXPECT_THAT(message_of(write("all_reduce-and-all_gather.log", unnamed)),
              HasSubstr("nor the name of the file"));
}

// rccl-tests until 2020 (src/common.cu): a colon behind every name, no space in "warmupIters".
TEST_F(NcclTests, FirstVersionsOfRcclTests) {
  const std::string config =
      "# nThread: 1 nGpus: 1 minBytes: 1024 maxBytes: 4096 step: 2(factor) warmupIters: 5 iters: "
      "20 "
      "validation: 1 \n";
  const std::string rows = std::string(kTest) + config + kRanks + kHeader + kRows;
  EXPECT_EQ(samples(rows + kFooter).size(), 6U);
  const std::string cut = rows.substr(0, rows.rfind("        4096"));
  EXPECT_THAT(refused(cut), HasSubstr("the log ends at 2048 of 4096 bytes"));
}

// In a folder of logs those of other collectives must not stop a fit.
TEST_F(NcclTests, OtherCollectivesAreLeftOut) {
  const Reading reading = read(write("x.log", replaced(text(), "all_reduce_perf", "reduce_perf")));
  EXPECT_TRUE(reading.files.empty());
  ASSERT_EQ(reading.remarks.size(), 1U);
  EXPECT_THAT(reading.remarks.front(), HasSubstr("x.log: left out 3 x collective \"reduce\""));
}

TEST_F(NcclTests, LineEndsOfWindowsDoNotMatter) {
  std::string windows;
  for (const char c : text()) {
    windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  }
  EXPECT_EQ(samples(windows).size(), samples(text()).size());
}

TEST_F(NcclTests, PartialUsesTheSoundRows) {
  const std::string broken =
      replaced(replaced(text(), "0.42      0", "0.42      3"), "   13.50", "   13,50");
  const Reading reading = read(write("x.log", broken), true);
  EXPECT_EQ(reading.files.front().samples.size(), 3U);
  EXPECT_EQ(reading.remarks.size(), 2U);
}

// Split ranks (NCCL_TESTS_SPLIT): the times are those of each of the groups at once.
TEST_F(NcclTests, SplitRanksAreGroupsAtOnce) {
  std::string split = replaced(text(), "Rank  1 Group  0", "Rank  1 Group  1");
  split = replaced(split, "Rank  3 Group  0", "Rank  3 Group  1");
  const std::string rows =
      "        1024           256     float     sum      -1    12.50    0.08    0.08      0    "
      "11.00"
      "    0.09    0.09      0\n        4096          1024     float     sum      -1    14.50    "
      "0.28    0.28      0    13.00    0.32    0.32      0\n";
  split = split.substr(0, split.find("        1024")) + rows + kFooter;
  const std::vector<Sample> all = samples(split);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(std::get<CollectiveSample>(all.front().shape),
            (CollectiveSample{.kind = sim::CommKind::AllReduce,
                              .bytes = 1024,
                              .ranks = 2,
                              .ranks_per_node = 1,
                              .nodes = 2,
                              .concurrent_groups = 2}));
  EXPECT_THAT(refused(replaced(split, "Rank  3 Group  1", "Rank  3 Group  0")),
              HasSubstr("the ranks are split into unequal groups"));
}

TEST_F(NcclTests, ForcedAlgorithmsAreNoted) {
  const std::string line = "n1:11:20 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n";
  const Reading reading = read(write("x.log", line + line + text()));
  const std::vector<std::string>& notes = reading.files.front().header.notes;
  EXPECT_EQ(std::count(notes.begin(), notes.end(), "NCCL_ALGO=Ring"), 1);
}

// The published rows, found again in the logs they were taken from.
TEST_F(NcclTests, LogsAgreeWithTheirTable) {
  const std::filesystem::path folder = shared("nccl-logs");
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "samples are not here";
  }
  using Key = std::tuple<std::string, std::int64_t, bool>;
  std::multimap<Key, double> times;
  std::size_t logs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".txt" || name.find("-reduce-") != std::string::npos) {
      continue;
    }
    ++logs;
    for (const SampleFile& file : read(entry.path().string()).files) {
      for (const Sample& sample : file.samples) {
        const auto& shape = std::get<CollectiveSample>(sample.shape);
        times.insert({{name, shape.bytes, shape.in_place}, sample.time.median.value()});
      }
    }
  }
  EXPECT_EQ(logs, 144U);
  std::size_t found = 0;
  for (const SampleFile& file : read((folder / "rows.csv").string()).files) {
    for (const Sample& sample : file.samples) {
      const auto& shape = std::get<CollectiveSample>(sample.shape);
      const auto [begin, end] = times.equal_range({sample.source, shape.bytes, shape.in_place});
      const auto match = std::find_if(begin, end, [&](const auto& entry) {
        return std::abs(entry.second / sample.time.median.value() - 1) < 1e-3;
      });
      EXPECT_NE(match, end) << sample.source << " " << shape.bytes;
      found += match != end ? 1 : 0;
    }
  }
  EXPECT_EQ(found, times.size());
}

}  // namespace
}  // namespace orrery::calibrate
