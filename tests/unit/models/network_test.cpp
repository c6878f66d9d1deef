// SPDX-License-Identifier: Apache-2.0
// Totals of well-known networks, and NETWORK with its overrides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "tests/folders.hpp"
#include "tests/unit/models/specs.hpp"

namespace orrery::models {
namespace {

using testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(testing::TempDir() + "orrery_network_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".json") {
    std::ofstream(path_) << content;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Totals, ParametersOfWellKnownNetworks) {
  struct Row {
    const char* name;
    double billions;
    double active;
  };
  const Row rows[] = {
      {"llama2-70b", 68.98, 68.98},     {"gpt3-175b", 174.6, 174.6},
      {"gpt-22b", 22.07, 22.07},        {"gpt-1t", 1008.0, 1008.0},
      {"llama3-8b", 8.030, 8.030},      {"llama3-70b", 70.55, 70.55},
      {"llama3-405b", 405.85, 405.85},  {"mixtral-8x7b", 46.70, 12.88},
      {"mixtral-8x22b", 140.6, 39.1},   {"deepseek-v3", 671.0, 37.5},
      {"deepseek-v2", 235.7, 21.4},     {"qwen3-30b-a3b", 30.53, 3.35},
      {"qwen3-235b-a22b", 235.1, 22.2}, {"gemma-2b", 2.506, 2.506},
      {"gemma2-9b", 9.24, 9.24},        {"gpt2", 0.1244, 0.1244},
      {"gpt-neox-20b", 20.55, 20.55},   {"opt-1.3b", 1.316, 1.316},
      {"bert-large", 0.336, 0.336},     {"t5-11b", 11.3, 11.3},
      {"t5-base", 0.223, 0.223},        {"vit-base-16", 0.0866, 0.0866},
      {"gpt-oss-120b", 116.83, 5.7},    {"nemotron-4-340b", 341.0, 341.0},
      {"bloom-176b", 176.25, 176.25},   {"mpt-30b", 29.975, 29.975},
  };
  for (const Row& row : rows) {
    const Network network = load_network(row.name);
    const auto total = static_cast<double>(num_parameters(network)) / 1e9;
    const auto active = static_cast<double>(num_active_parameters(network)) / 1e9;
    EXPECT_NEAR(total, row.billions, 1.5e-3 * row.billions) << row.name;
    EXPECT_NEAR(active, row.active, 5e-3 * row.active) << row.name;
  }
}

TEST(Totals, ModelFlopsAreThoseOfKorthikanti) {
  const Network network = load_network("gpt-22b");
  const Workload work{.batch = 4, .sequence = 2048};
  const double s = 2048;
  const double h = 6144;
  const double expected = 72 * 4 * 48 * s * h * h * (1 + s / (6 * h) + 51200 / (12.0 * h * 48));
  EXPECT_NEAR(model_flops(network, work).value(), expected, 1e-12 * expected);
  EXPECT_NEAR(model_flops(network, work).value(), 1.1437e15, 2e-4 * 1.1437e15);
}

TEST(Totals, LayersMatchTheProfilesOfGalvatron) {
  // Mebibytes of fp32 weights measured for one layer.
  const auto mebibytes = [](const Block& block) {
    return static_cast<double>(num_parameters(block)) * 4 / (1024 * 1024);
  };
  const Network t5 = load_network("t5-large-32");
  EXPECT_NEAR(mebibytes(block_named(t5, "encoder")), 48.01, 0.01);
  EXPECT_NEAR(mebibytes(block_named(t5, "decoder")), 64.012, 0.01);
  const Network bert = load_network("bert-huge-32");
  EXPECT_NEAR(mebibytes(block_named(bert, "dense")), 75.06, 0.01);
}

TEST(LoadNetwork, SuggestsTheNearestName) {
  EXPECT_THAT(message_of([] { load_network("lama3-8b"); }), HasSubstr("llama3-8b"));
  EXPECT_THAT(message_of([] { load_network(""); }), HasSubstr("no network is called"));
}

TEST(LoadNetwork, OverridesAnyField) {
  const Network network = load_network("llama3-70b", {"layers=4", "sequence=4096", "vocab=32000"});
  EXPECT_EQ(network.spec.layers, 4);
  EXPECT_EQ(network.spec.sequence, 4096);
  EXPECT_EQ(network.chain.size(), 6U);
  EXPECT_EQ(network.overrides.size(), 3U);
  EXPECT_EQ(network.document.find("layers")->as_integer(), 4);
}

TEST(LoadNetwork, OverridesReachPartsThatWereAbsent) {
  const Network network =
      load_network("llama3-8b", {"moe.experts=8", "moe.top_k=2", "moe.ffn_hidden=4096"});
  EXPECT_EQ(block_named(network, "moe").experts, 8);
}

TEST(LoadNetwork, RefusesBadOverrides) {
  EXPECT_THAT(message_of([] { load_network("gpt2", {"layer=4"}); }), HasSubstr("layers"));
  EXPECT_THAT(message_of([] { load_network("gpt2", {"layers"}); }), HasSubstr("name=value"));
  EXPECT_THAT(message_of([] { load_network("gpt2", {"layers=0"}); }), HasSubstr("layers"));
  EXPECT_THAT(message_of([] { load_network("gpt2", {"layers=many"}); }), HasSubstr("many"));
  EXPECT_THAT(message_of([] { load_network("gpt2", {"heads=7"}); }), HasSubstr("7 heads"));
  EXPECT_THAT(message_of([] { load_network("gpt2", {"moe.expert=8"}); }), HasSubstr("experts"));
}

TEST(LoadNetwork, ReadsNativeFilesAndConfigurations) {
  const Network zoo = load_network("llama3-8b");
  const TemporaryFile native(zoo.document.dump());
  EXPECT_EQ(load_network(native.path()).spec, zoo.spec);
  const Network imported = load_network(
      orrery::test_folder().string() + "/data/hf/llama3.1-8b.json", {"sequence=2048", "layers=2"});
  EXPECT_EQ(imported.spec.sequence, 2048);
  EXPECT_EQ(imported.spec.hidden, 4096);
  EXPECT_EQ(imported.chain.size(), 4U);
}

TEST(LoadNetwork, ReportsBrokenFiles) {
  EXPECT_THROW(load_network("/nonexistent/network.json"), Error);
  const TemporaryFile truncated("{\"schema\": \"orrery-network\", ");
  EXPECT_THROW(load_network(truncated.path()), Error);
  EXPECT_THROW(load_network(testing::TempDir()), Error);
}

}  // namespace
}  // namespace orrery::models
