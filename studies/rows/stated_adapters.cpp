// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

using models::AdapterSpec;

constexpr auto kAdapters = std::to_array<std::string_view>({"lora"});
constexpr auto kOtherAdapters = std::to_array<std::string_view>({"qlora", "dora"});
// Beside LoRA, "PEFT" is the library.
constexpr auto kOtherTuning = std::to_array<std::string_view>(
    {"p-tuning", "p tuning", "p-tuned", "prefix-tuning", "prefix tuning", "prompt tuning",
     "prompt-tuning", "ia3", "(ia)3", "bitfit", "adapter tuning", "peft", "adalora"});
// Of the library's release, or of what came before or after the run.
constexpr auto kNotTuned = std::to_array<std::string_view>(
    {"library", "installed", "install", "version", "later", "afterwards", "after", "before",
     "future", "repository", "repo", "container", "package"});

// Whether a clause says that few weights were tuned by other means than LoRA.
bool tunes_otherwise(std::string_view text) {
  const std::vector<std::string> clauses = asserted_clauses(text);
  return std::any_of(clauses.begin(), clauses.end(), [](const std::string& clause) {
    return has_word(clause, kOtherTuning) && !has_word(clause, kNotTuned);
  });
}

// Of remarks those on adapters: "fused up_proj" elsewhere names no target.
std::string of_adapters(std::string_view text) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"lora", "adapter", "adapters", "target", "targets", "rank", "peft", "all linear"});
  std::string said;
  for (const std::string_view remark : split(text, ';')) {
    const std::string plain = with_blanks(remark);
    if (has_word(plain, kWords)) {
      said.append(remark).append("; ");
    }
  }
  return said;
}

// "rank 16", "lora_rank=16", "r = 16" from the position `first` on.
std::int64_t number_named(std::string_view text, std::size_t first,
                          std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    for (std::size_t at = text.find(name, first); at != text.npos; at = text.find(name, at + 1)) {
      const std::size_t digits = text.find_first_not_of(" =:-", at + name.size());
      const std::string_view before = text.substr(0, at);
      const bool part = !before.ends_with(' ') && !before.ends_with('(') &&  // "head_dim 128"
                        !before.ends_with("lora_");
      std::int64_t rank = 0;
      if (!part && digits != text.npos) {
        std::from_chars(text.data() + digits, text.data() + text.size(), rank);
      }
      if (rank > 0) {
        return rank;
      }
    }
  }
  return 0;
}

// "dim: 16" means a rank only behind the name of the adapters; "rank 16" may stand before it or in
// another remark.
std::int64_t rank_in(std::string_view text) {
  constexpr auto kBehind = std::to_array<std::string_view>({"rank", "dim", "r"});
  constexpr auto kAnywhere = std::to_array<std::string_view>({"rank", "r"});
  const std::int64_t behind = number_named(text, text.find(kAdapters.front()), kBehind);
  return behind > 0 ? behind : number_named(text, 0, kAnywhere);
}

bool says(std::string_view text, std::string_view phrase) { return text.find(phrase) != text.npos; }

// "q,k,v,o,gate,up,down", "q_proj v_proj": the products of a list that begins with the queries.
std::set<std::string_view> listed_products(std::string_view text) {
  constexpr auto kProducts =
      std::to_array<std::string_view>({"q", "k", "v", "o", "gate", "up", "down"});
  constexpr auto kBetween = std::to_array<std::string_view>({"proj", "and"});
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::set<std::string_view> products;
  for (std::size_t at = text.find_first_of(kLetters); at != text.npos;) {
    const std::size_t end = std::min(text.size(), text.find_first_not_of(kLetters, at));
    const std::string_view word = text.substr(at, end - at);
    const bool product = std::ranges::find(kProducts, word) != kProducts.end();
    const bool between = std::ranges::find(kBetween, word) != kBetween.end();
    if (product && (word == "q" || !products.empty())) {
      products.insert(word);
    } else if (!between && products.size() > 1) {
      break;
    } else if (!between) {
      products.clear();
    }
    at = text.find_first_of(kLetters, end);
  }
  return products.size() > 1 ? products : std::set<std::string_view>();
}

