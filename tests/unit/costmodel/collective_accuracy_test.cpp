// SPDX-License-Identifier: Apache-2.0
// NCCL's formulas and the default corrections against public nccl-tests logs: median errors by
// kind of node. Sizes from 1 KiB; tables of one process driving all GPUs are launch-bound and get
// the floor of 4.7 us a GPU.
#include <gtest/gtest.h>

#include <map>

#include "costmodel/collective_model.hpp"
#include "tests/unit/costmodel/measured.hpp"

namespace orrery::costmodel {
namespace {

using sim::CommKind;
using testing::Errors;
using testing::number;

constexpr double kLaunchPerGpu = 4.7;

struct Log {
  std::string interconnect;
  std::string launch;
};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// The node type that a log was taken on; "" for those that no node of the catalogue stands for.
std::string node_of(const std::string& file, const std::string& interconnect) {
  const std::string gpu = file.substr(0, file.find('-'));
  const auto any = [&](const char* part) {
    return contains(file, part) || contains(interconnect, part);
  };
  static const std::map<std::string, std::string> kByGpu = {
      {"a100", "dgx-a100"}, {"h100", "hgx-h100"},     {"h200", "hgx-h200"},
      {"b200", "hgx-b200"}, {"gb200", "gb200-nvl72"}, {"gb300", "gb300-nvl72"},
      {"v100", "dgx-1v"},   {"v100_sxm3", "dgx-2"},   {"mi300x", "mi300x-8"}};
  if (any("ipoib") || any("SHARP") || any("OCI") || any("gcp") || any("dranet")) {
    return "";
  }
  if (any("p4d")) {
    return "p4d";
  }
  if (any("p5")) {
    return "p5";
  }
  const auto found = kByGpu.find(gpu);
  return found == kByGpu.end() ? "" : found->second;
}

CommKind kind_of(const std::string& name) {
  static const std::map<std::string, CommKind> kKinds = {
      {"all_reduce", CommKind::AllReduce},
      {"all_gather", CommKind::AllGather},
      {"reduce_scatter", CommKind::ReduceScatter},
      {"alltoall", CommKind::AllToAll}};
  const auto found = kKinds.find(name);
  return found == kKinds.end() ? CommKind::None : found->second;
}

// Errors by "node, one or many, collective" plus "all-reduce" over all.
std::map<std::string, Errors> collective_errors(bool corrected) {
  const CsvTable index = read_csv_file(testing::shared_path("nccl-logs/index.csv"));
  const CsvTable rows = read_csv_file(testing::shared_path("nccl-logs/rows.csv"));
  std::map<std::string, Log> logs;
  for (std::size_t row = 0; row < index.num_rows(); ++row) {
    logs[index.cell(row, "file")] = {index.cell(row, "interconnect"), index.cell(row, "launch")};
  }
  std::map<std::string, CollectiveModel> models;
  std::map<std::string, Errors> errors;
  for (std::size_t row = 0; row < rows.num_rows(); ++row) {
    const std::string& file = rows.cell(row, "file");
    const Log& log = logs[file];
    const std::string node = node_of(file, log.interconnect);
    const CommKind kind = kind_of(rows.cell(row, "collective"));
    const Bytes size(number(rows, row, "bytes"));
    if (node.empty() || kind == CommKind::None || size < Bytes(1024)) {
      continue;
    }
    if (!models.contains(node)) {
      const topologies::Cluster cluster = topologies::load_cluster(node + ":128");
      Profile profile = load_profile("", cluster.gpu);
      if (!corrected) {
        profile.intra_node = profile.inter_node = profile.inter_node_plugin = {};
        profile.collectives = {};
      }
      models.emplace(node, CollectiveModel(cluster, profile));
    }
    const int per_node = static_cast<int>(number(rows, row, "gpus_per_node"));
    GroupShape group;
    group.ranks = static_cast<int>(number(rows, row, "ranks"));
    group.nodes = static_cast<int>(number(rows, row, "nodes"));
    group.ranks_per_node = per_node;
    if (contains(node, "nvl72")) {
      group.nodes = std::max(1, group.ranks / 72);
      group.ranks_per_node = std::min(group.ranks, 72);
    }
    double predicted = models.at(node).time(kind, size, group).value() * 1e6;
    if (contains(log.launch, "one thread (-g") || contains(log.launch, "not stated (nccl-tests")) {
      predicted = std::max(predicted, kLaunchPerGpu * group.ranks);
    }
    const std::string what = kind == CommKind::AllToAll    ? "all-to-all"
                             : kind == CommKind::AllReduce ? "all-reduce"
                                                           : "gather-scatter";
    const double measured = number(rows, row, "time_us");
    errors[node + (group.nodes == 1 ? " one " : " many ") + what].add(predicted, measured);
    errors[what].add(predicted, measured);
  }
  return errors;
}

TEST(CollectiveAccuracyTest, UncorrectedFormulas) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  std::map<std::string, Errors> errors = collective_errors(false);
  EXPECT_GT(errors["all-reduce"].size(), 1200U);
  EXPECT_LE(errors["all-reduce"].median(), 0.25);
  EXPECT_LE(errors["gather-scatter"].median(), 0.26);
  EXPECT_LE(errors["dgx-a100 one all-reduce"].median(), 0.21);
  EXPECT_LE(errors["hgx-h100 one all-reduce"].median(), 0.15);
  EXPECT_LE(errors["hgx-b200 one all-reduce"].median(), 0.32);
  EXPECT_LE(errors["mi300x-8 many all-reduce"].median(), 0.05);
}

// What the profiles promise for logs that were not in the fit.
TEST(CollectiveAccuracyTest, ErrorsOfLogsLeftOut) {
  const auto left_out = [](const char* gpu, const std::string& group) {
    for (const CollectiveError& error :
         load_profile("", topologies::load_gpu(gpu)).collectives.left_out) {
      if (error.group == group) {
        return error.median;
      }
    }
    return 1.0;
  };
  EXPECT_LE(left_out("b200-sxm-180gb", "one-node"), 0.02);
  EXPECT_LE(left_out("h100-sxm5-80gb", "one-node"), 0.03);
  EXPECT_LE(left_out("a100-sxm4-80gb", "one-node"), 0.036);
  EXPECT_LE(left_out("h100-sxm5-80gb", "several-nodes"), 0.045);
  EXPECT_LE(left_out("b200-sxm-180gb", "several-nodes"), 0.08);
  EXPECT_LE(left_out("a100-sxm4-80gb", "several-nodes"), 0.145);
}

TEST(CollectiveAccuracyTest, DefaultCorrections) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  std::map<std::string, Errors> errors = collective_errors(true);
  EXPECT_LE(errors["all-reduce"].median(), 0.10);
  EXPECT_LE(errors["all-reduce"].quantile(0.9), 0.30);
  EXPECT_LE(errors["gather-scatter"].median(), 0.12);
  EXPECT_LE(errors["dgx-a100 one all-reduce"].median(), 0.075);
  EXPECT_LE(errors["dgx-a100 many all-reduce"].median(), 0.12);
  EXPECT_LE(errors["hgx-h100 one all-reduce"].median(), 0.11);
  EXPECT_LE(errors["hgx-h100 many all-reduce"].median(), 0.10);
  EXPECT_LE(errors["hgx-b200 one all-reduce"].median(), 0.11);
  EXPECT_LE(errors["hgx-b200 many all-reduce"].median(), 0.09);
  EXPECT_LE(errors["gb200-nvl72 one all-reduce"].median(), 0.08);
  EXPECT_LE(errors["dgx-1v one all-reduce"].median(), 0.08);
  EXPECT_LE(errors["dgx-1v many all-reduce"].median(), 0.06);
  EXPECT_LE(errors["p5 many all-reduce"].median(), 0.17);
  EXPECT_LE(errors["p4d many all-reduce"].median(), 0.12);
  EXPECT_LE(errors["dgx-a100 one all-to-all"].median(), 0.15);
  EXPECT_LE(errors["hgx-h100 one all-to-all"].median(), 0.15);
  EXPECT_LE(errors["hgx-b200 one all-to-all"].median(), 0.15);
  EXPECT_LE(errors["hgx-b200 many all-to-all"].median(), 0.10);
}

}  // namespace
}  // namespace orrery::costmodel
