// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_dispatch.hpp"

#include <array>
#include <optional>

#include "base/text.hpp"
#include "base/words.hpp"
#include "plan/dispatchers.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_overlap.hpp"

namespace orrery::studies {
namespace {

using plan::Dispatcher;

// Libraries that send a token once to each node, which passes it on: DeepEP (deepseek-ai/DeepEP,
// README) and its successor in Megatron-LM's flex dispatcher (core/transformer/moe/fused_a2a.py).
constexpr auto kOnceANode = std::to_array<std::string_view>(
    {"deepep", "deep ep", "hybridep", "hybrid ep", "deduplicated dispatch", "dedup dispatch",
     "node limited", "flex dispatcher"});
// Of them those that order tokens by expert on the way (the same, HybridEPDispatch).
constexpr auto kPermuting = std::to_array<std::string_view>({"hybridep", "hybrid ep"});
constexpr auto kEightBitTokens = std::to_array<std::string_view>(
    {"fp8 dispatch", "fp8 all to all", "fp8 a2a", "dispatch in fp8", "fp8 token dispatch",
     "quantised dispatch", "quantized dispatch", "8 bit dispatch"});

bool has_experts(const Measurement& row) {
  return row.experts.value_or(0) > 1 && row.ep.value_or(1) > 1;
}

// DeepSeek-V3's report on its framework: tokens travel in fp8 and once to each of four nodes at
// most (arXiv 2412.19437, sections 3.2.2 and 3.3.2).
bool is_hai_llm(const Measurement& row) {
  return mentions(row.framework, "HAI-LLM") && row.precision == "fp8";
}

// Whether the row says one of the names, and if not whether it denies one.
std::optional<bool> dispatch_stated(const Measurement& row, SettingNames names) {
  std::optional<bool> denied;
  for (const std::string* cell : {&row.framework, &row.overlap, &row.variant, &row.notes}) {
    if (has_word(asserted_with_blanks(*cell), names)) {
      return true;
    }
    for (const std::string_view name : names) {
      const bool off = switch_set(*cell, std::array{name}) == false;
      denied = off ? std::optional(false) : denied;
    }
  }
  return denied;
}

// The recipe's, unless the row denies it or names NCCL's.
Dispatcher recipe_dispatcher(const Measurement& row) {
  constexpr auto kDeepEp = std::to_array<std::string_view>({"deepep", "deep ep"});
  constexpr auto kFlex = std::to_array<std::string_view>({"flex dispatcher"});
  constexpr auto kPlain = std::to_array<std::string_view>(
      {"alltoall dispatcher", "all to all dispatcher", "token dispatcher type=alltoall",
       "token dispatcher type: alltoall", "token dispatcher type alltoall", "nccl dispatcher"});
  const std::optional<BridgeRecipe> recipe = bridge_recipe(row);
  if (!recipe || dispatch_stated(row, kPlain) == true || dispatch_stated(row, kFlex) == false) {
    return Dispatcher::AllToAll;
  }
  const bool hybrid = recipe->dispatcher == Dispatcher::HybridEp;
  const bool denied =
      dispatch_stated(row, hybrid ? SettingNames(kPermuting) : SettingNames(kDeepEp)) == false;
  return denied ? Dispatcher::AllToAll : recipe->dispatcher;
}

// A library that the row names takes the place of the recipe's.
Dispatcher dispatcher_of(const Measurement& row) {
  if (dispatch_stated(row, kPermuting) == true) {
    return Dispatcher::HybridEp;
  }
  const std::optional<bool> once_a_node = dispatch_stated(row, kOnceANode);
  if (once_a_node == true) {
    return Dispatcher::DeepEp;
  }
  const Dispatcher recipe = recipe_dispatcher(row);
  if (recipe != Dispatcher::AllToAll) {
    return recipe;
  }
  return once_a_node.value_or(is_hai_llm(row)) ? Dispatcher::DeepEp : Dispatcher::AllToAll;
}

}  // namespace

std::string schedule_with_exchanges(const Measurement& row, const std::string& schedule) {
  if (!has_experts(row) || (schedule != "1f1b" && schedule != "interleaved")) {
    return schedule;
  }
  const std::optional<bool> stated = stated_hidden_exchanges(row);
  const std::optional<BridgeRecipe> recipe = bridge_recipe(row);
  // Megatron-LM asks for model chunks (megatron/core/transformer/transformer_config.py).
  const bool chunks = row.pp.value_or(1) == 1 || row.vpp.value_or(1) > 1;
  const bool hides = stated.value_or(recipe && recipe->hides_exchanges && chunks);
  return hides ? std::string(kJoinedPasses) : schedule;
}

void apply_dispatch(const Measurement& row, plan::Execution& execution) {
  if (!has_experts(row)) {
    return;
  }
  plan::set_dispatcher(dispatcher_of(row), execution);
  execution.quantised_dispatch = dispatch_stated(row, kEightBitTokens)
                                     .value_or(execution.quantised_dispatch || is_hai_llm(row));
}

bool names_dispatch(std::string_view clause) {
  const std::string plain = with_blanks(clause);
  return has_word(plain, kOnceANode) || has_word(plain, kEightBitTokens);
}

}  // namespace orrery::studies
