// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "base/text.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

using models::AdapterSpec;

constexpr auto kAdapters = std::to_array<std::string_view>({"lora"});
constexpr auto kOtherAdapters = std::to_array<std::string_view>({"qlora", "dora"});

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

// Of the names that NeMo and Hugging Face give the products; empty where none is named.
struct Targets {
  bool any = false;
  bool alike = true;  // queries, keys and values are adapted alike, and so are gate and up
};
Targets read_targets(std::string_view text, AdapterSpec& adapters) {
  AdapterSpec named = adapters;
  named.qkv = says(text, "qkv") || says(text, "q_proj");
  named.o = says(text, "linear_proj") || says(text, "o_proj");
  named.up = says(text, "linear_fc1") || says(text, "up_proj");
  named.down = says(text, "linear_fc2") || says(text, "down_proj");
  Targets targets{named.qkv || named.o || named.up || named.down};
  if (targets.any) {
    adapters = named;
  }
  targets.any = targets.any || says(text, "all-linear") || says(text, "all linear");
  const bool keys = says(text, "k_proj");
  targets.alike = says(text, "q_proj") == keys && says(text, "v_proj") == keys &&
                  says(text, "gate_proj") <= says(text, "up_proj");
  return targets;
}

}  // namespace

bool names_adapters(std::string_view cell) { return has_word(asserted(to_lower(cell)), kAdapters); }

tl::expected<AdapterSpec, std::string> stated_adapters(const Measurement& row,
                                                       const FrameworkFacts& framework) {
  std::string text;  // all remarks of a row that names adapters
  for (const std::string* cell : {&row.variant, &row.notes, &row.model_name, &row.framework}) {
    text.append(asserted(to_lower(*cell))).append("; ");
  }
  if (has_word(text, kOtherAdapters)) {
    return tl::unexpected(
        std::string("adapters other than LoRA on 16-bit weights (QLoRA, DoRA) are not modelled"));
  }
  AdapterSpec adapters;
  if (!has_word(text, kAdapters)) {
    return adapters;
  }
  const std::int64_t stated = rank_in(text);
  adapters.rank = stated > 0 ? stated : framework.adapter_rank;
  if (adapters.rank == 0) {
    return tl::unexpected(std::string("the rank of its adapters (LoRA) is not stated"));
  }
  const Targets targets = read_targets(text, adapters);
  if (!targets.any && framework.adapter_rank == 0) {
    return tl::unexpected(std::string("the products that have adapters (LoRA) are not stated"));
  }
  if (!targets.alike) {
    return tl::unexpected(
        std::string("adapters (LoRA) of some of the queries, keys and values are not modelled"));
  }
  return adapters;
}

}  // namespace orrery::studies
