// SPDX-License-Identifier: Apache-2.0
// Measurement rows for tests: a complete GPT run on 8 A100 whose cells can be replaced.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/csv.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/validation/predictions.hpp"

namespace orrery::testing {

// Code in this namespace and around it says testing:: for Googletest's, too.
using namespace ::testing;

// Gone with its scope.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("orrery-studies-" + name)) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

using Changes = std::map<std::string, std::string>;

inline std::vector<std::pair<std::string, std::string>> default_cells() {
  return {{"id", "r1"},
          {"config_id", "c1"},
          {"year", "2024"},
          {"model_family", "gpt"},
          {"layers", "24"},
          {"hidden", "2048"},
          {"heads", "16"},
          {"vocab", "50257"},
          {"seq_len", "2048"},
          {"tied_embeddings", "1"},
          {"precision", "bf16"},
          {"gpu", "A100-80GB-SXM"},
          {"gpus", "8"},
          {"gpus_per_node", "8"},
          {"inter_node", "n/a"},
          {"framework", "Megatron-LM"},
          {"attention_impl", "flash"},
          {"tp", "2"},
          {"pp", "2"},
          {"vpp", "1"},
          {"dp", "2"},
          {"zero_stage", "1"},
          {"sequence_parallel", "1"},
          {"recompute", "none"},
          {"schedule", "1f1b"},
          {"micro_batch", "1"},
          {"num_microbatches", "8"},
          {"global_batch", "16"},
          {"overlap", "framework defaults"},
          {"measured_metric", "iteration_s"},
          {"measured_value", "2.0"},
          {"confidence", "full"}};
}

// A header and one row; changes replace cells or add columns.
inline std::string csv_of(Changes changes = {}) {
  std::string header;
  std::string row;
  auto cells = default_cells();
  for (auto& [name, value] : cells) {
    const auto change = changes.find(name);
    if (change != changes.end()) {
      value = change->second;
      changes.erase(change);
    }
  }
  cells.insert(cells.end(), changes.begin(), changes.end());
  for (const auto& [name, value] : cells) {
    header += (header.empty() ? "" : ",") + name;
    row += fmt::format("{}\"{}\"", row.empty() ? "" : ",", value);
  }
  return header + "\n" + row + "\n";
}

inline studies::Measurement row_of(const Changes& changes = {}) {
  return studies::read_measurement(parse_csv(csv_of(changes), "t.csv"), 0, "t");
}

// The run with a mixture of experts on its ranks.
inline Changes mixture(Changes changes = {}) {
  changes.insert({{"experts", "8"},
                  {"top_k", "2"},
                  {"moe_ffn_hidden", "1024"},
                  {"tp", "1"},
                  {"dp", "4"},
                  {"ep", "4"},
                  {"vpp", "2"},
                  {"schedule", "interleaved"},
                  {"global_batch", "32"}});
  return changes;
}

inline plan::Execution execution_of(const Changes& changes) {
  const studies::Measurement row = row_of(changes);
  return studies::row_execution(row, studies::framework_of(row).facts);
}

inline studies::RowResult predicted(const Changes& changes) {
  return studies::predict_training_row(row_of(changes), 0);
}

}  // namespace orrery::testing
