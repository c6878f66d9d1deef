// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/bridge_recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

// Containers first, which carry the releases that docs/releases/software-versions.md of
// NVIDIA-NeMo/Megatron-Bridge lists.
constexpr auto kReleases = std::to_array<std::pair<std::string_view, int>>({{"25.09", 1},
                                                                            {"25.11", 2},
                                                                            {"26.02", 3},
                                                                            {"26.04", 4},
                                                                            {"26.06", 5},
                                                                            {"0.1.", 1},
                                                                            {"0.2.", 2},
                                                                            {"0.3.", 3},
                                                                            {"0.4.", 4},
                                                                            {"0.5.", 5}});

// The release that a cell names; the end where it names none of these.
auto named_release(std::string_view framework) {
  return std::find_if(kReleases.begin(), kReleases.end(), [framework](const auto& release) {
    return mentions(framework, release.first);
  });
}

using Version = std::pair<int, int>;

// The first number with a point: "26.08", "v0.6.0".
std::optional<Version> version_in(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const char* const end = text.data() + text.size();
  for (std::size_t at = text.find_first_of(kDigits); at < text.size();
       at = text.find_first_of(kDigits, at)) {
    Version version;
    const char* const point = std::from_chars(text.data() + at, end, version.first).ptr;
    if (point != end && *point == '.' &&
        std::from_chars(point + 1, end, version.second).ec == std::errc()) {
      return version;
    }
    at = static_cast<std::size_t>(point - text.data());
  }
  return std::nullopt;
}

// The minor version of a release 0.x, of one that is not listed ("26.08") that of the last one
// before it; 0 where the cell names none.
int release_of(std::string_view framework) {
  if (const auto named = named_release(framework); named != kReleases.end()) {
    return named->second;
  }
  const std::optional<Version> stated = version_in(framework);
  int release = 0;
  for (const auto& [name, minor] : kReleases) {
    const std::optional<Version> listed = version_in(name);
    // Containers are compared with containers and releases 0.x with those.
    const bool before =
        stated && (listed->first == 0) == (stated->first == 0) && *listed <= *stated;
    release = before ? minor : release;
  }
  return release;
}

constexpr std::string_view kLatent = "mla_up_proj";
constexpr std::string_view kLatentAndDense = "mla_up_proj, mlp";
constexpr std::string_view kLatentAndCheap = "mla_up_proj, layernorm, moe_act";
constexpr std::string_view kCheap = "layernorm, moe_act";

constexpr auto kByNccl = plan::Dispatcher::AllToAll;
constexpr auto kByDeepEp = plan::Dispatcher::DeepEp;
constexpr auto kByHybridEp = plan::Dispatcher::HybridEp;

struct RecipeRow {
  RecipeKey key;
  BridgeRecipe facts;
};
struct GraphRow {
  RecipeKey key;
  plan::GraphScope scope;
};

