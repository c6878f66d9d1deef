// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_words.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "plan/operator_set.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {
namespace {

using Words = std::pair<std::string_view, std::string_view>;

// As plans spell what a cell says in other words.
template <std::size_t kSize>
std::string spelling(std::string_view cell, const std::array<Words, kSize>& words) {
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

}  // namespace

// Of a mixture of 8 and 16 bits the shorter one. Microscaling formats keep their names.
std::string precision_name(std::string_view cell) {
  constexpr auto kFormats = std::to_array<Words>({{"mxfp8", "mxfp8"},
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
                                                  {"tf32", "tf32"},
                                                  {"fp32", "fp32"},
                                                  {"float32", "fp32"}});
  const std::string key = letters_and_digits(cell);
  for (const auto& [word, name] : kFormats) {
    if (key.find(word) != std::string::npos) {
      return std::string(name);
    }
  }
  return to_lower(cell);
}

std::string schedule_name(std::string_view cell) {
  constexpr auto kNames = std::to_array<Words>({{"interleaved1f1b", "interleaved"},
                                                {"1f1binterleaved", "interleaved"},
                                                {"interleavedpipeline", "interleaved"},
                                                {"virtualpipeline", "interleaved"},
                                                {"vpp", "interleaved"},
                                                {"depthfirst", "interleaved"},
                                                {"loopeddfs", "interleaved"},
                                                {"circular", "interleaved"},
                                                {"pipedreamflush", "1f1b"},
                                                {"noninterleaved", "1f1b"},
                                                {"noninterleaved1f1b", "1f1b"},
                                                {"1f1bnoninterleaved", "1f1b"},
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
  return spelling(before_remark(cell), kNames);
}

std::optional<std::int64_t> stage_of_zero(std::string_view cell) {
  const std::string key = letters_and_digits(before_remark(cell));
  for (const std::string_view prefix : {"zero", "zerostage", "stage", "z"}) {
    if (key.size() == prefix.size() + 1 && key.starts_with(prefix) && key.back() >= '0' &&
        key.back() <= '3') {
      return key.back() - '0';
    }
  }
  if (key == "fsdp" || key == "fsdp2" || key == "hsdp") {
    return 3;
  }
  return key == "distributedoptimizer" ? std::optional<std::int64_t>(1) : std::nullopt;
}

// Flags of scripts and what they name: the layer, or the attention core (Megatron-LM's
// --recompute-activations).
RecomputeWords recompute_words(std::string_view cell, std::string_view detail) {
  constexpr auto kNames = std::to_array<Words>({{"no", "none"},
                                                {"off", "none"},
                                                {"false", "none"},
                                                {"0", "none"},
                                                {"yes", "full"},
                                                {"on", "full"},
                                                {"true", "full"},
                                                {"1", "full"},
                                                {"ac", "full"},
                                                {"uniform", "full"},
                                                {"fulluniform", "full"},
                                                {"everylayer", "full"},
                                                {"attention", "selective"},
                                                {"coreattn", "selective"},
                                                {"coreattention", "selective"}});
  constexpr auto kKnown =
      std::to_array<std::string_view>({"", "none", "selective", "full", "custom", "products"});
  const std::string name = spelling(cell, kNames);
  const bool groups = plan::group_named(name.substr(0, name.find('+'))).has_value();
  if (groups || std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) {
    return {name, std::string(detail)};
  }
  const auto with = [&](std::string_view kind) {
    std::string both = name;
    both.append(detail.empty() ? "" : "; ").append(detail);
    return RecomputeWords{std::string(kind), std::move(both)};
  };
  constexpr auto kSome =
      std::to_array<std::string_view>({"selective", "per-op", "per op", "every ", "1 of "});
  constexpr auto kWhole =
      std::to_array<std::string_view>({"full", "block", "checkpoint", "all layers"});
  if (name == "sac") {
    return {"selective", "per-op; " + std::string(detail)};
  }
  return with(says_any(name, kSome) ? "selective" : says_any(name, kWhole) ? "full" : "custom");
}

}  // namespace orrery::studies
