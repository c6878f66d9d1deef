// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_words.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "plan/operator_set.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {
namespace {

using WordMeaning = std::pair<std::string_view, std::string_view>;

// As plans spell what a cell says in other words.
template <std::size_t kSize>
std::string spelling(std::string_view cell, const std::array<WordMeaning, kSize>& words) {
  const std::string key = letters_and_digits(cell);
  for (const auto& [word, name] : words) {
    if (key == word) {
      return std::string(name);
    }
  }
  return to_lower(cell);
}

std::string_view before_remark(std::string_view cell) {
  return trim(cell.substr(0, cell.find('(')));
}

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

std::size_t find_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_letter_or_digit(text[at - 1])) &&
        (end == text.size() || !is_letter_or_digit(text[end]))) {
      return at;
    }
  }
  return text.npos;
}

// What a clause says before it denies the rest; nothing where the denial stands behind.
std::string_view asserted_clause(std::string_view clause) {
  constexpr auto kBehind = std::to_array<std::string_view>(
      {"off", "disabled", "none", "false", "unused", "not used", "not enabled", "not applied",
       "excluded", "ignored", "neglected", "not included", "not counted"});
  constexpr auto kBefore = std::to_array<std::string_view>(
      {"no", "non", "not", "without", "w/o", "never", "excluding", "excludes", "excl"});
  if (has_word(clause, kBehind)) {
    return {};
  }
  std::size_t end = clause.size();
  for (const std::string_view word : kBefore) {
    const std::size_t at = find_word(clause, word);
    if (at != clause.npos) {
      const bool last = trim(clause.substr(at + word.size())).empty();
      end = last ? 0 : std::min(end, at);
    }
  }
  return clause.substr(0, end);
}

}  // namespace

// Of a mixture of 8 and 16 bits the shorter one. Microscaling formats keep their names.
std::string precision_name(std::string_view cell) {
  constexpr auto kFormats = std::to_array<WordMeaning>({{"mxfp8", "mxfp8"},
                                                        {"fp8mx", "mxfp8"},
                                                        {"mxfp4", "mxfp4"},
                                                        {"nvfp4", "nvfp4"},
                                                        {"fp8", "fp8"},
                                                        {"float8", "fp8"},
                                                        {"e4m3", "fp8"},
                                                        {"bf16", "bf16"},
                                                        {"bfloat16", "bf16"},
                                                        {"fp16", "fp16"},
                                                        {"float16", "fp16"},
                                                        {"half", "fp16"},
                                                        {"16mixed", "fp16"},
                                                        {"tf32", "tf32"},
                                                        {"fp32", "fp32"},
                                                        {"float32", "fp32"},
                                                        {"single", "fp32"}});
  const std::string key = letters_and_digits(cell);
  for (const auto& [word, name] : kFormats) {
    if (key.find(word) != std::string::npos) {
      return std::string(name);
    }
  }
  return to_lower(cell);
}

std::string schedule_name(std::string_view cell) {
  constexpr auto kNames = std::to_array<WordMeaning>({{"interleaved1f1b", "interleaved"},
                                                      {"interleave", "interleaved"},
                                                      {"interleaving", "interleaved"},
                                                      {"1f1binterleaved", "interleaved"},
                                                      {"interleavedpipeline", "interleaved"},
                                                      {"virtualpipeline", "interleaved"},
                                                      {"vpp", "interleaved"},
                                                      {"depthfirst", "interleaved"},
                                                      {"loopeddfs", "interleaved"},
                                                      {"dfs", "interleaved"},
                                                      {"1f1bi", "interleaved"},
                                                      {"1f1bint", "interleaved"},
                                                      {"vpp1f1b", "interleaved"},
                                                      {"1f1bvpp", "interleaved"},
                                                      {"circular", "interleaved"},
                                                      {"pipedreamflush", "1f1b"},
                                                      {"noninterleaved", "1f1b"},
                                                      {"noninterleaved1f1b", "1f1b"},
                                                      {"1f1bnoninterleaved", "1f1b"},
                                                      {"sync1f1b", "1f1b"},
                                                      {"synchronous1f1b", "1f1b"},
                                                      {"dapple", "1f1b"},
                                                      {"afab", "gpipe"},
                                                      {"fthenb", "gpipe"},
                                                      {"allforwardallbackward", "gpipe"},
                                                      {"bfs", "breadth-first"},
                                                      {"loopedbfs", "breadth-first"},
                                                      {"breadthfirst", "breadth-first"},
                                                      {"zerobubble", "zb-1p"},
                                                      {"zbh1", "zb-h1"},
                                                      {"zbh2", "zb-h2"},
                                                      {"zb1p", "zb-1p"},
                                                      {"zb2p", "zb-2p"},
                                                      {"zbv", "zb-v"},
                                                      {"zbvzerobubble", "zb-v"},
                                                      {"vhalf", "v-half"},
                                                      {"vmin", "v-min"},
                                                      {"vzb", "v-zb"},
                                                      {"dualpipe", "dualpipe"},
                                                      {"dualpipev", "dualpipe-v"},
                                                      {"nopipeline", "none"}});
  const std::string name = spelling(before_remark(cell), kNames);
  const std::string key = letters_and_digits(name);
  const bool interleaves = key.find("1f1b") != key.npos && key.find("interleav") != key.npos &&
                           key.find("noninterleav") == key.npos;
  return interleaves ? "interleaved" : name;  // "1F1B with interleaving"
}