// NVIDIA-NeMo/Megatron-Bridge, moe_a2a_overlap, recompute_modules, moe_flex_dispatcher_backend,
// cutedsl_fused_grouped_mlp and fp8_dot_product_attention: v0.1.0rc4
// scripts/performance/run_script.py; v0.2.0 scripts/
// performance/configs/*/workload_base_configs.py; v0.3.0, v0.4.0 and v0.5.0 configs/*/
// *_workload_base_configs.py.
constexpr auto kRecipes = std::to_array<RecipeRow>({
    {{1, 1, "deepseekv3", "h100", "", 0}, {true, kLatentAndDense, kByDeepEp}},
    {{1, 1, "deepseekv3", "b200 gb200", "", 0}, {false, kLatent, kByNccl}},
    {{2, 2, "deepseekv3", "h100", "", 0}, {true, kLatentAndDense, kByDeepEp}},
    {{2, 2, "deepseekv3", "gb300", "", 0}, {false, "moe_act", kByHybridEp}},
    {{2, 2, "deepseekv3", "b200", "", 0}, {false, kLatent, kByNccl}},
    {{3, 5, "deepseekv3", "h100", "", 0}, {false, kLatentAndDense, kByHybridEp}},
    {{3, 5, "deepseekv3", "gb300", "bf16", 0}, {false, "moe_act", kByHybridEp}},
    {{4, 4, "deepseekv3", "gb200", "mxfp8", 0}, {false, "mlp", kByHybridEp}},
    {{4, 5, "deepseekv3", "gb200", "fp8", 0}, {false, "mlp", kByHybridEp}},
    {{4, 5, "deepseekv3", "gb200", "nvfp4", 0}, {false, "mlp", kByHybridEp}},
    {{5, 5, "deepseekv3", "gb200", "mxfp8", 0}, {true, kLatent, kByHybridEp, true}},
    {{5, 5, "deepseekv3", "gb300", "mxfp8", 0}, {true, "", kByHybridEp, true, true}},
    {{5, 5, "deepseekv3", "b200", "mxfp8", 4096}, {true, kLatentAndDense, kByDeepEp}},
    {{5, 5, "deepseekv3", "b200", "nvfp4", 4096}, {true, kLatentAndCheap, kByDeepEp}},
    {{3, 3, "deepseekv3", "b300", "bf16", 4096}, {false, kLatentAndCheap, kByHybridEp}},
    {{2, 5, "deepseekv3", "", "", 0}, {false, kLatent, kByHybridEp}},
    {{4, 5, "kimik2", "h100", "", 0}, {false, kLatentAndDense, kByNccl}},
    {{4, 5, "kimik2", "gb200 gb300", "", 0}, {false, kLatent, kByHybridEp}},
    {{4, 5, "kimik2", "b200 b300", "", 0}, {false, kLatent, kByNccl}},
    {{5, 5, "gptoss120b", "gb200 gb300", "mxfp8", 1280}, {true, "", kByHybridEp, true, true}},
    {{4, 4, "gptoss120b", "gb200", "", 1280}, {true, kCheap, kByHybridEp}},
    {{5, 5, "gptoss120b", "gb200", "bf16", 1280}, {true, kCheap, kByNccl}},
    {{4, 4, "gptoss120b", "b200", "", 1280}, {false, kCheap, kByHybridEp}},
    {{4, 5, "gptoss120b", "b300", "", 1280}, {false, "", kByHybridEp}},
    {{2, 5, "gptoss120b", "h100 b200 gb200", "bf16", 0}, {false, kCheap, kByNccl}},
    {{4, 5, "gptoss120b", "h100 b200 gb200", "", 0}, {false, kCheap, kByNccl}},
    {{2, 5, "gptoss120b", "b300 gb300", "", 0}, {false, "", kByNccl}},
    {{2, 5, "qwen3235b", "h100", "", 0}, {true, "", kByNccl}},
    {{2, 2, "qwen3235b", "b200", "", 0}, {true, "", kByNccl}},
    {{3, 3, "qwen3235b", "b300", "", 0}, {true, "", kByNccl}},
    {{5, 5, "qwen3235b", "gb200 gb300", "mxfp8", 8192}, {true, "", kByHybridEp, true, true}},
    {{2, 5, "qwen3235b", "gb200 gb300", "", 0}, {false, "", kByHybridEp}},
    {{5, 5, "qwen3235b", "b300", "", 0}, {false, "", kByHybridEp}},
    {{1, 5, "qwen3235b", "", "", 0}, {false, "", kByNccl}},
    {{2, 2, "qwen330b", "h100", "", 0}, {true, "", kByNccl}},
    {{3, 3, "qwen330b", "h100", "", 0}, {true, "", kByDeepEp}},
    {{5, 5, "qwen330b", "gb200 gb300 b300", "mxfp8", 0}, {true, "", kByHybridEp, true, true}},
    {{2, 2, "qwen330b", "gb200 gb300", "", 0}, {false, "", kByHybridEp}},
    {{3, 3, "qwen330b", "gb200 gb300 b300", "", 0}, {false, "", kByHybridEp}},
    {{4, 5, "qwen330b", "", "", 0}, {false, "", kByHybridEp}},
    {{1, 3, "qwen330b", "", "", 0}, {false, "", kByNccl}},
});

constexpr auto kGraphsOfRouter = plan::GraphScope::Router;
constexpr auto kGraphsOfAttention = plan::GraphScope::Attention;
constexpr auto kGraphsOfLayers = plan::GraphScope::Layer;
constexpr auto kNoGraphs = plan::GraphScope::Dense;

// The same, cuda_graphs of v0.1.0rc4's *_llm_pretrain.yaml, where tokens are dropped and padded;
// cuda_graph_impl and cuda_graph_scope of v0.2.0 to v0.5.0 ("full_iteration": whole).
constexpr auto kGraphRows = std::to_array<GraphRow>({
    {{1, 1, "qwen330b", "b200 gb200", "", 0}, kGraphsOfLayers},
    {{1, 1, "qwen3235b", "gb200", "", 0}, kGraphsOfLayers},
    {{2, 2, "deepseekv3", "gb300", "", 0}, kGraphsOfAttention},
    {{2, 2, "deepseekv3", "gb200", "", 0}, kGraphsOfRouter},
    {{3, 5, "deepseekv3", "gb300", "bf16", 0}, kGraphsOfAttention},
    {{5, 5, "deepseekv3", "gb200 gb300", "mxfp8", 0}, kGraphsOfLayers},
    {{3, 5, "deepseekv3", "gb200", "", 0}, kGraphsOfAttention},
    {{5, 5, "deepseekv3", "b300", "", 4096}, kGraphsOfAttention},
    {{5, 5, "deepseekv3", "b200", "mxfp8", 4096}, kGraphsOfAttention},
    {{4, 5, "kimik2", "gb200", "", 0}, kGraphsOfRouter},
    {{5, 5, "gptoss120b", "gb200 gb300", "mxfp8", 1280}, kGraphsOfLayers},
    {{2, 5, "gptoss120b", "b300 gb300", "", 0}, kGraphsOfAttention},
    {{5, 5, "qwen3235b", "gb200 gb300", "mxfp8", 8192}, kGraphsOfLayers},
    {{2, 3, "qwen3235b", "gb300", "bf16", 0}, kGraphsOfRouter},
    {{3, 5, "qwen3235b", "gb300", "", 8192}, kGraphsOfAttention},
    {{2, 5, "qwen3235b", "gb300", "", 0}, kGraphsOfRouter},
    {{2, 5, "qwen3235b", "gb200", "", 0}, kGraphsOfAttention},
    {{5, 5, "qwen330b", "gb200 gb300 b300", "mxfp8", 0}, kGraphsOfLayers},
    {{2, 4, "qwen330b", "gb200", "mxfp8", 0}, kGraphsOfRouter},
    {{2, 5, "qwen330b", "gb200", "", 0}, kGraphsOfAttention},
    {{4, 5, "qwen330b", "b200", "", 0}, kGraphsOfAttention},
    {{2, 5, "qwen330b", "h100", "fp8", 0}, kNoGraphs},
    {{2, 5, "qwen330b", "", "", 0}, kGraphsOfRouter},
});

