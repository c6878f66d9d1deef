// SPDX-License-Identifier: Apache-2.0
// What the ranks of a serving plan send one another in an iteration.
#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "plan/block_rules.hpp"
#include "plan/serving/cost.hpp"
#include "plan/serving/cost_parts.hpp"

namespace orrery::plan {
namespace {

using models::Block;
using models::BlockKind;

Step collective_step(std::string_view name, sim::CommKind kind, Axis axis, Bytes bytes) {
  Step step;
  step.name = name;
  step.collective = true;
  step.comm = kind;
  step.axis = axis;
  step.axes = static_cast<std::uint8_t>(1U << static_cast<unsigned>(axis));
  step.bytes = bytes;
  return step;
}

}  // namespace

std::int64_t ServingModel::most_tokens(int block) const {
  const ServingOptions& options = plan_.serving->options;
  std::int64_t tokens = options.token_budget;
  if (options.prefill == Prefill::Separate) {
    tokens = std::max(tokens, plan_.sequence);  // a prompt is computed whole
  }
  const bool samples = network().blocks[static_cast<std::size_t>(block)].kind == BlockKind::Head;
  return samples ? std::min(tokens, options.max_requests) : tokens;
}

MessageLinks ServingModel::messages() const {
  return {plan_.cluster, costs_->blocks.device(), plan_.serving->options.all_reduce};
}

Seconds ServingModel::collective_time(sim::CommKind kind, Bytes bytes,
                                      const costmodel::GroupShape& group) const {
  return plan_.serving->options.all_reduce == AllReduce::Nccl
             ? costs_->blocks.collectives().time(kind, bytes, group)
             : messages().collective(kind, bytes, group);
}

// Shared experts are computed while tokens travel to the others and back (vLLM,
// model_executor/layers/fused_moe/shared_fused_moe.py), as in training.
Seconds ServingModel::hidden_exchange(const BlockContext& lowered) const {
  const std::vector<Step> steps = lower_block(lowered).forward;
  const bool messages = plan_.serving->options.all_reduce != AllReduce::Nccl;
  std::vector<Seconds> times;
  Seconds in_turn;
  for (const Step& step : steps) {
    times.push_back(step.collective && messages ? collective_time(step.comm, step.bytes, step.group)
                                                : step.time);
    in_turn += times.back();
  }
  const PassCost pass = queue_steps(steps, times, lowered.device, Seconds());
  return std::max(Seconds(), in_turn - to_seconds(pass.time));
}

// Decoding by latent attention merges what it has of the latents, before the product with them
// (vLLM, v1/attention/backends/mla/common.py, forward: cp_lse_ag_out_rs, then _v_up_proj).
std::optional<Step> ServingModel::merge(const Block& block, std::int64_t decoded,
                                        std::int64_t prompted) const {
  if (layout_.cp == 1 || block.attention.heads == 0) {
    return std::nullopt;
  }
  const CacheAttention core = cache_attention(network().spec, block, layout_.tp);
  const int element = element_bytes(models::Element::Compute, plan_.precision);
  const double dims = as_double(block.attention.value_head_dim > 0 ? block.attention.value_head_dim
                                                                   : block.attention.head_dim);
  const std::int64_t rank = network().spec.mla.kv_lora_rank;
  const double elements =
      as_double(decoded) * (rank > 0 ? as_double(rank) : dims) + as_double(prompted) * dims;
  const double sums = as_double(decoded + prompted) * sizeof(float);
  const double bytes = core.heads * (elements * element + sums);
  Step step =
      collective_step("attention_context", sim::CommKind::AllReduce, Axis::Context, Bytes(bytes));
  step.group = group_of(mesh_of(layout_, 1), {Axis::Context}, plan_.cluster.node.gpus);
  step.time = collective_time(step.comm, step.bytes, step.group);
  return step;
}

Seconds ServingModel::merge_time(const Block& block, const Iteration& iteration) const {
  const std::optional<Step> step =
      merge(block, iteration.decodes, iteration.tokens() - iteration.decodes);
  return step ? step->time : Seconds();
}

std::optional<Step> ServingModel::gather_of_logits(const Block& block, std::int64_t tokens) const {
  if (block.kind != BlockKind::Head || layout_.tp == 1 || !plan_.execution.vocab_parallel) {
    return std::nullopt;
  }
  const int element = element_bytes(models::Element::Compute, plan_.precision);
  Step step = collective_step("logits", sim::CommKind::AllGather, Axis::Tensor,
                              Bytes(element * as_double(tokens) * as_double(network().spec.vocab)));
  step.group = group_of(mesh_, std::vector<Axis>(kTensorAxes.begin(), kTensorAxes.end()),
                        plan_.cluster.node.gpus);
  step.time = collective_time(step.comm, step.bytes, step.group);
  return step;
}

std::vector<Step> ServingModel::collectives(int block, std::int64_t tokens) const {
  const BlockContext lowered = context(block, tokens);
  std::vector<Step> steps = serving_steps(lowered);
  std::erase_if(steps, [](const Step& step) { return !step.collective; });
  if (const auto merged = merge(lowered.block, 0, tokens)) {
    steps.insert(steps.begin(), *merged);
  }
  if (const auto gather = gather_of_logits(lowered.block, tokens)) {
    steps.push_back(*gather);
  }
  return steps;
}

}  // namespace orrery::plan
