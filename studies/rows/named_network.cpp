// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/named_network.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "models/blocks.hpp"

namespace orrery::studies {
namespace {

using models::NetworkSpec;

std::map<std::string, std::string> read_names() {
  std::map<std::string, std::string> names;
  for (const std::string& name : models::zoo_names()) {
    names.emplace(letters_and_digits(name), name);
  }
  return names;
}

// The zoo's name; empty where it has none. Publishers put their own name before a network's and
// say after it for what it was tuned.
std::string zoo_name(std::string_view text) {
  static const std::map<std::string, std::string> kNames = read_names();
  constexpr auto kTunings =
      std::to_array<std::string_view>({"hf", "instruct", "chat", "base", "it"});
  std::string key = letters_and_digits(text.substr(text.rfind('/') + 1));
  if (key.starts_with("metallama")) {
    key.erase(0, std::string_view("meta").size());
  }
  for (const std::string_view tuning : kTunings) {
    if (!kNames.contains(key) && key.ends_with(tuning)) {
      key.erase(key.size() - tuning.size());
    }
  }
  const auto found = kNames.find(key);
  return found == kNames.end() ? std::string() : found->second;
}

bool agrees(const OptionalCount& stated, std::int64_t known) {
  return !stated || known == 0 || *stated == known;
}

// Remembers what it filled.
class Cells {
 public:
  void fill(std::string_view column, OptionalCount& cell, std::int64_t value) {
    if (!cell && value > 0) {
      cell = value;
      filled_.push_back(column);
    }
  }
  void fill(std::string_view column, std::optional<bool>& cell, bool value) {
    if (!cell) {
      cell = value;
      filled_.push_back(column);
    }
  }
  const std::vector<std::string_view>& filled() const { return filled_; }

 private:
  std::vector<std::string_view> filled_;
};

}  // namespace

std::optional<NetworkSpec> named_network(const Measurement& row) {
  const std::string name = zoo_name(row.model_name);
  if (name.empty()) {
    return std::nullopt;
  }
  NetworkSpec spec = models::load_network(name).spec;
  const bool same = agrees(row.hidden, spec.hidden) && agrees(row.heads, spec.heads) &&
                    agrees(row.ffn_hidden, spec.ffn_hidden) &&
                    agrees(row.head_dim, spec.head_dim) &&
                    row.experts.value_or(spec.moe.experts) == spec.moe.experts &&
                    agrees(row.moe_ffn_hidden, spec.moe.ffn_hidden);
  return same ? std::optional(std::move(spec)) : std::nullopt;
}

std::vector<std::string_view> complete_from_name(Measurement& row) {
  Cells cells;
  if (const auto spec = named_network(row)) {
    cells.fill("layers", row.layers, spec->encoder_layers + spec->layers);
    cells.fill("hidden", row.hidden, spec->hidden);
    cells.fill("heads", row.heads, spec->heads);
    cells.fill("kv_heads", row.kv_heads, spec->kv_heads);
    cells.fill("head_dim", row.head_dim, spec->head_dim);
    cells.fill("ffn_hidden", row.ffn_hidden, spec->ffn_hidden);
    cells.fill("gated_mlp", row.gated_mlp, models::is_gated(spec->activation));
    cells.fill("vocab", row.vocab, spec->vocab);
    cells.fill("tied_embeddings", row.tied_embeddings, spec->tied_embeddings);
    cells.fill("experts", row.experts, spec->moe.experts);
    cells.fill("top_k", row.top_k, spec->moe.top_k);
    cells.fill("moe_ffn_hidden", row.moe_ffn_hidden, spec->moe.ffn_hidden);
    cells.fill("shared_expert_ffn", row.shared_expert_ffn, spec->moe.shared_ffn_hidden);
    cells.fill("first_dense_layers", row.first_dense_layers, spec->moe.first_dense_layers);
  }
  return cells.filled();
}

}  // namespace orrery::studies
