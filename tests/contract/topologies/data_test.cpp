// SPDX-License-Identifier: Apache-2.0
// Every GPU, node and cluster file: it loads, its numbers are in range and have sources, names and
// aliases are unique, and the published figures of the shared folder are covered and agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "tests/folders.hpp"
#include "topologies/builder.hpp"
#include "topologies/cluster.hpp"
#include "topologies/documents.hpp"

namespace orrery::topologies {
namespace {

namespace fs = std::filesystem;

fs::path shared(const std::string& relative) { return orrery::shared_folder() / relative; }

Json file(const std::string& folder, const std::string& name) {
  return read_json_file(data_path("topologies/" + folder + "/" + name + ".json"));
}

class GpuFile : public testing::TestWithParam<std::string> {};
class NodeFile : public testing::TestWithParam<std::string> {};
class ClusterFile : public testing::TestWithParam<std::string> {};

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST_P(GpuFile, LoadsWithNumbersInRange) {
  const Gpu gpu = load_gpu(GetParam());
  EXPECT_EQ(gpu.name, GetParam());
  EXPECT_GE(gpu.memory.value(), 8LL << 30);
  EXPECT_LE(gpu.memory.value(), 512LL << 30);
  EXPECT_GE(gpu.hbm_bandwidth.value(), 3e11);
  EXPECT_LE(gpu.hbm_bandwidth.value(), 2e13);
  for (const FlopsPerSecond peak : gpu.peak) {
    EXPECT_TRUE(peak.value() == 0 || (peak.value() > 8e12 && peak.value() < 2e16));
  }
  EXPECT_LE(gpu.peak_of(DType::Bf16),
            gpu.peak_of(DType::Fp8).value() > 0 ? gpu.peak_of(DType::Fp8) : FlopsPerSecond(1e18));
  EXPECT_LE(gpu.price.value() * 3600, 20.0);
}

TEST_P(GpuFile, StatesSources) {
  const Json document = file("gpus", GetParam());
  const Json* sources = document.find("sources");
  ASSERT_NE(sources, nullptr);
  EXPECT_NE(sources->find("figures"), nullptr);
  EXPECT_NE(sources->find("memory"), nullptr);
  EXPECT_EQ(document.find("price") != nullptr, sources->find("price") != nullptr);
}

TEST_P(GpuFile, StatesFactsThatAreOnesOfItsOwn) {
  const Gpu gpu = load_gpu(GetParam());
  EXPECT_TRUE(!gpu.short_fp8_sums || gpu.peak_of(DType::Fp8).value() > 0);
  const bool server_blackwell = gpu.compute_capability >= 10 && gpu.compute_capability < 12;
  EXPECT_EQ(gpu.any_fp8_layout, server_blackwell);
  EXPECT_TRUE(!gpu.stands_for_others || gpu.compute_capability > 0);
  if (!gpu.usual_node.empty()) {
    EXPECT_EQ(load_cluster(gpu.usual_node).gpu.name, gpu.name);
  }
  for (const std::string& name : gpu_names()) {
    const Gpu other = load_gpu(name);
    if (name == gpu.name) {
      continue;
    }
    EXPECT_FALSE(gpu.stands_for_others && other.stands_for_others &&
                 gpu.compute_capability == other.compute_capability)
        << name;
    for (const std::string& device : gpu.pci_devices) {
      EXPECT_EQ(std::count(other.pci_devices.begin(), other.pci_devices.end(), device), 0) << name;
    }
  }
}

// Two FLOPs a core and cycle; the fp32 rate of Hopper's SXM parts is of a clock of 1,980 MHz.
TEST_P(GpuFile, Fp32FollowsFromCoresAndClock) {
  const Gpu gpu = load_gpu(GetParam());
  if (gpu.vendor != "NVIDIA" || gpu.sm_count == 0 || gpu.boost_clock.value() == 0) {
    return;
  }
  const double capability = gpu.compute_capability;
  const bool half = capability == 6.0 || (capability >= 7 && capability <= 8);
  const double cores = (half ? 64.0 : 128.0) * gpu.sm_count;
  const double clock = capability == 9 ? std::max(gpu.boost_clock.value(), 1.98e9) : 0;
  const double stated = gpu.peak_of(DType::Fp32).value();
  EXPECT_LE(stated, 1.01 * 2 * cores * std::max(clock, gpu.boost_clock.value()));
  EXPECT_GE(stated, 0.99 * 2 * cores * gpu.boost_clock.value());
}

TEST(GpuFiles, OnesThatSeveralNodesCarryNameTheUsual) {
  std::map<std::string, int> nodes;
  for (const std::string& node : node_names()) {
    ++nodes[load_cluster(node).gpu.name];
  }
  for (const auto& [gpu, count] : nodes) {
    EXPECT_TRUE(count == 1 || !load_gpu(gpu).usual_node.empty()) << gpu;
  }
}

TEST_P(NodeFile, LoadsAloneAndOnItsFabric) {
  const Cluster one = load_cluster(GetParam());
  EXPECT_EQ(one.num_nodes, 1);
  EXPECT_EQ(one.node.name, GetParam());
  EXPECT_FALSE(one.gpu.name.empty());
  const ScaleUp& up = one.node.scale_up;
  EXPECT_LE(up.nccl_bandwidth, up.bandwidth_per_gpu);
  EXPECT_GT(up.latency.value(), 1e-7);
  const Cluster many = load_cluster(GetParam() + ":64");
  EXPECT_EQ(many.num_gpus(), 64 * one.node.gpus);
  EXPECT_GT(many.node.scale_out.nic_bandwidth.value(), 1e9);
  EXPECT_GT(many.fabric.switch_latency.value(), 0);
  const FabricScale scale = find_builder(many.fabric.builder, BuilderKind::Fabric).scale(many);
  EXPECT_GE(scale.leaf_nodes, 1);
  EXPECT_LE(scale.leaf_share, 1.0);
  // The usual fabric holds a hundred thousand GPUs.
  const int nodes = 100'000 / one.node.gpus;
  const Cluster huge = load_cluster(GetParam() + ":" + std::to_string(nodes));
  EXPECT_NO_THROW(find_builder(huge.fabric.builder, BuilderKind::Fabric).scale(huge));
}

TEST_P(NodeFile, StatesSources) {
  const Json document = file("nodes", GetParam());
  for (const char* part : {"scale_up", "scale_out", "host", "fabric"}) {
    ASSERT_NE(document.find(part), nullptr) << part;
    ASSERT_NE(document.find("sources"), nullptr);
    EXPECT_NE(document.find("sources")->find(part), nullptr) << part;
  }
}

TEST_P(ClusterFile, LoadsAndReadsBackFromItsDocument) {
  const Cluster cluster = load_cluster(GetParam());
  EXPECT_EQ(cluster.name, GetParam());
  EXPECT_GT(cluster.num_nodes, 1);
  EXPECT_NE(file("clusters", GetParam()).find("sources"), nullptr);
  EXPECT_NO_THROW(find_builder(cluster.fabric.builder, BuilderKind::Fabric).scale(cluster));
  const Cluster again = read_cluster(parse_json(cluster.document.dump(), "document"), "document");
  EXPECT_EQ(again.document, cluster.document);
  EXPECT_EQ(again.name, cluster.name);
}

INSTANTIATE_TEST_SUITE_P(All, GpuFile, testing::ValuesIn(gpu_names()), test_name);
INSTANTIATE_TEST_SUITE_P(All, NodeFile, testing::ValuesIn(node_names()), test_name);
INSTANTIATE_TEST_SUITE_P(All, ClusterFile, testing::ValuesIn(cluster_names()), test_name);

TEST(Catalogue, NamesAndAliasesAreUnique) {
  for (const auto& [folder, names] :
       {std::pair<std::string, std::vector<std::string>>{"gpus", gpu_names()},
        {"nodes", node_names()}}) {
    std::map<std::string, std::string> owner;
    for (const std::string& name : names) {
      EXPECT_TRUE(is_kebab_case(name));
      const Json document = file(folder, name);
      EXPECT_EQ(document.find("name")->as_string(), name);
      std::set<std::string> spellings = {name};
      for (const Json& alias : document.find("aliases")->as_array()) {
        spellings.insert(to_lower(alias.as_string()));
      }
      for (const std::string& spelling : spellings) {
        const auto [it, added] = owner.emplace(spelling, name);
        EXPECT_TRUE(added) << spelling << " of " << name << " and " << it->second;
        const std::string found =
            folder == "gpus" ? find_gpu_name(spelling) : find_node_name(spelling);
        EXPECT_EQ(found, name) << spelling;
      }
    }
  }
}

TEST(Catalogue, ClusterNamesDifferFromNodeNames) {
  const std::vector<std::string> nodes = node_names();
  for (const std::string& name : cluster_names()) {
    EXPECT_THAT(nodes, testing::Not(testing::Contains(name)));
  }
}

// "mixed: nodes 2xRTX-2080+1xRTX-3090" names the GPUs of a node one by one.
std::vector<std::string> gpus_of_cell(const std::string& cell) {
  if (!cell.starts_with("mixed:")) {
    return {cell};
  }
  std::vector<std::string> names;
  const std::string list = cell.substr(cell.rfind(' ') + 1);
  for (const std::string_view part : split(list, '+')) {
    names.emplace_back(part.substr(part.find('x') + 1));
  }
  return names;
}

TEST(SharedFolder, EveryGpuSpellingIsCovered) {
  if (!fs::exists(shared("measurements"))) {
    GTEST_SKIP() << "no shared folder";
  }
  std::vector<fs::path> files = {shared("nccl-logs/index.csv"), shared("nccl-logs/rows.csv")};
  for (const auto& entry : fs::directory_iterator(shared("measurements"))) {
    if (entry.path().extension() == ".csv") {
      files.push_back(entry.path());
    }
  }
  std::set<std::string> spellings;
  for (const fs::path& path : files) {
    const CsvTable table = read_csv_file(path.string());
    for (std::size_t row = 0; row < table.num_rows(); ++row) {
      for (const std::string& name : gpus_of_cell(table.cell(row, "gpu"))) {
        spellings.insert(name);
      }
    }
  }
  EXPECT_GT(spellings.size(), 30U);
  for (const std::string& name : spellings) {
    EXPECT_NO_THROW(load_gpu(name)) << name;
  }
}

double number(const CsvTable& table, std::size_t row, const std::string& column) {
  const std::string& cell = table.cell(row, column);
  return cell.empty() ? 0.0 : std::stod(cell);
}

TEST(SharedFolder, GpuFilesAgreeWithTheTable) {
  if (!fs::exists(shared("hardware.csv"))) {
    GTEST_SKIP() << "no shared folder";
  }
  const CsvTable table = read_csv_file(shared("hardware.csv").string());
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const std::string& name = table.cell(row, "gpu");
    const Gpu gpu = load_gpu(name);
    // Software sees half of an MI250X module.
    const double share = name == "MI250X" ? 0.5 : 1.0;
    EXPECT_NEAR(gpu.hbm_bandwidth.value(), share * number(table, row, "mem_bw_GBps") * 1e9, 1e9);
    EXPECT_NEAR(gpu.peak_of(DType::Fp16).value(), share * number(table, row, "fp16_tflops") * 1e12,
                1);
    EXPECT_NEAR(gpu.peak_of(DType::Bf16).value(), share * number(table, row, "bf16_tflops") * 1e12,
                1);
    if (!table.cell(row, "sm_count").empty()) {
      EXPECT_EQ(gpu.sm_count, static_cast<int>(share * number(table, row, "sm_count"))) << name;
    }
    // SM count x clock x FLOPs of an SM and cycle, derived in the table, against the tensor peak.
    const double derived = number(table, row, "derived_bf16_check_tflops") * share * 1e12;
    if (derived > 0) {
      const double peak = std::max(gpu.peak_of(DType::Bf16), gpu.peak_of(DType::Fp16)).value();
      EXPECT_NEAR(peak / derived, 1.0, 0.02) << name;
      const double per_sm_cycle = derived / (gpu.sm_count * gpu.boost_clock.value());
      EXPECT_NEAR(per_sm_cycle / std::round(per_sm_cycle / 256) / 256, 1.0, 0.01) << name;
    }
  }
}

}  // namespace
}  // namespace orrery::topologies
