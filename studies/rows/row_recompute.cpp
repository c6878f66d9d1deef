// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_recompute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/text.hpp"

namespace orrery::studies {
namespace {

using plan::BlockRun;
using plan::Recompute;

struct Words {
  std::string_view phrase;  // in lower case
  std::string_view operators;
};

// MaxText's policies save products by name (layers/decoders.py, get_remat_policy); all else runs
// again. Longer names first.
constexpr auto kPolicies = std::to_array<Words>(
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
constexpr auto kModules = std::to_array<Words>({{"norm", "norms"},
                                                {"core_attn", "attention-core"},
                                                {"core attention", "attention-core"},
                                                {"moe_act", "mlp-activation"},
                                                {"activation func", "mlp-activation"},
                                                {"swiglu", "mlp-activation"},
                                                {"gelu", "mlp-activation"},
                                                {"mla_up_proj", "qkv"},
                                                {"mla up-projection", "qkv"},
                                                {"mlp", "mlp-up+mlp-activation+mlp-down"},
                                                {"attention", "attention-core"}});

// Empty where the text names none.
std::string operators_of(std::string_view detail) {
  for (const Words& policy : kPolicies) {
    if (detail.find(policy.phrase) != detail.npos) {
      return std::string(policy.operators);
    }
  }
  std::string operators;
  for (const Words& module : kModules) {
    if (detail.find(module.phrase) != detail.npos &&
        operators.find(module.operators) == operators.npos) {
      operators.append(operators.empty() ? "" : "+").append(module.operators);
    }
  }
  return operators;
}

// The first number of a text; 0 when there is none.
int first_number(std::string_view text) {
  const std::size_t begin = text.find_first_of("0123456789");
  int number = 0;
  if (begin != text.npos) {
    std::from_chars(text.data() + begin, text.data() + text.size(), number);
  }
  return number;
}

// "25% of layers": 4; 1 for shares that no step between layers gives.
int layers_of_percent(std::string_view detail) {
  const std::size_t sign = detail.find("% of");
  if (sign == detail.npos || detail.find("layer", sign) == detail.npos) {
    return 1;
  }
  std::size_t begin = sign;
  while (begin > 0 && detail[begin - 1] >= '0' && detail[begin - 1] <= '9') {
    --begin;
  }
  const int percent = first_number(detail.substr(begin, sign - begin));
  return percent > 0 && 100 % percent == 0 ? 100 / percent : 1;
}

// "every 2nd layer", "every other layer", "1 of 3 layers", "1/3 of layers", "half of the layers",
// "25% of layers"; 1 where the text says no such thing.
int layers_apart(std::string_view detail) {
  constexpr auto kHalf = std::to_array<std::string_view>({"every other layer", "half of"});
  if (says_any(detail, kHalf)) {
    return 2;
  }
  if (const int apart = layers_of_percent(detail); apart > 1) {
    return apart;
  }
  for (const std::string_view phrase : {"every ", "1 of ", "1/"}) {
    const std::size_t found = detail.find(phrase);
    if (found != detail.npos && detail.find("layer", found) != detail.npos) {
      return std::max(1, first_number(detail.substr(found + phrase.size())));
    }
  }
  return 1;
}

// Megatron-LM's --recompute-method block with --recompute-num-layers; 0 where all layers are meant.
int layers_of_a_stage(std::string_view detail) {
  for (const std::string_view phrase : {"num_layers", "num-layers", "block", "first "}) {
    const std::size_t found = detail.find(phrase);
    if (found != detail.npos && detail.find("uniform") == detail.npos) {
      return first_number(detail.substr(found));
    }
  }
  return 0;
}

// Whether full recomputation leaves out the last product, whose result no backward reads where the
// residual is added without dropout. llm-foundry's runs with mixed precision PURE are those of its
// first table, of May 2023 and PyTorch 1.13.1 (scripts/train/benchmarking/sweep.sh).
bool leaves_out_last_product(const Measurement& row, const FrameworkFacts& framework) {
  return framework.stops_recomputation && !framework.gpt_dropout && row.experts.value_or(0) == 0 &&
         !row.overlap_mentions("mixed_precision=PURE");
}

std::string whole_layer(const Measurement& row, const FrameworkFacts& framework) {
  return leaves_out_last_product(row, framework)
             ? "norms+qkv+rotary+attention+attention-output+mlp-up+mlp-activation+residuals"
             : "full";
}

// Selective recomputation as Megatron-LM means it (the attention core) unless the row names
// operators, layers or torchtitan's form "per-op", which keeps every second product.
StatedRecompute selective(const Measurement& row, const FrameworkFacts& framework,
                          std::string_view detail) {
  if (const int every = layers_apart(detail); every > 1) {
    return {whole_layer(row, framework), every, 0};
  }
  if (detail.find("per-op") != detail.npos) {
    return {"products", 1, 0};
  }
  std::string operators = operators_of(detail);
  if (operators.empty() || operators == "attention-core") {
    return {"selective", 1, 0};
  }
  return {std::move(operators), 1, 0};
}

}  // namespace

tl::expected<StatedRecompute, std::string> stated_recompute(const Measurement& row,
                                                            const FrameworkFacts& framework) {
  const std::string detail = to_lower(row.recompute_detail);
  if (row.recompute == "full") {
    return StatedRecompute{whole_layer(row, framework), 1, layers_of_a_stage(detail)};
  }
  if (row.recompute == "selective") {
    return selective(row, framework, detail);
  }
  if (row.recompute != "custom") {
    return StatedRecompute{row.recompute, 1, 0};
  }
  std::string operators = operators_of(detail);
  if (operators.empty()) {
    return tl::unexpected(std::string("custom recomputation is not modelled"));
  }
  return StatedRecompute{std::move(operators), 1, 0};
}

std::vector<BlockRun> recomputed_runs(const StatedRecompute& stated, int length,
                                      const plan::BlockPlan& layout, const std::string& where) {
  plan::BlockPlan recomputed = layout;
  plan::set_recompute(stated.operators, where, recomputed);
  if (stated.first > 0) {
    return {{length, layout}};
  }
  if (stated.every == 1) {
    return {{length, recomputed}};
  }
  std::vector<BlockRun> runs;
  for (int position = 0; position < length; ++position) {
    runs.push_back({1, position % stated.every == 0 ? recomputed : layout});
  }
  return runs;
}

void recompute_first_layers(plan::Plan& plan, int layers) {
  std::vector<BlockRun> runs;
  std::size_t position = 0;
  for (const int blocks : plan.stage_blocks) {
    int done = 0;
    for (int index = 0; index < blocks; ++index, ++position) {
      const auto block = static_cast<std::size_t>(plan.network.chain[position]);
      BlockRun run{1, plan.layout_of(static_cast<int>(position))};
      if (plan.network.blocks[block].kind == models::BlockKind::Layer && done++ < layers) {
        run.layout.recompute = Recompute::Full;
      }
      if (!runs.empty() && runs.back().layout == run.layout) {
        ++runs.back().count;
      } else {
        runs.push_back(run);
      }
    }
  }
  plan.blocks = std::move(runs);
}

}  // namespace orrery::studies
