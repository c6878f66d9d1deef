// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/recompute_operators.hpp"

#include <array>

#include "base/text.hpp"
#include "base/words.hpp"
#include "plan/operator_set.hpp"
#include "studies/rows/denials.hpp"

namespace orrery::studies {
namespace {

struct RecomputeFlagWords {
  std::string_view phrase;  // in lower case
  std::string_view operators;
};

// MaxText's policies save products by name (layers/decoders.py, get_remat_policy); all else runs
// again. Longer names first.
constexpr auto kPolicyOperators = std::to_array<RecomputeFlagWords>(
    {{"save_dot_with_context_except_mlp", "norms+rotary+mlp-up+mlp-activation+mlp-down+residuals"},
     {"save_dot_except_mlpwi", "norms+rotary+attention+mlp-up+mlp-activation+residuals"},
     {"save_dot_except_mlp", "norms+rotary+attention+mlp-up+mlp-activation+mlp-down+residuals"},
     {"save_qkv_proj",
      "norms+rotary+attention+attention-output+mlp-up+mlp-activation+mlp-down+residuals"},
     {"minimal_with_context", "norms+rotary+mlp-activation+residuals"},
     {"minimal_flash", "norms+rotary+mlp-activation+residuals"},
     {"minimal", "norms+rotary+attention+mlp-activation+residuals"},
     // jax.checkpoint_policies: products of activations with each other are none of weights.
     {"with_no_batch_dims", "norms+rotary+attention+mlp-activation+residuals"},
     {"checkpoint_dots", "norms+rotary+mlp-activation+residuals"},
     {"dots_saveable", "norms+rotary+mlp-activation+residuals"},
     {"save_dots", "norms+rotary+mlp-activation+residuals"}});

// --recompute-modules of Megatron-Core (core/transformer/transformer_config.py) and words for them.
constexpr auto kOperators =
    std::to_array<RecomputeFlagWords>({{"norm", "norms"},
                                       {"core_attn", "attention-core"},
                                       {"core attention", "attention-core"},
                                       {"moe_act", "mlp-activation"},
                                       {"activation func", "mlp-activation"},
                                       {"swiglu", "mlp-activation"},
                                       {"gelu", "mlp-activation"},
                                       {"ffn activation", "mlp-activation"},
                                       {"mla_up_proj", "qkv"},
                                       {"mla up-projection", "qkv"},
                                       {"mlp", "mlp-up+mlp-activation+mlp-down"},
                                       {"feed-forward", "mlp-up+mlp-activation+mlp-down"},
                                       {"feed_forward", "mlp-up+mlp-activation+mlp-down"},
                                       {"ffn only", "mlp-up+mlp-activation+mlp-down"},
                                       {"attention", "attention-core"},
                                       {"attn", "attention-core"}});

// Kernels and words that hold the name of a module and mean none.
std::string without_kernels(std::string text) {
  constexpr auto kNone = std::to_array<std::string_view>(
      {"flash attention", "flashattention", "flash-attention", "flash_attention", "flash_attn",
       "flash-attn", "fused attention", "normal", "attention kernel"});
  for (const std::string_view word : kNone) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at)) {
      text.erase(at, word.size());
    }
  }
  return text;
}

// Those of modules that a text names, joined by plus signs.
std::string named_operators(std::string_view text) {
  std::string operators;
  for (const RecomputeFlagWords& module : kOperators) {
    if (text.find(module.phrase) != text.npos &&
        operators.find(module.operators) == operators.npos) {
      operators.append(operators.empty() ? "" : "+").append(module.operators);
    }
  }
  return operators;
}

// Of a layer all others than these; what attention gives back goes with its core.
std::string other_operators(std::string_view kept) {
  plan::OperatorSet without = plan::parse_operator_set(kept, "recompute_detail");
  if (without.has(plan::OperatorGroup::AttentionCore)) {
    without.add(plan::OperatorGroup::Attention);
  }
  plan::OperatorSet others;
  for (int group = 0; group < plan::kNumOperatorGroups; ++group) {
    const auto one = static_cast<plan::OperatorGroup>(group);
    if (!without.has(one) && one != plan::OperatorGroup::AttentionCore) {
      others.add(one);
    }
  }
  return others.text();
}

}  // namespace

std::string operators_but_kept(std::string_view text) {
  constexpr auto kExcept = std::to_array<std::string_view>(
      {"except for ", "except ", "all but ", "everything but ", "excluding "});
  constexpr auto kKept = std::to_array<std::string_view>(
      {"kept", "saved", "stored", "not recomputed", "not checkpointed"});
  for (const std::string_view word : kExcept) {
    const std::size_t at = text.find(word);
    const std::string kept = at == text.npos ? "" : named_operators(text.substr(at));
    if (!kept.empty()) {
      return other_operators(kept);
    }
  }
  const std::string clauses = with_signs_as(text, ",()\n:", ';');
  for (const std::string_view clause : split(clauses, ';')) {
    for (const std::string_view word : kKept) {  // behind what they are said of
      const std::size_t at = find_word(clause, word);
      const std::string kept = at == clause.npos ? "" : named_operators(clause.substr(0, at));
      if (!kept.empty()) {
        return other_operators(kept);
      }
    }
  }
  return "";
}

std::string recomputed_operators(std::string_view text) {
  for (const RecomputeFlagWords& policy : kPolicyOperators) {
    if (text.find(policy.phrase) != text.npos) {
      return std::string(policy.operators);
    }
  }
  if (std::string others = operators_but_kept(text); !others.empty()) {
    return others;
  }
  constexpr auto kOnly = std::to_array<std::string_view>({"only"});  // "FlashAttention only"
  const std::string denied = undenied(text);
  return named_operators(has_word(denied, kOnly) ? denied : without_kernels(denied));
}

}  // namespace orrery::studies
