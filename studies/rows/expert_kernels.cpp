// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/expert_kernels.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "plan/expert_kernels.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/routed_load.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_window.hpp"

namespace orrery::studies {
namespace {

std::string kernel_text(const Measurement& row) {
  return remarks_of(row) + "; " + row.precision_detail + "; " + row.overlap + "; " +
         row.attention_impl;
}

bool in_few_bits(const Measurement& row) {
  return row.precision == "fp8" || row.precision == "mxfp8" || row.precision == "nvfp4";
}

// Rows of experts that are padded to their capacity, a multiple of what products want.
bool drops_tokens(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"tokendrop", "token drop", "token dropping", "drop and pad"});
  return capacity_factor(row) > 0 || has_word(asserted_with_blanks(remarks_of(row)), kNames);
}

// "cuda_graph_scope=full_iteration", "CUDA graphs of attention", "CUDA graphs (attn, router)"; no
// value where none is named.
std::optional<plan::GraphScope> stated_scope(const std::string& remarks) {
  constexpr auto kGraphs = std::to_array<std::string_view>(
      {"cuda graph", "cuda graphs", "cudagraph", "cudagraphs", "graph scope"});
  using Scope = std::pair<std::string_view, plan::GraphScope>;
  constexpr auto kScopes = std::to_array<Scope>({{"full iteration", plan::GraphScope::Layer},
                                                 {"whole layers", plan::GraphScope::Layer},
                                                 {"full layers", plan::GraphScope::Layer},
                                                 {"attn", plan::GraphScope::Attention},
                                                 {"attention", plan::GraphScope::Attention},
                                                 {"moe router", plan::GraphScope::Router},
                                                 {"router", plan::GraphScope::Router}});
  const std::string said = with_blanks(remarks);
  std::vector<std::string> clauses = asserted_clauses(said);
  std::erase_if(clauses, [&](const std::string& clause) { return !has_word(clause, kGraphs); });
  for (const std::string_view name : kGraphs) {
    const std::size_t at = find_word(said, name);
    const std::size_t open = at == said.npos ? at : at + name.size() + 1;
    if (!clauses.empty() && open < said.size() && said[open] == '(') {
      clauses.push_back(asserted(said.substr(open + 1, said.find(')', open) - open - 1)));
    }
  }
  for (const std::string& clause : clauses) {
    for (const auto& [word, scope] : kScopes) {
      if (find_word(clause, word) != clause.npos) {
        return scope;
      }
    }
  }
  return std::nullopt;
}

// "no CUDA graphs", "cuda_graph_impl=none": false.
std::optional<bool> stated_graphs(const std::string& remarks) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"cuda graph impl", "enable cuda graph", "use cuda graph", "use cuda graphs", "cuda graphs",
       "cuda graph", "cudagraphs", "cudagraph"});
  return switch_set(remarks, kNames);
}

void apply_graphs(const Measurement& row, plan::Execution& execution) {
  const std::string remarks = kernel_text(row) + "; " + row.framework;
  const auto scope = stated_scope(remarks);
  if (stated_graphs(remarks) == false) {
    execution.cuda_graphs = false;
    return;
  }
  const plan::GraphScope graphs = scope.value_or(recipe_graphs(row));
  if (graphs != plan::GraphScope::Dense) {
    execution.cuda_graphs = true;
    execution.graph_scope = graphs;
  }
}

}  // namespace

void apply_expert_kernels(const Measurement& row, plan::Execution& execution) {
  constexpr auto kFp8Attention =
      std::to_array<std::string_view>({"fp8 dot product attention", "fp8 dpa"});
  constexpr auto kRouter = std::to_array<std::string_view>({"moe router fusion", "router fusion"});
  const std::optional<BridgeRecipe> recipe = bridge_recipe(row);
  const std::string remarks = kernel_text(row);
  execution.fp8_attention =
      switch_set(remarks, kFp8Attention)
          .value_or(execution.fp8_attention || (recipe && recipe->fp8_attention));
  if (row.experts.value_or(0) <= 1) {
    return;
  }
  execution.routing_imbalance = routing_imbalance(row);
  // moe_router_fusion of all recipes of the performance scripts whose networks have rows.
  execution.fused_router =
      switch_set(remarks, kRouter).value_or(execution.fused_router || recipe.has_value());
  if (recipe && recipe->fused_experts) {
    execution.fused_experts = true;
    execution.expert_kernels = false;
    execution.eager_expert_bias = false;
  }
  apply_graphs(row, execution);
  plan::pad_expert_rows(in_few_bits(row), drops_tokens(row), execution);
}

}  // namespace orrery::studies
