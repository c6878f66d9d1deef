// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/cost_parts.hpp"

#include <algorithm>
#include <limits>

#include "base/math.hpp"
#include "plan/block/saved.hpp"

namespace orrery::plan {

using models::Operator;
using models::OpKind;

std::vector<Step> serving_steps(const BlockContext& context) {
  std::vector<Step> steps = lower_block(context).forward;
  const auto& operators = context.block.operators;
  const auto loss = std::find_if(operators.begin(), operators.end(), [](const Operator& op) {
    return op.kind == OpKind::CrossEntropy;
  });
  if (loss != operators.end()) {  // and the sums of its parts behind it
    const auto first = std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
      return !step.collective && step.name == loss->name;
    });
    steps.erase(first, steps.end());
  }
  std::erase_if(steps, [](const Step& step) {
    return !step.collective && step.cost_class == CostClass::Attention;
  });
  return steps;
}

CacheAttention cache_attention(const models::NetworkSpec& spec, const models::Block& block,
                               int tp) {
  const models::AttentionInfo& info = block.attention;
  CacheAttention core;
  core.heads = static_cast<double>(ceil_div(info.heads, tp));
  if (spec.mla.kv_lora_rank > 0) {
    core.dims = static_cast<double>(2 * spec.mla.kv_lora_rank + spec.mla.qk_rope_head_dim);
  } else {
    const std::int64_t value = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim;
    core.dims = static_cast<double>(info.head_dim + value);
  }
  return core;
}

double kv_elements(const models::NetworkSpec& spec, const models::Block& block, int tp) {
  if (spec.mla.kv_lora_rank > 0) {
    return static_cast<double>(spec.mla.kv_lora_rank + spec.mla.qk_rope_head_dim);
  }
  const models::AttentionInfo& info = block.attention;
  const std::int64_t heads = ceil_div(std::max<std::int64_t>(1, info.kv_heads), tp);
  const std::int64_t value = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim;
  return static_cast<double>(heads * (info.head_dim + value));
}

ExpandedLatents expanded_token(const models::NetworkSpec& spec, const models::Block& block,
                               int tp) {
  const models::MlaSpec& mla = spec.mla;
  const std::int64_t heads = ceil_div(block.attention.heads, std::int64_t{tp});
  ExpandedLatents token;
  token.latents = kv_elements(spec, block, tp);
  token.columns = heads * (mla.qk_nope_head_dim + mla.v_head_dim);
  token.keys = as_double(heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim));
  token.joined =
      as_double(heads * mla.qk_nope_head_dim) + as_double(mla.qk_rope_head_dim) + token.keys;
  token.context = as_double(heads * mla.v_head_dim);
  return token;
}

ByteCount live_activations(const BlockContext& context, ByteCount beside_attention) {
  const models::Block& block = context.block;
  const BlockRules rules = rules_of(context);
  const std::vector<Layout> layouts = produced_layouts(block, rules);
  constexpr int kNever = std::numeric_limits<int>::max();
  const auto count = static_cast<int>(block.operators.size());
  struct Life {
    int first = kNever;
    int last = -1;
  };
  std::vector<Life> lives(block.tensors.size());
  const auto touch = [&](int tensor, int when) {
    Life& life = lives[static_cast<std::size_t>(tensor)];
    life.first = std::min(life.first, when);
    life.last = std::max(life.last, when);
  };
  for (int index = 0; index < count; ++index) {
    const Operator& op = block.operators[static_cast<std::size_t>(index)];
    for (const int tensor : op.inputs) {
      touch(tensor, index);
    }
    for (const int tensor : op.outputs) {
      touch(tensor, index);
    }
  }
  if (block.input >= 0) {
    touch(block.input, 0);
  }
  if (block.output >= 0) {
    touch(block.output, count - 1);
  }
  ByteCount most;
  for (int index = 0; index < count; ++index) {
    const bool attends = block.operators[static_cast<std::size_t>(index)].kind == OpKind::Attention;
    ByteCount live = attends ? beside_attention : ByteCount();
    for (std::size_t tensor = 0; tensor < lives.size(); ++tensor) {
      if (lives[tensor].first <= index && index <= lives[tensor].last) {
        live += tensor_bytes(context, static_cast<int>(tensor), layouts[tensor]);
      }
    }
    most = std::max(most, live);
  }
  return most;
}

}  // namespace orrery::plan
