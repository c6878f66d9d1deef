// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/log_facts.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace orrery::studies {
namespace {

using calibrate::LaunchMode;
namespace fs = std::filesystem;

class LogFactsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / "log_facts";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string table() const { return (folder_ / "rows.csv").string(); }

  fs::path folder_;
};

TEST_F(LogFactsTest, ReadsTheHeaderOfTheLog) {
  write("a.txt",
        "# gpu: H100  nodes: 2\n# collective: all_reduce  interconnect: 8x 400Gb/s RoCE\n"
        "# nccl: 2.23.4+cuda12.6  launch: 1 GPU per process\n  1024  256\n# nccl: 2.9\n");
  const LogFacts facts = log_facts(table(), "a.txt");
  EXPECT_EQ(facts.interconnect, "8x 400Gb/s RoCE");
  EXPECT_EQ(facts.nccl, 223);
  EXPECT_EQ(facts.launch, LaunchMode::ProcessPerGpu);
}

TEST_F(LogFactsTest, ReadsTheIndexWhereTheLogIsMissing) {
  write("index.csv",
        "file,interconnect,nccl_version,launch\n"
        "b.txt,NVSwitch,2.9.9,\"8 GPUs in one process, one thread (-g 8)\"\n");
  const LogFacts facts = log_facts(table(), "b.txt");
  EXPECT_EQ(facts.interconnect, "NVSwitch");
  EXPECT_EQ(facts.nccl, 209);
  EXPECT_EQ(facts.launch, LaunchMode::OneProcess);
  EXPECT_EQ(log_facts(table(), "c.txt").nccl, 0);
}

TEST_F(LogFactsTest, GoesByTheNameElse) {
  EXPECT_EQ(log_facts(table(), "h100-1x8-all_reduce-site_nccl2292.txt").nccl, 229);
  EXPECT_EQ(log_facts(table(), "h100-1x8-all_reduce-site_nccl223").nccl, 223);
  EXPECT_EQ(log_facts(table(), "h100-2x8-all_reduce-nccltests309").nccl, 0);
}

// Collections of logs whose command lines and networks are known.
TEST_F(LogFactsTest, KnowsWhereCollectionsCameFrom) {
  EXPECT_EQ(log_facts(table(), "a100-1x8-all_reduce-superbench.txt").launch,
            LaunchMode::OneProcess);
  EXPECT_EQ(log_facts(table(), "a100-1x4-all_reduce-vtrain.txt").launch, LaunchMode::OneProcess);
  EXPECT_EQ(log_facts(table(), "h100-1x8-alltoall-aiconfig_nccl223.txt").launch,
            LaunchMode::ThreadPerGpu);
  EXPECT_EQ(log_facts(table(), "h200-2x8-all_reduce-oci.txt").interconnect, "RoCE");
  EXPECT_EQ(log_facts(table(), "h100-2x8-all_reduce-site.txt").launch, LaunchMode::Unknown);
}

TEST_F(LogFactsTest, StaysInTheFolder) {
  write("d.txt", "# nccl: 2.23.4\n");
  EXPECT_EQ(log_facts(table(), "../log_facts/d.txt").nccl, 0);
  EXPECT_EQ(log_facts("-", "d.txt").nccl, 0);
}

}  // namespace
}  // namespace orrery::studies
