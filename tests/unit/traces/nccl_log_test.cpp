// SPDX-License-Identifier: Apache-2.0
#include "traces/nccl_log.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "tests/folders.hpp"

namespace orrery::traces {
namespace {

constexpr const char* kModern =
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20\n"
    "# Collective test starting: all_reduce_perf\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  11 on node1 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid  11 on node1 device  1 [0x0a] NVIDIA H100 80GB HBM3\n"
    "#\n"
    "#                                                out-of-place                 in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  "
    "algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " "
    "(GB/s)  (GB/s)\n"
    "node1:11:20 [0] NCCL INFO Channel 00/24 : 0 1\n"
    "           8             2     float     sum      -1    12.50    0.01    0.02      0    11.0  "
    "  "
    "0.02    0.03    N/A\n"
    "     1048576        262144     float     sum      -1    1e3    83.89    85.00      3    900.0 "
    "   "
    "93.21    95.00      0\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 42.5\n";

TEST(NcclLog, ReadsModernColumns) {
  const NcclLog log = parse_nccl_log(kModern, "log");
  EXPECT_EQ(log.collective, "all_reduce");
  EXPECT_EQ(log.ranks, 2);
  EXPECT_EQ(log.device, "NVIDIA H100 80GB HBM3");
  ASSERT_EQ(log.rows.size(), 2U);
  const NcclRow& row = log.rows[1];
  EXPECT_EQ(row.size, ByteCount(1 << 20));
  EXPECT_EQ(row.count, 262144);
  EXPECT_EQ(row.type, "float");
  EXPECT_EQ(row.op, "sum");
  EXPECT_EQ(row.root, -1);
  EXPECT_EQ(row.line, 12);
  EXPECT_DOUBLE_EQ(row.out_of_place->time.value(), 1e-3);
  EXPECT_DOUBLE_EQ(row.out_of_place->busbw.value(), 85e9);
  EXPECT_EQ(row.out_of_place->wrong, 3);
  EXPECT_EQ(row.in_place->wrong, 0);
  EXPECT_FALSE(log.rows[0].in_place->wrong.has_value());
}

TEST(NcclLog, HeaderDrivesColumns) {
  const NcclLog log = parse_nccl_log(
      "# size count type time algbw busbw error time algbw busbw error\n"
      "# (B) (elements) (ms) (GB/s) (GB/s) (ms) (GB/s) (GB/s)\n"
      "1024 256 float 2 1.0 2.0 0e+00 - - - -\n",
      "old");
  ASSERT_EQ(log.rows.size(), 1U);
  EXPECT_EQ(log.rows[0].op, "");
  EXPECT_DOUBLE_EQ(log.rows[0].out_of_place->time.value(), 2e-3);
  EXPECT_FALSE(log.rows[0].out_of_place->wrong.has_value());
  EXPECT_FALSE(log.rows[0].in_place.has_value());
}

TEST(NcclLog, AcceptsTaggedOutputAndCarriageReturns) {
  const NcclLog log = parse_nccl_log(
      "[1,0]<stdout>:# size count type redop root time algbw busbw\r\n"
      "[1,0]<stdout>: 8 2 float sum 0 5 0 0\r\n",
      "log");
  ASSERT_EQ(log.rows.size(), 1U);
  EXPECT_EQ(log.rows[0].root, 0);
}

std::string message_of(const std::string& text) {
  try {
    (void)parse_nccl_log(text, "x.log");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kHeader = "# size count type redop root time algbw busbw\n";

TEST(NcclLog, ReadsLinesWithTheTimeBeforeThem) {
  for (const std::string stamp : {"2025-06-01T12:00:00.123456789Z ", "2025-06-01 12:00:00,123 ",
                                  "2025-06-01T12:00:00.1+00:00 stdout F "}) {
    std::string text;
    std::string_view left = kModern;
    while (!left.empty()) {
      const std::size_t end = left.find('\n') + 1;
      text.append(stamp).append(left.substr(0, end));
      left.remove_prefix(end);
    }
    const NcclLog log = parse_nccl_log(text, "log");
    ASSERT_EQ(log.rows.size(), 2U) << stamp;
    EXPECT_EQ(log.device, "NVIDIA H100 80GB HBM3");
    EXPECT_DOUBLE_EQ(log.rows[1].out_of_place->time.value(), 1e-3);
  }
}

TEST(NcclLog, RejectsWithFileAndLine) {
  using testing::HasSubstr;
  EXPECT_THAT(message_of(""), HasSubstr("no header row"));
  EXPECT_THAT(message_of("8 2 float sum -1 5 0 0\n"), HasSubstr("no header row"));
  EXPECT_THAT(message_of(std::string(kHeader) + "8 2 float sum"), HasSubstr("x.log:2"));
  EXPECT_THAT(message_of(std::string(kHeader) + "8 2 float sum -1 abc 0 0"),
              HasSubstr("x.log:2: time"));
  EXPECT_THAT(message_of(std::string(kHeader) + "8 2 float sum -1 nan 0 0"), HasSubstr("x.log:2"));
  EXPECT_THAT(message_of(std::string(kHeader) + "8 2 float sum -1 -5 0 0"), HasSubstr("x.log:2"));
  EXPECT_THAT(message_of(std::string(kHeader) + "99999999999999999999 2 float sum -1 5 0 0"),
              HasSubstr("x.log:2: size"));
  EXPECT_THAT(message_of(std::string(kHeader) + std::string(70'000, '8')), HasSubstr("too long"));
  EXPECT_THAT(message_of(std::string(kHeader) + "8x 2 float sum -1 5 0 0"),
              HasSubstr("x.log:2: \"8x\" is no size"));
  EXPECT_THAT(
      message_of(std::string(kHeader) + "8 2 float sum -1 5 0 0\nnode7:4711 NCCL INFO 1 2 3 4"),
      testing::Not(HasSubstr("is no size")));
}

TEST(NcclLog, NullBytesAndLongRowsDoNotCrash) {
  EXPECT_THROW((void)parse_nccl_log(std::string(1000, '\0'), "x"), Error);
  std::string header = "# size count";
  for (int i = 0; i < 100; ++i) {
    header += " time busbw";
  }
  EXPECT_THAT(message_of(header + "\n"), testing::HasSubstr("too many columns"));
}

TEST(NcclLog, ReadsEveryPublishedSample) {
  const std::filesystem::path folder = orrery::shared_folder() / "nccl-logs";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "samples are not here";
  }
  std::size_t files = 0;
  std::size_t rows = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") {
      const NcclLog log = parse_nccl_log(
          read_file(entry.path().string(), limits::kMaxTableFileBytes), entry.path().string());
      EXPECT_GT(log.ranks, 1) << entry.path();
      EXPECT_FALSE(log.collective.empty()) << entry.path();
      ++files;
      rows += log.rows.size();
    }
  }
  EXPECT_EQ(files, 146U);
  EXPECT_EQ(rows, 4833U);
}

// A table of two rows, each line behind what a launcher or collector writes before it.
NcclLog read_behind(const std::string& before) {
  return parse_nccl_log(fmt::format("{0}{1}{0}   8 2 float sum 0 5.0 0 0\n"
                                    "{0}   16 4 float sum 0 5.0 0 0\n",
                                    before, kHeader),
                        "log");
}

TEST(NcclLog, LaunchersAndCollectorsWriteBeforeEveryLine) {
  for (const char* before :
       {"", "[0] ", "[default0]:", "node0: ", "3: ", "[1,0]<stdout>:", "[2024-05-01 10:00:00] ",
        "2024-05-01T10:00:00.123Z stdout F ", "Mon Nov 30 01:02:03 2026[1,0]<stdout>:", "\x1b[32m",
        "\x1b[1;31m[0] \x1b[0m", "\x1b]0;node0: mpirun\a", "\x1b]2;a title\x1b\\[0] "}) {
    EXPECT_EQ(read_behind(before).rows.size(), 2U) << before;
  }
}

// Of half the rows, too: none is passed over.
TEST(NcclLog, RowsBehindOtherWordsAreNotPassedOver) {
  const std::string begin = std::string(kHeader) + "8 2 float sum 0 5.0 0 0\n";
  EXPECT_EQ(parse_nccl_log(begin + "\x1b[32m16 4 float sum 0 5.0 0 0\x1b[0m\n", "log").rows.size(),
            2U);
  for (const char* other :
       {"node0: 16 4 float sum 0 5.0 0 0", "some words 16 4 float sum 0 5.0 0 0",
        "[1] 16 4 float sum 0 5.0 0 0"}) {
    EXPECT_THROW(parse_nccl_log(begin + other + "\n", "log"), Error) << other;
  }
  EXPECT_EQ(parse_nccl_log(begin + "node1: training 12 13 of 15 at 7\n", "log").rows.size(), 1U);
}

TEST(NcclLog, SaysWhichNetworkNcclUses) {
  const auto network = [](const std::string& lines) {
    return parse_nccl_log(lines + kHeader + "8 2 float sum 0 5.0 0 0\n", "log").network;
  };
  EXPECT_EQ(network(""), "");
  EXPECT_EQ(network("n0:1:1 [0] NCCL INFO NET/IB : No device found.\n"
                    "n0:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
                    "n0:1:1 [0] NCCL INFO Using network Socket\n"),
            "Socket");
  EXPECT_EQ(
      network("n0:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
              "n0:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"),
      "IB");
  EXPECT_EQ(network("Using network Socket\n"), "");
}

}  // namespace
}  // namespace orrery::traces
