// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/recompute_operators.hpp"

#include <array>

#include "base/words.hpp"
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

}  // namespace

std::string recomputed_operators(std::string_view text) {
  for (const RecomputeFlagWords& policy : kPolicyOperators) {
    if (text.find(policy.phrase) != text.npos) {
      return std::string(policy.operators);
    }
  }
  constexpr auto kOnly = std::to_array<std::string_view>({"only"});  // "FlashAttention only"
  const std::string denied = undenied(text);
  const std::string said = has_word(denied, kOnly) ? denied : without_kernels(denied);
  std::string operators;
  for (const RecomputeFlagWords& module : kOperators) {
    if (said.find(module.phrase) != said.npos &&
        operators.find(module.operators) == operators.npos) {
      operators.append(operators.empty() ? "" : "+").append(module.operators);
    }
  }
  return operators;
}

}  // namespace orrery::studies