std::optional<std::int64_t> stage_of_zero(std::string_view cell) {
  std::string key = letters_and_digits(before_remark(cell));
  if (key.starts_with("deepspeed")) {
    key.erase(0, std::string_view("deepspeed").size());
  }
  for (const std::string_view prefix : {"zerostage", "zero", "stage", "z"}) {
    const char stage =
        key.starts_with(prefix) && key.size() > prefix.size() ? key[prefix.size()] : ' ';
    const std::string_view rest =
        std::string_view(key).substr(std::min(key.size(), prefix.size() + 1));
    const bool remark = rest.empty() || rest.find("offload") != rest.npos;  // "ZeRO-3 offload"
    if (stage >= '0' && stage <= '3' && remark) {
      return stage - '0';
    }
  }
  // ZeRO-Offload is of stage 2 (arXiv 2101.06840), the others shard parameters.
  constexpr auto kNames =
      std::to_array<std::pair<std::string_view, std::int64_t>>({{"fsdp", 3},
                                                                {"fsdp2", 3},
                                                                {"hsdp", 3},
                                                                {"mics", 3},
                                                                {"fullshard", 3},
                                                                {"zeroinfinity", 3},
                                                                {"hybridshard", 3},
                                                                {"hybrid", 3},
                                                                {"ddp", 0},
                                                                {"noshard", 0},
                                                                {"no", 0},
                                                                {"off", 0},
                                                                {"zerooffload", 2},
                                                                {"shardgradop", 2},
                                                                {"distopt", 1},
                                                                {"distributedoptimizer", 1}});
  // "FSDP full shard" is what its strategy is.
  const std::string_view strategy =
      std::string_view(key).substr(key.starts_with("fsdp") && key.ends_with("shard") ? 4 : 0);
  for (const auto& [name, stage] : kNames) {
    if (key == name || strategy == name) {
      return stage;
    }
  }
  return key == "zero" && cell.find("++") != cell.npos ? std::optional<std::int64_t>(3)
                                                       : std::nullopt;
}

bool has_word(std::string_view text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [text](std::string_view word) { return find_word(text, word) != text.npos; });
}

std::string asserted(std::string_view text) {
  constexpr std::string_view kEnds = ",;()";
  std::string said;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(kEnds), text.size());
    said += asserted_clause(text.substr(0, end));
    said += text.substr(end, 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return said;
}

// Flags of scripts and what they name: the layer, or the attention core (Megatron-LM's
// --recompute-activations).
RecomputeWords recompute_words(std::string_view cell, std::string_view detail) {
  constexpr auto kNames = std::to_array<WordMeaning>({{"no", "none"},
                                                      {"off", "none"},
                                                      {"false", "none"},
                                                      {"0", "none"},
                                                      {"disabled", "none"},
                                                      {"yes", "full"},
                                                      {"enabled", "full"},
                                                      {"on", "full"},
                                                      {"true", "full"},
                                                      {"1", "full"},
                                                      {"ac", "full"},
                                                      {"uniform", "full"},
                                                      {"fulluniform", "full"},
                                                      {"everylayer", "full"},
                                                      {"all", "full"},
                                                      {"alllayers", "full"},
                                                      {"perlayer", "full"},
                                                      {"layerwise", "full"},
                                                      {"remat", "full"},
                                                      {"nothingsaveable", "full"},
                                                      {"attn", "selective"},
                                                      {"attention", "selective"},
                                                      {"coreattn", "selective"},
                                                      {"coreattention", "selective"}});
  constexpr auto kKnown =
      std::to_array<std::string_view>({"", "none", "selective", "full", "custom", "products"});
  // "none (FlashAttention)", "selective (every 2nd layer)": what stands before the bracket.
  if (const std::string first = spelling(before_remark(cell), kNames);
      cell.ends_with(')') && !first.empty() &&
      std::find(kKnown.begin(), kKnown.end(), first) != kKnown.end()) {
    std::string both(cell.substr(cell.find('(')));
    both.append(detail.empty() ? "" : "; ").append(detail);
    return {first, std::move(both)};
  }
  const std::string name = spelling(cell, kNames);
  const std::vector<std::string_view> parts = split(name, '+');
  const bool groups = std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
    return plan::group_named(part).has_value();
  });
  if (groups || std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) {
    return {name, std::string(detail)};
  }
  const auto with = [&](std::string_view kind) {
    std::string both = name;
    both.append(detail.empty() ? "" : "; ").append(detail);
    return RecomputeWords{std::string(kind), std::move(both)};
  };
  constexpr auto kSome = std::to_array<std::string_view>(
      {"selective", "per-op", "per op", "every ", "1 of ", "1/", "half of", "% of layers"});
  constexpr auto kWhole =
      std::to_array<std::string_view>({"full", "block", "checkpoint", "recomput", "all layers"});
  if (name == "sac" || name.starts_with("sac ")) {
    return {"selective", "per-op; " + std::string(detail)};
  }
  const std::string said = asserted(name);
  if (letters_and_digits(said).empty()) {
    return {"none", std::string(detail)};
  }
  if (said.find("dots") != said.npos) {  // jax.checkpoint_policies
    return with("custom");
  }
  return with(says_any(said, kSome) ? "selective" : says_any(said, kWhole) ? "full" : "custom");
}

}  // namespace orrery::studies
