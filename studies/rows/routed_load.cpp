// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/routed_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// Tokens that the busiest of 32 ranks received over the mean, on average over steps and layers of a
// Mixtral-like network of 32 layers that was trained without a balancing loss on ranks of two or
// four experts: the token counts beside the LAER-MoE artifact (PKU-DAIR/Hetu-Galvatron, branch
// laer-moe). `system` is the beginning of the variant.
struct CountedLoad {
  std::string_view system;
  std::int64_t experts;
  std::int64_t top_k;
  double imbalance;
};
constexpr auto kCountedLoads = std::to_array<CountedLoad>({
    {"static EP", 16, 4, 1.73},
    {"FlexMoE re-layout", 16, 4, 1.66},
    {"LAER re-layout", 16, 4, 1.29},
    {"static EP", 8, 2, 1.66},
    {"FlexMoE re-layout", 8, 2, 1.50},
    {"LAER re-layout", 8, 2, 1.41},
});

// The artifact's runs of whole planners; its ablations have other variants and the same notes.
// Remarks may hold the variant behind the notes by the time that this is asked.
bool is_of(const Measurement& row, std::string_view system) {
  const bool ablation = row.variant.find("without") != row.variant.npos ||
                        row.notes.find("LAER planner") != row.notes.npos ||
                        row.notes.find("LAER without") != row.notes.npos;
  return !ablation && (row.variant.starts_with(system) || row.notes.starts_with(system));
}

bool has_no_balancing_loss(const Measurement& row) {
  return row.notes.find("auxiliary loss 0.0;") != row.notes.npos;
}

bool says_uneven(const Measurement& row) {
  return row.notes.find("unbalanced routing") != row.notes.npos;
}

const CountedLoad* counted_load(const Measurement& row) {
  const bool artifact = mentions(row.framework, "FSEP") && has_no_balancing_loss(row);
  const auto* found =
      std::find_if(kCountedLoads.begin(), kCountedLoads.end(), [&](const CountedLoad& load) {
        return artifact && row.experts == load.experts && row.top_k == load.top_k &&
               is_of(row, load.system);
      });
  return found == kCountedLoads.end() ? nullptr : found;
}

bool in_few_bits(const Measurement& row) {
  return row.precision == "fp8" || row.precision == "mxfp8" || row.precision == "nvfp4";
}

// Rows of experts that are padded to their capacity, a multiple of what products want.
bool drops_tokens(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"tokendrop", "token drop", "token dropping", "drop and pad"});
  return capacity_factor(row) > 0 ||
         has_word(asserted_with_blanks(row.notes + "; " + row.variant), kNames);
}

}  // namespace

double routing_imbalance(const Measurement& row) {
  const CountedLoad* load = counted_load(row);
  return load == nullptr ? 1.0 : load->imbalance;
}

std::vector<std::string> routing_remarks(const Measurement& row) {
  if (row.experts.value_or(0) <= 1 || row.ep.value_or(1) <= 1) {
    return {};
  }
  if (const CountedLoad* load = counted_load(row)) {
    return {fmt::format("{} times the mean of tokens on the busiest rank ({}, as counted)",
                        load->imbalance, load->system)};
  }
  return says_uneven(row) ? std::vector<std::string>{"unbalanced routing as balanced"}
                          : std::vector<std::string>{};
}

void apply_expert_kernels(const Measurement& row, plan::Execution& execution) {
  if (row.experts.value_or(0) <= 1) {
    return;
  }
  execution.routing_imbalance = routing_imbalance(row);
  if (const auto recipe = bridge_recipe(row); recipe && recipe->fused_experts) {
    execution.fused_experts = true;
    execution.expert_kernels = false;
    execution.eager_expert_bias = false;
  }
  if (const auto recipe = bridge_recipe(row); recipe && recipe->fp8_attention) {
    execution.fp8_attention = true;
  }
  if (const plan::GraphScope graphs = recipe_graphs(row); graphs != plan::GraphScope::Dense) {
    execution.cuda_graphs = true;
    execution.graph_scope = graphs;
  }
  // HybridEP has padded what it sends (Megatron-LM core/transformer/moe/moe_utils.py,
  // skip_routed_expert_padding).
  execution.expert_padding = execution.expert_kernels && in_few_bits(row) && !drops_tokens(row) &&
                             !execution.fused_permutation;
}

}  // namespace orrery::studies
