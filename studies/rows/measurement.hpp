// SPDX-License-Identifier: Apache-2.0
// One row of a measurement file: a published figure of a training run with the network, hardware
// and parallel plan it was taken on. A blank cell is an absent value; for text in a numeric column,
// a negative or absurd number the row is skipped with a reason that names file, line and column.
// Reading is O(cells).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/csv.hpp"

namespace orrery::studies {

using OptionalCount = std::optional<std::int64_t>;

struct Measurement {
  std::string where;   // "file.csv:12"
  std::string source;  // stem of the file
  std::string origin;  // what its own column says: publication and release
  std::string id;
  std::string config_id;  // rows with one config_id are metrics of one run
  bool full = false;      // everything a simulation needs is stated
  OptionalCount year;     // of publication

  std::string model_family;
  std::string model_name;
  std::optional<double> params_b;
  OptionalCount layers;
  OptionalCount hidden;
  OptionalCount heads;
  OptionalCount kv_heads;
  OptionalCount head_dim;
  OptionalCount ffn_hidden;
  std::optional<bool> gated_mlp;
  OptionalCount vocab;
  OptionalCount seq_len;
  std::optional<bool> tied_embeddings;
  OptionalCount experts;
  OptionalCount top_k;
  OptionalCount moe_ffn_hidden;
  OptionalCount shared_expert_ffn;
  OptionalCount first_dense_layers;

  std::string precision;
  std::string precision_detail;
  std::string gpu;
  OptionalCount gpus;
  OptionalCount gpus_per_node;
  std::string intra_node;
  std::string inter_node;
  std::string framework;
  std::string attention_impl;

  OptionalCount tp;
  OptionalCount cp;
  OptionalCount ep;
  OptionalCount pp;
  OptionalCount vpp;
  bool most_chunks = false;  // "max (1 layer per chunk)" in place of a number
  OptionalCount dp;
  OptionalCount zero_stage;
  std::string zero_detail;  // the whole cell, with its remark in brackets
  std::optional<bool> sequence_parallel;
  std::string sequence_detail;  // the whole cell, where it counts ranks: "Ulysses 8"
  std::string recompute;
  std::string recompute_detail;
  std::string schedule;
  std::string variant;
  OptionalCount micro_batch;
  OptionalCount num_microbatches;
  OptionalCount global_batch;
  std::string overlap;

  std::string metric;
  double value = 0;                        // 0: not stated
  std::map<std::string, std::string> aux;  // "key=value;..."
  std::string flops_convention;
  std::string inferred;  // columns that the table's author filled in
  std::string notes;
  std::string unknown;  // words of a cell that mean nothing known: the row is skipped for them
  // How cells were read that can be read in more than one way: "seq_len 4K as 4096".
  std::vector<std::string> remarks;

  // Its name, or where none is stated its family.
  const std::string& model() const { return model_name.empty() ? model_family : model_name; }
  // Whether a free-text column says the phrase (any case) and does not deny it.
  bool notes_say(std::string_view phrase) const;
  bool overlap_says(std::string_view phrase) const;
};

// What a row says in words about its run: notes, then variant.
std::string remarks_of(const Measurement& row);

// Whether the table has the columns of training measurements.
bool is_measurement_table(const CsvTable& table);
std::vector<Measurement> read_measurements(const CsvTable& table, const std::string& source);
// One row; an Error for a cell that cannot be read.
Measurement read_measurement(const CsvTable& table, std::size_t index, const std::string& source);

}  // namespace orrery::studies
