// SPDX-License-Identifier: Apache-2.0
#include "plan/serving_cost.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "plan/offload_time.hpp"
#include "plan/serving_cost_parts.hpp"
#include "plan/stage_memory.hpp"
#include "sim/share_curves.hpp"

namespace orrery::plan {
namespace {

using costmodel::AttentionShape;
using costmodel::MemoryKernel;
using models::Block;
using models::BlockKind;
using models::OpKind;

BlockPlan without_context(BlockPlan layout) {
  layout.cp = 1;
  return layout;
}

Plan without_training(const Plan& plan) {
  Plan serving = plan;
  models::NetworkSpec spec = plan.network.spec;
  spec.hidden_dropout = 0;
  spec.attention_dropout = 0;
  serving.network = models::build_network(spec, spec.name);
  return serving;
}

// FLOPs of a token are counted in an iteration of this size. Experts compute whole rows, rounded
// down to no less than half.
constexpr std::int64_t kBoundTokens = 4096;
constexpr double kExpertRounding = 0.5;
// A nano-batch has no fewer tokens (NanoFlow, section 4.1); smaller iterations run in turn.
constexpr std::int64_t kNanoTokens = 128;

double as_double(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

std::string_view to_text(ServingPart part) {
  constexpr std::array<std::string_view, kNumServingParts> kNames = {
      "gemm", "decode_attention", "prompt_attention", "network", "other"};
  return kNames[static_cast<std::size_t>(part)];
}

ServingModel::Costs::Costs(const Plan& plan)
    : blocks(without_training(plan)), linear(blocks.network().blocks.size()) {}

ServingModel::ServingModel(const Plan& plan) : ServingModel(plan, std::make_shared<Costs>(plan)) {}

ServingModel::ServingModel(const Plan& plan, const ServingModel& like)
    : ServingModel(plan, like.costs_) {
  ORRERY_CHECK(layout_ == like.layout_, "costs of another layout");
}

ServingModel::ServingModel(const Plan& plan, std::shared_ptr<Costs> costs)
    : plan_(plan),
      layout_(plan.blocks.front().layout),
      linear_layout_(without_context(layout_)),
      mesh_(mesh_of(linear_layout_, 1)),
      costs_(std::move(costs)) {
  auto position = network().chain.begin();
  for (const int count : plan.stage_blocks) {
    stages_.push_back({{position, position + count}});
    position += count;
  }
  for (const Block& block : network().blocks) {
    window_ = std::max(window_, block.attention.window);
  }
}

BlockContext ServingModel::context(int block, std::int64_t tokens) const {
  return {network().blocks[static_cast<std::size_t>(block)],
          linear_layout_,
          mesh_,
          {1, tokens},
          costs_->blocks.device(),
          costs_->blocks.collectives(),
          plan_.execution,
          plan_.precision,
          plan_.cluster.node.gpus};
}

ServingModel::LinearCost ServingModel::lower(int block, std::int64_t tokens) const {
  const BlockContext lowered = context(block, tokens);
  LinearCost cost;
  for (const Step& step : serving_steps(lowered)) {
    cost.flops += step.flops;
    (step.collective                      ? cost.network
     : step.cost_class == CostClass::Gemm ? cost.gemm
                                          : cost.other) += step.time;
  }
  const costmodel::DeviceModel& device = costs_->blocks.device();
  if (lowered.block.kind == BlockKind::Layer) {  // new keys and values are written to the cache
    cost.other += device.memory_bound(Bytes(2.0 * as_double(tokens) * kv_bytes(lowered.block)),
                                      MemoryKernel::Copy);
  } else if (lowered.block.kind == BlockKind::Head) {
    const double logits = as_double(tokens) * as_double(network().spec.vocab);
    const int bytes = element_bytes(models::Element::Compute, plan_.precision);
    cost.other += device.memory_bound(Bytes(4 * logits), MemoryKernel::Softmax);
    if (layout_.tp > 1 && plan_.execution.vocab_parallel) {
      cost.network += costs_->blocks.collectives().time(
          sim::CommKind::AllGather, Bytes(bytes * logits),
          group_of(mesh_, {Axis::Tensor}, plan_.cluster.node.gpus));
    }
  }
  return cost;
}

const ServingModel::LinearCost& ServingModel::linear(int block, std::int64_t tokens) {
  auto& known = costs_->linear[static_cast<std::size_t>(block)];
  const auto found = known.find(tokens);
  return found != known.end() ? found->second
                              : known.emplace(tokens, lower(block, tokens)).first->second;
}

double ServingModel::kv_bytes(const Block& block) const {
  return kv_elements(network().spec, block, layout_.tp) *
         element_bytes(models::Element::Compute, plan_.precision);
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
  const DType dtype = plan_.precision == DType::Fp8 ? DType::Bf16 : plan_.precision;
  const double rate =
      device.gpu().peak_of(dtype).value() * device.profile().attention.forward_fraction;
  const Seconds read =
      device.memory_bound(Bytes(keys * kv_bytes(block) + rows), MemoryKernel::Copy);
  return std::max(read, device.profile().attention.launch +
                            Seconds(2.0 * keys * core.heads * core.dims / rate));
}

// All prompts in one kernel of equal prompts with as many tokens and query-key pairs.
Seconds ServingModel::prompt_attention(const Block& block, const Iteration& iteration) const {
  if (iteration.prompts.empty() || block.attention.heads == 0) {
    return {};
  }
  double tokens = 0;
  double pairs = 0;
  const std::int64_t window = block.attention.window;
  for (const PromptPart& part : iteration.prompts) {
    const std::int64_t seen = window > 0 ? std::min(part.done, window) : part.done;
    tokens += as_double(part.tokens);
    pairs += as_double(part.tokens) * (as_double(seen) + as_double(part.tokens + 1) / 2);
  }
  const models::AttentionInfo& info = block.attention;
  AttentionShape shape;
  shape.batch = static_cast<std::int64_t>(iteration.prompts.size());
  shape.heads = ceil_div(info.heads, layout_.tp);
  shape.kv_heads = ceil_div(std::max<std::int64_t>(1, info.kv_heads), layout_.tp);
  const double rows = tokens / as_double(shape.batch);
  shape.q_len = std::max<std::int64_t>(1, std::llround(rows));
  const std::int64_t keys = std::llround(pairs / tokens + (rows - 1) / 2);
  shape.kv_len = std::max(shape.q_len, keys);
  if (layout_.cp > 1) {  // each has its part of the keys of every query
    shape.kv_len = ceil_div(shape.kv_len, layout_.cp);
    shape.causal = false;
  }
  shape.head_dim = info.head_dim;
  shape.value_head_dim = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim;
  shape.window = window;
  shape.dtype = plan_.precision == DType::Fp8 ? DType::Bf16 : plan_.precision;
  shape.flash_version = plan_.execution.flash_version;
  return costs_->blocks.device().attention_forward(shape);
}

Seconds ServingModel::merge_time(const Block& block, const Iteration& iteration) const {
  if (layout_.cp == 1 || block.attention.heads == 0) {
    return {};
  }
  const CacheAttention core = cache_attention(network().spec, block, layout_.tp);
  const int element = element_bytes(models::Element::Compute, plan_.precision);
  const double dims = as_double(block.attention.value_head_dim > 0 ? block.attention.value_head_dim
                                                                   : block.attention.head_dim);
  const double bytes =
      as_double(iteration.tokens()) * core.heads * (dims * element + sizeof(float));
  const Mesh mesh = mesh_of(layout_, 1);
  return costs_->blocks.collectives().time(
      sim::CommKind::AllReduce, Bytes(bytes),
      group_of(mesh, {Axis::Context}, plan_.cluster.node.gpus));
}

int ServingModel::layers_of(const Stage& stage) const {
  return static_cast<int>(std::count_if(stage.blocks.begin(), stage.blocks.end(), [&](int block) {
    return network().blocks[static_cast<std::size_t>(block)].kind == BlockKind::Layer;
  }));
}

// Both directions run together; host memory serves both.
Seconds ServingModel::cache_copies(int stage, const Iteration& iteration) const {
  const double away = plan_.serving->options.host_cache;
  if (away == 0) {
    return {};
  }
  double read = as_double(iteration.keys);
  for (const PromptPart& part : iteration.prompts) {
    read += as_double(part.done);
  }
  double in = 0;
  double out = 0;
  for (const int index : stages_[static_cast<std::size_t>(stage)].blocks) {
    const Block& block = network().blocks[static_cast<std::size_t>(index)];
    if (block.kind == BlockKind::Layer) {
      const double each = away * kv_bytes(block) / layout_.cp;
      in += each * read;
      out += each * as_double(iteration.tokens());
    }
  }
  const sim::TierGraph tiers = tier_graph(plan_.cluster, plan_.profile);
  const double link = tiers.channels.front().bandwidth.value();
  const double host = tiers.tiers[1].bandwidth.value();
  return Seconds(std::max(std::max(in, out) / link, (in + out) / host));
}

IterationCost ServingModel::cost(int stage, const Iteration& iteration) {
  const std::int64_t tokens = iteration.tokens();
  const std::int64_t parts =
      std::clamp<std::int64_t>(tokens / kNanoTokens, 1, plan_.serving->options.nano_batches);
  IterationCost cost;
  int last = -1;  // blocks of a stage come in runs of equal ones
  IterationCost one;
  for (const int index : stages_[static_cast<std::size_t>(stage)].blocks) {
    const Block& block = network().blocks[static_cast<std::size_t>(index)];
    if (index != last) {
      one = {};
      const bool is_head = block.kind == BlockKind::Head;
      const std::int64_t rows = is_head ? iteration.sampled : tokens;
      if (rows > 0) {
        const LinearCost& linear_cost = linear(index, ceil_div(rows, parts));
        const auto times = static_cast<double>(parts);
        one.of(ServingPart::Gemm) = linear_cost.gemm * times;
        one.of(ServingPart::Network) = linear_cost.network * times + merge_time(block, iteration);
        one.of(ServingPart::Other) = linear_cost.other * times;
        one.of(ServingPart::Decode) = decode_attention(block, iteration);
        one.of(ServingPart::Prompt) = prompt_attention(block, iteration);
      }
      last = index;
    }
    for (std::size_t part = 0; part < kNumServingParts; ++part) {
      cost.parts[part] += one.parts[part];
    }
  }
  const Seconds alone = cost.of(ServingPart::Prompt) + cost.of(ServingPart::Other) +
                        plan_.serving->options.host_per_iteration;
  if (parts > 1) {
    cost.time = alone + sim::nano_batch_sharing().time({cost.of(ServingPart::Gemm),
                                                        cost.of(ServingPart::Decode),
                                                        cost.of(ServingPart::Network)});
  } else {
    cost.time = alone + cost.of(ServingPart::Gemm) + cost.of(ServingPart::Decode) +
                cost.of(ServingPart::Network);
  }
  cost.time = std::max(cost.time, cache_copies(stage, iteration));
  return cost;
}

Seconds ServingModel::transfer(int stage, const Iteration& iteration) const {
  const int stages = num_stages();
  const int ranks = layout_.tp * layout_.cp * plan_.dp;
  const int next = (stage + 1) % stages;
  const int per_node = plan_.cluster.node.gpus;
  const bool same_node = stage * ranks / per_node == (next * ranks + ranks - 1) / per_node;
  const int width = element_bytes(models::Element::Compute, plan_.precision);
  const double bytes = next == 0 ? 8.0 * as_double(iteration.sampled)
                                 : as_double(iteration.tokens() * network().spec.hidden) * width;
  return costs_->blocks.collectives().send_receive(Bytes(std::max(1.0, bytes)), same_node,
                                                   std::min(ranks, per_node));
}

std::vector<ServingMemory> ServingModel::memory() {
  std::int64_t tokens = plan_.serving->options.token_budget;
  if (plan_.serving->options.prefill == Prefill::Separate) {
    tokens = std::max(tokens, plan_.sequence);  // a prompt is computed whole
  }
  const std::int64_t sampled = std::min(tokens, plan_.serving->options.max_requests);
  const BlockRules rules = rules_of(layout_, plan_.execution.vocab_parallel);
  std::vector<ServingMemory> result;
  for (const Stage& stage : stages_) {
    ServingMemory memory;
    double kv = 0;
    double parameters = 0;
    bool embeds = false;
    for (const int index : stage.blocks) {
      const Block& block = network().blocks[static_cast<std::size_t>(index)];
      const bool is_layer = block.kind == BlockKind::Layer;
      const int width = is_layer ? bytes_per_element(plan_.precision)
                                 : element_bytes(models::Element::Param, plan_.precision);
      for (const StateGroup& group : state_groups(block, rules, mesh_)) {
        parameters += group.tied && embeds ? 0 : as_double(group.elements) * width;
      }
      embeds = embeds || block.kind == BlockKind::Embedding;
      kv += is_layer ? kv_bytes(block) / layout_.cp : 0;
      memory.workspace = std::max(
          memory.workspace, workspace(index, block.kind == BlockKind::Head ? sampled : tokens));
    }
    memory.parameters = ByteCount(static_cast<std::int64_t>(parameters));
    const double away = plan_.serving->options.host_cache;
    const double staged = std::min(1.0, 2.0 / std::max(1, layers_of(stage)));  // two buffers
    memory.kv_per_token =
        ByteCount(static_cast<std::int64_t>(std::ceil(kv * (1 - away * (1 - staged)))));
    memory.context = context_bytes();
    memory.communication = communicator_bytes(plan_);
    memory.cache = plan_.cluster.gpu.memory - plan_.memory_reserve - memory.parameters -
                   memory.workspace - memory.context - memory.communication;
    const std::int64_t each = std::max<std::int64_t>(1, memory.kv_per_token.value());
    memory.kv_tokens = std::max<std::int64_t>(0, memory.cache.value() / each);
    if (away > 0) {
      const topologies::Node& node = plan_.cluster.node;
      const double host = as_double(node.host_memory.value()) / node.gpus;
      memory.kv_tokens =
          std::min(memory.kv_tokens, static_cast<std::int64_t>(host / std::max(1.0, kv * away)));
    }
    memory.kv_tokens -= memory.kv_tokens % plan_.serving->options.cache_block;  // whole pages
    memory.host_cache =
        ByteCount(static_cast<std::int64_t>(as_double(memory.kv_tokens) * kv * away));
    result.push_back(memory);
  }
  return result;
}

ByteCount ServingModel::workspace(int block, std::int64_t tokens) const {
  return live_activations(context(block, tokens));
}

Seconds ServingModel::busy_bound(std::int64_t tokens, std::int64_t keys) {
  const topologies::Gpu& gpu = plan_.cluster.gpu;
  const double rate = gpu.peak_of(plan_.precision).value();
  double longest = 0;
  for (const Stage& stage : stages_) {
    double flops = 0;
    double bytes = 0;
    for (const int index : stage.blocks) {
      const Block& block = network().blocks[static_cast<std::size_t>(index)];
      if (block.kind == BlockKind::Layer) {
        flops += linear(index, kBoundTokens).flops.value() / as_double(kBoundTokens) *
                 (block.experts > 0 ? kExpertRounding : 1.0);
        bytes += block.attention.window > 0 ? 0 : kv_bytes(block) / layout_.cp;
      }
    }
    const double compute = flops * as_double(tokens) / rate;
    const double memory = bytes * as_double(keys) / gpu.hbm_bandwidth.value();
    longest = std::max(longest, plan_.serving->options.nano_batches > 1 ? std::max(compute, memory)
                                                                        : compute + memory);
  }
  return Seconds(longest);
}

}  // namespace orrery::plan