// Of the names that NeMo and Hugging Face give the products; empty where none is named.
struct Targets {
  bool any = false;
  bool alike = true;  // queries, keys and values are adapted alike, and so are gate and up
};
Targets read_targets(std::string_view text, AdapterSpec& adapters) {
  constexpr auto kAll = std::to_array<std::string_view>(
      {"all-linear", "all linear", "lora_target_linear: true", "lora_target_linear=true",
       "lora_target: all", "lora_target=all"});
  const std::set<std::string_view> listed = listed_products(text);
  const auto names = [&](std::string_view product) {
    return listed.contains(product) || says(text, fmt::format("{}_proj", product));
  };
  AdapterSpec named = adapters;
  // Beside the names of q_proj and its like those of NeMo, torchtune, GPT-2, GPT-NeoX and Meta.
  constexpr auto kJoined =
      std::to_array<std::string_view>({"linear_qkv", "qkv", "query_key_value", "c_attn", "wqkv"});
  constexpr auto kOutput = std::to_array<std::string_view>(
      {"linear_proj", "output_proj", "qkv, proj", "qkv and proj", "wo"});
  const bool joined = says_any(text, kJoined);
  named.qkv = joined || names("q");
  named.o = has_word(text, kOutput) || names("o");
  constexpr auto kMlp = std::to_array<std::string_view>(
      {"on mlp", "on the mlp", "on mlps", "mlp only", "on attention and mlp", "on ffn"});
  constexpr auto kAttention = std::to_array<std::string_view>(
      {"on attention", "on the attention", "lora attention only", "on attention and mlp"});
  const bool mlp = has_word(text, kMlp);
  const bool attention = has_word(text, kAttention);
  named.qkv = named.qkv || attention;
  named.o = named.o || attention;
  named.up = mlp || says(text, "linear_fc1") || names("up");
  named.down = mlp || says(text, "linear_fc2") || names("down");
  Targets targets{named.qkv || named.o || named.up || named.down};
  if (targets.any) {
    adapters = named;
  }
  targets.any = targets.any || says_any(text, kAll);
  targets.alike = (joined || (names("q") == names("k") && names("v") == names("k"))) &&
                  (!names("gate") || names("up"));
  return targets;
}

struct AdapterReading {
  AdapterSpec adapters;
  std::string refused;
  std::vector<std::string> notes;
};

// LoraConfig of Hugging Face's PEFT (tuners/lora/config.py: r = 8; utils/constants.py: the
// projections to queries and values).
void take_defaults(Targets& targets, AdapterReading& reading) {
  constexpr std::int64_t kRank = 8;
  if (reading.adapters.rank == 0) {
    reading.adapters.rank = kRank;
    reading.notes.push_back(fmt::format("adapters (LoRA) of rank {}, PEFT's default", kRank));
  }
  if (!targets.any) {
    reading.adapters.o = false;
    reading.adapters.up = false;
    reading.adapters.down = false;
    reading.notes.emplace_back("adapters (LoRA) of queries and values, PEFT's default");
    targets.alike = false;
  }
}

AdapterReading read_adapters(const Measurement& row, const FrameworkFacts& framework) {
  std::string text;  // all remarks of a row that names adapters
  for (const std::string* cell : {&row.variant, &row.notes, &row.model_name, &row.framework}) {
    text.append(asserted(to_lower(*cell))).append("; ");
  }
  AdapterReading reading;
  if (has_word(text, kOtherAdapters)) {
    reading.refused = "adapters other than LoRA on 16-bit weights (QLoRA, DoRA) are not modelled";
    return reading;
  }
  if (!has_word(text, kAdapters)) {
    reading.refused = tunes_otherwise(text)
                          ? "tuning of few weights other than by LoRA (P-tuning, prefixes, IA3, "
                            "BitFit) is not modelled"
                          : "";
    return reading;
  }
  const std::int64_t stated = rank_in(text);
  reading.adapters.rank = stated > 0 ? stated : framework.adapter_rank;
  Targets targets = read_targets(of_adapters(text), reading.adapters);
  targets.any = targets.any || framework.adapter_rank > 0;
  if (!row.full) {
    take_defaults(targets, reading);
  } else if (reading.adapters.rank == 0) {
    reading.refused = "the rank of its adapters (LoRA) is not stated";
  } else if (!targets.any) {
    reading.refused = "the products that have adapters (LoRA) are not stated";
  }
  if (!targets.alike) {
    reading.notes.emplace_back("adapters (LoRA) of some of queries, keys and values as of all");
  }
  return reading;
}

}  // namespace

bool names_adapters(std::string_view cell) { return has_word(asserted(to_lower(cell)), kAdapters); }

tl::expected<AdapterSpec, std::string> stated_adapters(const Measurement& row,
                                                       const FrameworkFacts& framework) {
  AdapterReading reading = read_adapters(row, framework);
  return reading.refused.empty() ? tl::expected<AdapterSpec, std::string>(reading.adapters)
                                 : tl::unexpected(std::move(reading.refused));
}

std::vector<std::string> adapter_notes(const Measurement& row, const FrameworkFacts& framework) {
  return read_adapters(row, framework).notes;
}

}  // namespace orrery::studies
