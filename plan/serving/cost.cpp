// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/cost.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "costmodel/attention_work.hpp"
#include "plan/block_rules.hpp"
#include "plan/serving/cost_parts.hpp"
#include "plan/serving/serving_check.hpp"
#include "plan/stage/offload_time.hpp"

namespace orrery::plan {
namespace {

using costmodel::AttentionShape;
using costmodel::MemoryKernel;
using models::Block;
using models::BlockKind;
using models::OpKind;

// Whether a step works on the copies of tokens that the experts of all replicas got.
bool is_of_experts(const Block& block, const Step& step) {
  const auto op = std::find_if(block.operators.begin(), block.operators.end(),
                               [&](const models::Operator& one) { return one.name == step.name; });
  if (op != block.operators.end()) {
    return iterates_over(block, *op, models::Var::Expert);
  }
  const auto tensor =
      std::find_if(block.tensors.begin(), block.tensors.end(),
                   [&](const models::Tensor& one) { return one.name == step.name; });
  return tensor != block.tensors.end() &&
         std::any_of(tensor->dims.begin(), tensor->dims.end(),
                     [](const models::Dim& dim) { return dim.var == models::Var::Choice; });
}

bool crosses_replicas(const Step& step) {
  return step.collective && (step.axes >> static_cast<unsigned>(Axis::Expert) & 1U) != 0;
}

// Where parameters live changes neither kernels nor collectives.
BlockPlan without_tiers(BlockPlan layout) {
  layout.offload = {};
  return layout;
}

BlockPlan without_context(BlockPlan layout) {
  layout.cp = 1;
  return layout;
}

// Attention of training is another kernel than that of inference, which reads pages of keys.
costmodel::Profile of_inference(costmodel::Profile profile) {
  const costmodel::KernelResiduals& all = profile.kernels.residuals;
  std::vector<costmodel::ResidualSet> sets = all.sets();
  const auto erased = std::erase_if(sets, [](const costmodel::ResidualSet& set) {
    return set.key.kind == costmodel::KernelKind::AttentionForward &&
           set.key.load == costmodel::Load::Sustained;
  });
  if (erased > 0) {
    profile.kernels.residuals = {"", all.sms(), all.source(), std::move(sets)};
  }
  return profile;
}

Plan without_training(const Plan& plan) {
  Plan serving = plan;
  models::NetworkSpec spec = plan.network.spec;
  spec.hidden_dropout = 0;
  spec.attention_dropout = 0;
  serving.network = models::build_network(spec, spec.name);
  serving.profile = of_inference(plan.profile);
  return serving;
}

}  // namespace

std::string_view to_text(ServingPart part) {
  constexpr std::array<std::string_view, kNumServingParts> kNames = {
      "gemm", "decode_attention", "prompt_attention", "network", "other", "copies"};
  return kNames[static_cast<std::size_t>(part)];
}

ServingModel::Costs::Costs(const Plan& plan, std::shared_ptr<FoundCosts> all)
    : blocks(without_training(plan)), found(std::move(all)), known(blocks.network().blocks.size()) {
  found->linear.resize(known.size());
}

ServingModel::ServingModel(const Plan& plan)
    : ServingModel(plan, std::make_shared<Costs>(plan, std::make_shared<FoundCosts>())) {}

ServingModel ServingModel::on_another_thread() const {
  return {plan_, std::make_shared<Costs>(plan_, costs_->found)};
}

ServingModel::ServingModel(const Plan& plan, const ServingModel& like)
    : ServingModel(plan, like.costs_) {
  const ServingOptions& mine = plan.serving->options;
  const ServingOptions& others = like.plan_.serving->options;
  ORRERY_CHECK(
      layout_ == like.layout_ && mine.all_reduce == others.all_reduce &&
          mine.fp8_cache == others.fp8_cache &&
          plan.execution.overlap_shared_experts == like.plan_.execution.overlap_shared_experts,
      "costs of another layout");
}

ServingModel::ServingModel(const Plan& plan, std::shared_ptr<Costs> costs)
    : plan_(plan),
      layout_(without_tiers(plan.blocks.front().layout)),
      linear_layout_(without_context(layout_)),
      replicas_(expert_replicas(layout_)),
      mesh_(mesh_of(linear_layout_, replicas_)),
      costs_(std::move(costs)),
      tiers_(tier_graph(plan.cluster, plan.profile)) {
  auto position = network().chain.begin();
  for (const int count : plan.stage_blocks) {
    stages_.push_back({{position, position + count}, {}, {}});
    position += count;
  }
  const bool stay = std::all_of(plan.blocks.begin(), plan.blocks.end(), [](const BlockRun& run) {
    return run.layout.offload.parameters == Tier::Device;
  });
  int at = 0;
  for (Stage& stage : stages_) {
    if (stay) {
      continue;
    }
    for (std::size_t index = 0; index < stage.blocks.size(); ++index) {
      stage.weights.push_back({plan.layout_of(at++).offload.parameters, {}, {}});
    }
    const std::vector<double> bytes = parameter_bytes(stage);
    for (std::size_t index = 0; index < bytes.size(); ++index) {
      stage.weights[index].bytes = ByteCount(std::llround(bytes[index]));
    }
  }
  for (const Block& block : network().blocks) {
    window_ = std::max(window_, block.attention.window);
  }
}

BlockContext ServingModel::context(int block, std::int64_t tokens) const {
  BlockContext context{network().blocks[static_cast<std::size_t>(block)],
                       linear_layout_,
                       mesh_,
                       {replicas_, tokens},
                       costs_->blocks.device(),
                       costs_->blocks.collectives(),
                       plan_.execution,
                       plan_.precision,
                       plan_.cluster.node.gpus};
  context.forward_only = true;
  return context;
}

ServingModel::LinearCost ServingModel::lower(int block, std::int64_t tokens) const {
  const BlockContext lowered = context(block, tokens);
  LinearCost cost;
  for (Step& step : serving_steps(lowered)) {
    if (step.collective && plan_.serving->options.all_reduce != AllReduce::Nccl) {
      step.time = collective_time(step.comm, step.bytes, step.group);
    }
    if (replicas_ > 1 && crosses_replicas(step)) {
      cost.exchange += step.time;
      continue;
    }
    LinearParts& parts =
        replicas_ > 1 && is_of_experts(lowered.block, step) ? cost.experts : cost.own;
    parts.flops += step.flops;
    (step.collective               ? parts.network
     : is_product(step.cost_class) ? parts.gemm
                                   : parts.other) += step.time;
  }
  if (plan_.execution.overlap_shared_experts && hides_exchanges(plan_) &&
      lowered.block.experts > 0) {
    cost.hidden = hidden_exchange(lowered);
  }
  const costmodel::DeviceModel& device = costs_->blocks.device();
  if (lowered.block.kind == BlockKind::Layer) {  // new keys and values are written to the cache
    const double written =
        as_double(tokens) * kv_elements(network().spec, lowered.block, layout_.tp) / layout_.cp;
    const int made = element_bytes(models::Element::Compute, plan_.precision);
    cost.own.other +=
        device.memory_bound(Bytes(written * (made + cache_width())),
                            cache_width() < made ? MemoryKernel::Cast : MemoryKernel::Copy);
  } else if (lowered.block.kind == BlockKind::Head) {
    const double logits = as_double(tokens) * as_double(network().spec.vocab);
    cost.own.other += device.memory_bound(Bytes(4 * logits), MemoryKernel::Softmax);
    if (const auto gather = gather_of_logits(lowered.block, tokens)) {
      cost.own.network += gather->time;
    }
  }
  return cost;
}

const ServingModel::LinearCost& ServingModel::linear(int block, std::int64_t tokens) {
  if (tokens >= kRememberedTokens) {
    return find_linear(block, tokens);
  }
  std::vector<const LinearCost*>& known = costs_->known[static_cast<std::size_t>(block)];
  const auto slot = static_cast<std::size_t>(tokens);
  if (slot >= known.size()) {
    known.resize(std::max(slot + 1, 2 * known.size()));
  }
  if (known[slot] == nullptr) {
    known[slot] = &find_linear(block, tokens);
  }
  return *known[slot];
}

const ServingModel::LinearCost& ServingModel::find_linear(int block, std::int64_t tokens) {
  auto& found = costs_->found->linear[static_cast<std::size_t>(block)];
  {
    const std::lock_guard lock(costs_->found->mutex);
    if (const auto entry = found.find(tokens); entry != found.end()) {
      return entry->second;
    }
  }
  const LinearCost cost = lower(block, tokens);
  const std::lock_guard lock(costs_->found->mutex);
  return found.emplace(tokens, cost).first->second;
}

SlidingLayers ServingModel::sliding_layers() const {
  const ServingOptions& options = plan_.serving->options;
  SlidingLayers sliding{window_, window_ > 0 && options.host_cache == 0 ? 1.0 : 0.0,
                        options.token_budget};
  if (options.prefill == Prefill::Separate) {
    sliding.chunk = plan_.sequence;
  } else if (options.chunk > 0) {
    sliding.chunk = std::min(options.chunk, options.token_budget);
  }
  for (const Stage& stage : stages_) {
    double all = 0;
    double windowed = 0;
    for (const int index : stage.blocks) {
      const Block& block = network().blocks[static_cast<std::size_t>(index)];
      const double bytes = block.kind == BlockKind::Layer ? kv_bytes(block) : 0.0;
      all += bytes;
      windowed += block.attention.window > 0 ? bytes : 0.0;
    }
    sliding.share = all > 0 ? std::min(sliding.share, windowed / all) : sliding.share;
  }
  return sliding;
}

bool ServingModel::attends_in_fp8() const {
  return plan_.execution.fp8_attention &&
         (is_quantised(plan_.precision) || plan_.serving->options.fp8_cache);
}

Seconds ServingModel::decode_attention(const Block& block, const Iteration& iteration) const {
  if (iteration.decodes == 0 || block.attention.heads == 0) {
    return {};
  }
  const CacheAttention core = cache_attention(network().spec, block, layout_.tp);
  const double keys =
      as_double(block.attention.window > 0 ? iteration.windowed_keys : iteration.keys) / layout_.cp;
  const double rows = as_double(iteration.decodes) * core.heads * core.dims *
                      element_bytes(models::Element::Compute, plan_.precision);
  const costmodel::DeviceModel& device = costs_->blocks.device();
  const costmodel::AttentionParameters& attention = device.profile().attention;
  const DType dtype = unquantised(plan_.precision);
  double rate = device.gpu().peak_of(dtype).value() * attention.forward_fraction;
  if (plan_.serving->options.fp8_cache && attends_in_fp8()) {
    rate *= costmodel::fp8_attention_rate(attention, core.dims);
  }
  const Seconds read =
      device.memory_bound(Bytes(keys * kv_bytes(block) + rows), MemoryKernel::Copy);
  return std::max(read, attention.launch + Seconds(2.0 * keys * core.heads * core.dims / rate));
}

// Queries and keys that they see: their own, those before them, a window of both.
double ServingModel::seen_pairs(const Block& block, const PromptPart& part) {
  const double tokens = as_double(part.tokens);
  const double done = as_double(part.done);
  const double window = as_double(block.attention.window);
  const double growing =
      block.attention.window > 0 ? std::clamp(window - done, 0.0, tokens) : tokens;
  return growing * (done + (growing + 1) / 2) + (tokens - growing) * window;
}

// All prompts in one kernel of equal prompts with as many tokens and query-key pairs.
Seconds ServingModel::prompt_attention(const Block& block, const Iteration& iteration) const {
  if (iteration.prompts.empty() || block.attention.heads == 0) {
    return {};
  }
  double tokens = 0;
  double pairs = 0;
  double seen = 0;
  const std::int64_t window = block.attention.window;
  for (const PromptPart& part : iteration.prompts) {
    const std::int64_t before = window > 0 ? std::min(part.done, window) : part.done;
    tokens += as_double(part.tokens);
    pairs += as_double(part.tokens) * (as_double(before) + as_double(part.tokens + 1) / 2);
    seen += seen_pairs(block, part);
  }
  const models::AttentionInfo& info = block.attention;
  AttentionShape shape;
  shape.batch = static_cast<std::int64_t>(iteration.prompts.size());
  shape.heads = ceil_div(info.heads, layout_.tp);
  shape.kv_heads = ceil_div(std::max<std::int64_t>(1, info.kv_heads), layout_.tp);
  const double rows = tokens / as_double(shape.batch);
  shape.q_len = std::max<std::int64_t>(1, std::llround(rows));
  if (layout_.cp > 1) {  // each has its part of the keys of every query
    shape.kv_len = std::max<std::int64_t>(1, std::llround(seen / tokens / layout_.cp));
    shape.causal = false;
  } else {
    shape.kv_len =
        std::max<std::int64_t>(shape.q_len, std::llround(pairs / tokens + (rows - 1) / 2));
    shape.window = window;
  }
  shape.head_dim = info.head_dim;
  shape.value_head_dim = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim;
  shape.dtype = attends_in_fp8() ? DType::Fp8 : unquantised(plan_.precision);
  shape.flash_version = plan_.execution.flash_version;
  return costs_->blocks.device().attention_forward(shape) + expanded_latents(block, iteration);
}

// Latent attention of prompts works on keys and values of every head. Those of tokens before, found
// in the cache or computed in earlier iterations, are made of their latents again for every
// iteration: gathered, multiplied, the keys put together with their rotary part, and what comes of
// them merged with the attention to the new tokens (vLLM, v1/attention/backends/mla/common.py,
// _compute_prefill_context).
Seconds ServingModel::expanded_latents(const Block& block, const Iteration& iteration) const {
  const models::MlaSpec& mla = network().spec.mla;
  double earlier = 0;
  double queries = 0;  // that see any of them
  for (const PromptPart& part : iteration.prompts) {
    const std::int64_t window = block.attention.window;
    earlier += as_double(window > 0 ? std::min(part.done, window) : part.done);
    queries += part.done > 0 ? as_double(part.tokens) : 0.0;
  }
  if (mla.kv_lora_rank == 0 || earlier == 0) {
    return {};
  }
  const costmodel::DeviceModel& device = costs_->blocks.device();
  const ExpandedLatents of_token = expanded_token(network().spec, block, layout_.tp);
  const std::int64_t rows =
      std::max<std::int64_t>(1, std::llround(std::ceil(earlier / layout_.cp)));
  const double tokens = as_double(rows);
  const int width = element_bytes(models::Element::Compute, plan_.precision);
  const double copied = (width + cache_width()) * of_token.latents + width * of_token.joined;
  const double merged = 3.0 * queries * of_token.context;  // two read, one written
  const Seconds casts =
      is_quantised(plan_.precision)
          ? device.memory_bound(Bytes((width + 1) * tokens * as_double(mla.kv_lora_rank)),
                                MemoryKernel::Cast)
          : Seconds();
  return device.gemm({rows, of_token.columns, mla.kv_lora_rank, 1, plan_.precision, 2}) + casts +
         device.memory_bound(Bytes(tokens * copied), MemoryKernel::Copy) +
         device.memory_bound(Bytes(width * merged), MemoryKernel::Elementwise);
}

int ServingModel::layers_of(const Stage& stage) const {
  return static_cast<int>(std::count_if(stage.blocks.begin(), stage.blocks.end(), [&](int block) {
    return network().blocks[static_cast<std::size_t>(block)].kind == BlockKind::Layer;
  }));
}

// Both directions run together; host memory serves both. Of a layer with a window the keys in it
// come up.
Seconds ServingModel::host_copies(const Stage& stage, const Iteration& iteration) const {
  const double away = plan_.serving->options.host_cache;
  const WeightsHeld fetched = weights_fetched(stage.weights, plan_.execution.gathers_in_flight);
  double in = (fetched.host + fetched.disk).bytes().value();
  if (away == 0 && in == 0) {
    return {};
  }
  double read = as_double(iteration.keys);
  double windowed = as_double(iteration.windowed_keys);
  for (const PromptPart& part : iteration.prompts) {
    read += as_double(part.done);
    windowed += as_double(std::min(part.done, window_));
  }
  double out = 0;
  for (const int index : stage.blocks) {
    const Block& block = network().blocks[static_cast<std::size_t>(index)];
    if (block.kind == BlockKind::Layer) {
      const double each = away * kv_bytes(block) / layout_.cp;
      in += each * (block.attention.window > 0 ? windowed : read);
      out += each * as_double(iteration.tokens());
    }
  }
  const double link = tiers_.channels.front().bandwidth.value();
  const double host = tiers_.tiers[1].bandwidth.value();
  const Seconds time(std::max(std::max(in, out) / link, host > 0 ? (in + out) / host : 0.0));
  return fetched.disk > ByteCount()
             ? std::max(time, fetched.disk.bytes() / plan_.cluster.node.disk_bandwidth *
                                  static_cast<double>(plan_.cluster.node.gpus))
             : time;
}

}  // namespace orrery::plan
