// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/named_network.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
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

// Names by size or version where the list has them by another.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"gpt2small", "gpt2"},
     {"gpt2117m", "gpt2"},
     {"gpt2124m", "gpt2"},
     {"gpt2345m", "gpt2-medium"},
     {"gpt2355m", "gpt2-medium"},
     {"gpt2774m", "gpt2-large"},
     {"gpt215b", "gpt2-xl"},
     {"gpt2xl15b", "gpt2-xl"},
     {"gpt3", "gpt3-175b"},
     {"gpt3xl", "gpt3-1.3b"},
     {"gpt67b", "gpt3-6.7b"},
     {"gpt145b", "gpt-145.6b"},
     {"gpt39b", "gpt-39.1b"},
     {"gpt18b", "gpt-18.4b"},
     {"gpt1008b", "gpt-1t"},
     {"gptneox", "gpt-neox-20b"},
     {"neox20b", "gpt-neox-20b"},
     {"gptj", "gpt-j-6b"},
     {"mtnlg", "megatron-turing-530b"},
     {"mtnlg530b", "megatron-turing-530b"},
     {"megatronturingnlg530b", "megatron-turing-530b"},
     {"bloom", "bloom-176b"},
     {"llama30b", "llama-33b"},
     {"vicuna7b", "llama-7b"},
     {"vicuna13b", "llama-13b"},
     {"alpaca7b", "llama-7b"},
     {"llama3370b", "llama3.1-70b"},
     {"llama4scout17b16e", "llama4-scout"},
     {"llama4maverick17b128e", "llama4-maverick"},
     {"mixtral", "mixtral-8x7b"},
     {"deepseekv2lite16b", "deepseek-v2-lite"},
     {"deepseekv3671b", "deepseek-v3"},
     {"deepseekr1", "deepseek-v3"},
     {"dbrx", "dbrx-132b"},
     {"bertbaseuncased", "bert-base"},
     {"bertlargeuncased", "bert-large"},
     {"t5xl", "t5-v1.1-xl"},
     {"t5xxl", "t5-v1.1-xxl"},
     {"flant5xl", "t5-v1.1-xl"},
     {"flant5xxl", "t5-v1.1-xxl"},
     {"vitb16", "vit-base-16"},
     {"vitl16", "vit-large-16"},
     {"vith14", "vit-huge-14"},
     {"vithuge", "vit-huge-14"}});

std::string known_name(const std::string& key) {
  static const std::map<std::string, std::string> kNames = [] {
    std::map<std::string, std::string> names = read_names();
    for (const auto& [other, name] : kOtherNames) {
      names.emplace(other, name);
    }
    return names;
  }();
  const auto found = kNames.find(key);
  return found == kNames.end() ? std::string() : found->second;
}

// "Mistral-7B-v0.1": releases with the same widths.
std::string_view without_release(std::string_view text) {
  const std::size_t version = text.rfind("-v0.");
  return version == text.npos ? text : text.substr(0, version);
}

// The zoo's name; empty where it has none. Publishers put their own name before a network's and
// say after it for what it was tuned and in which release.
std::string zoo_name(std::string_view text) {
  constexpr auto kTunings =
      std::to_array<std::string_view>({"hf", "instruct", "chat", "base", "it"});
  if (std::string whole = known_name(letters_and_digits(text)); !whole.empty()) {
    return whole;
  }
  const std::string_view before_remark = trim(text.substr(0, text.find('(')));
  std::string key =
      letters_and_digits(without_release(before_remark.substr(before_remark.rfind('/') + 1)));
  if (key.starts_with("metallama")) {
    key.erase(0, std::string_view("meta").size());
  }
  for (const std::string_view tuning : kTunings) {
    if (known_name(key).empty() && key.ends_with(tuning)) {
      key.erase(key.size() - tuning.size());
    }
  }
  return known_name(key);
}

// Parameters as names state them: "GPT-1.8B", "GPT-2 345M"; 0 where none do.
double size_in_name(std::string_view text) {
  constexpr auto kUnits =
      std::to_array<std::pair<char, double>>({{'m', 1e6}, {'b', 1e9}, {'t', 1e12}});
  const std::string name = to_lower(text);
  double size = 0;
  for (std::size_t at = name.find_first_of("0123456789"); at < name.size();
       at = name.find_first_of("0123456789", at)) {
    double number = 0;
    const auto read = std::from_chars(name.data() + at, name.data() + name.size(), number,
                                      std::chars_format::fixed);
    at = static_cast<std::size_t>(read.ptr - name.data());
    const bool word_ends =
        at + 1 >= name.size() || letters_and_digits(name.substr(at + 1, 1)).empty();
    for (const auto& [letter, unit] : kUnits) {
      if (at < name.size() && name[at] == letter && word_ends) {
        size = number * unit;
      }
    }
  }
  return size;
}

// Names are compared without their points, "GPT-1.8B" as "gpt-18b": the size must be that of the
// network, too. Mixtures of experts are named by what they use, and networks cut short have less.
bool has_stated_size(const Measurement& row, const models::Network& network) {
  constexpr double kFar = 0.25;
  const NetworkSpec& spec = network.spec;
  const bool whole = !row.layers || *row.layers == spec.encoder_layers + spec.layers;
  const double stated = whole && row.params_b ? *row.params_b * 1e9 : size_in_name(row.model_name);
  const auto known = static_cast<double>(models::num_parameters(network));
  return stated == 0 || spec.moe.experts > 0 || std::abs(stated / known - 1) <= kFar;
}

bool agrees(const OptionalCount& stated, std::int64_t known) {
  return !stated || known == 0 || *stated == known;
}

// Remembers what it filled.
class NamedCells {
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
  models::Network network = models::load_network(name);
  NetworkSpec& spec = network.spec;
  const bool same = has_stated_size(row, network) && agrees(row.hidden, spec.hidden) &&
                    agrees(row.heads, spec.heads) && agrees(row.ffn_hidden, spec.ffn_hidden) &&
                    agrees(row.head_dim, spec.head_dim) &&
                    row.experts.value_or(spec.moe.experts) == spec.moe.experts &&
                    agrees(row.moe_ffn_hidden, spec.moe.ffn_hidden);
  return same ? std::optional(std::move(spec)) : std::nullopt;
}

std::vector<std::string_view> complete_from_name(Measurement& row) {
  NamedCells cells;
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