// Sequences of a step, as stated or as the other counts make them; 0 where they do not.
std::int64_t batch_of(const Measurement& row) {
  const std::int64_t others = row.tp.value_or(1) * row.pp.value_or(1) * row.cp.value_or(1);
  const std::int64_t gpus = row.gpus.value_or(0);
  const std::int64_t ranks = gpus % others == 0 ? gpus / others : 0;
  const std::int64_t of_rank = row.micro_batch.value_or(0) * row.num_microbatches.value_or(0);
  const bool counted = of_rank <= limits::kMaxBatch;
  return row.global_batch.value_or(counted ? of_rank * row.dp.value_or(ranks) : 0);
}

// "fp8" beside "MXFP8 on Blackwell" is mxfp8 there.
std::string recipe_precision(const Measurement& row, std::string_view family) {
  const bool blackwell = family != "h100" && mentions(row.precision_detail, "mxfp8");
  return row.precision == "fp8" && blackwell ? "mxfp8" : row.precision;
}

// Of mixtures of experts, for which alone there are recipes.
std::string release_remark(const Measurement& row, int release) {
  const bool bridge = framework_of(row).facts.name == "Megatron-Bridge";
  if (!bridge || row.experts.value_or(0) <= 1 || named_release(row.framework) != kReleases.end()) {
    return "";
  }
  return release == 0 ? fmt::format("{}: no recipe, as no release of one is known (25.09 to 26.06)",
                                    printable(row.framework, 60))
                      : fmt::format("{}: recipes of {}", printable(row.framework, 60),
                                    container_of(release));
}

}  // namespace

RecipeAsked recipe_asked(const Measurement& row) {
  RecipeAsked of_row;
  of_row.release =
      framework_of(row).facts.name == "Megatron-Bridge" ? release_of(row.framework) : 0;
  if (of_row.release > 0) {
    const std::string gpu = stated_gpu(row.gpu);
    of_row.family = gpu.substr(0, gpu.find('-'));
    of_row.network = letters_and_digits(row.model_name);
    of_row.batch = batch_of(row);
    of_row.precision = recipe_precision(row, of_row.family);
  }
  return of_row;
}

bool is_run_of(const RecipeAsked& asked, const RecipeKey& key) {
  const std::array<std::string_view, 1> names = {asked.family};
  return asked.release >= key.first && asked.release <= key.last &&
         asked.network.find(key.network) != std::string::npos &&
         (key.gpus.empty() || has_word(key.gpus, names)) &&
         (key.precision.empty() || key.precision == asked.precision) &&
         (key.batch == 0 || key.batch == asked.batch);
}

std::string_view container_of(int release) {
  const auto* named = std::find_if(kReleases.begin(), kReleases.end(),
                                   [release](const auto& name) { return name.second == release; });
  return named == kReleases.end() ? std::string_view() : named->first;
}

std::optional<BridgeRecipe> bridge_recipe(const Measurement& row) {
  const auto* found = find_recipe(kRecipes, row);
  return found == kRecipes.end() ? std::nullopt : std::optional(found->facts);
}

plan::GraphScope recipe_graphs(const Measurement& row) {
  const auto* found = find_recipe(kGraphRows, row);
  return found == kGraphRows.end() ? kNoGraphs : found->scope;
}

std::vector<std::string> recipe_remarks(const Measurement& row) {
  std::vector<std::string> lines;
  const RecipeAsked asked = recipe_asked(row);
  if (std::string remark = release_remark(row, asked.release); !remark.empty()) {
    lines.push_back(std::move(remark));
  }
  const bool trains_more =
      asked.release > 0 && asked.network.find("deepseekv3") != std::string::npos;
  const std::string said = to_lower(row.notes + " " + row.variant);
  if (trains_more && said.find("mtp") == said.npos &&
      said.find("multi-token prediction") == said.npos) {
    lines.emplace_back("multi-token prediction (the recipe's) is left out");
  }
  return lines;
}

}  // namespace orrery::studies
