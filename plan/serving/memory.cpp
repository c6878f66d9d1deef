// SPDX-License-Identifier: Apache-2.0
// What a stage of a serving plan holds, and the least time that its device takes.
#include "plan/block/memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/math.hpp"
#include "plan/serving/cost.hpp"
#include "plan/serving/cost_parts.hpp"
#include "plan/stage/memory.hpp"

namespace orrery::plan {
namespace {

using models::Block;
using models::BlockKind;

// FLOPs of a token are counted in an iteration of this size. Experts compute whole rows, rounded
// down to no less than half.
constexpr std::int64_t kBoundTokens = 4096;
constexpr double kExpertRounding = 0.5;

// Tokens whose latents are expanded at once: of so many whole requests, or pages of every request.
constexpr std::int64_t kExpandedRequests = 8;
constexpr std::int64_t kExpandedPages = 4;
constexpr std::int64_t kMostExpanded = 65536;

bool share_prefixes(const RequestSpec& requests) {
  const std::vector<Request>& trace = requests.trace;
  return trace.empty() ? requests.prefixes.count > 0
                       : std::any_of(trace.begin(), trace.end(),
                                     [](const Request& one) { return one.prefix >= 0; });
}

}  // namespace

int ServingModel::cache_width() const {
  return plan_.serving->options.fp8_cache
             ? 1
             : element_bytes(models::Element::Compute, plan_.precision);
}

double ServingModel::kv_bytes(const Block& block) const {
  return kv_elements(network().spec, block, layout_.tp) * cache_width();
}

// By block; the head has none of its own where tied weights are those of an embedding that stays on
// the device.
std::vector<double> ServingModel::parameter_bytes(const Stage& stage) const {
  const BlockRules rules = rules_of(layout_, plan_.execution.vocab_parallel);
  std::vector<double> bytes;
  bool embeds = false;
  for (const int index : stage.blocks) {
    const Block& block = network().blocks[static_cast<std::size_t>(index)];
    const double width = block.kind == BlockKind::Layer
                             ? bytes_per_element(plan_.precision)
                             : element_bytes(models::Element::Param, plan_.precision);
    bytes.push_back(0);
    for (const StateGroup& group : state_groups(block, rules, mesh_)) {
      bytes.back() += group.tied && embeds ? 0 : as_double(group.elements) * width;
    }
    const std::size_t position = bytes.size() - 1;
    const bool stays = stage.weights.empty() || stage.weights[position].home == Tier::Device;
    embeds = embeds || (block.kind == BlockKind::Embedding && stays);
  }
  return bytes;
}

std::vector<ServingMemory> ServingModel::memory() {
  const SlidingLayers sliding = sliding_layers();
  const bool whole = share_prefixes(plan_.serving->requests);  // of prefixes all is kept
  std::vector<ServingMemory> result;
  for (const Stage& stage : stages_) {
    ServingMemory memory;
    double kv = 0;
    for (const int index : stage.blocks) {
      const Block& block = network().blocks[static_cast<std::size_t>(index)];
      kv += block.kind == BlockKind::Layer ? kv_bytes(block) / layout_.cp : 0;
      memory.workspace = std::max(memory.workspace, workspace(index, most_tokens(index)));
    }
    if (stage.weights.empty()) {
      const std::vector<double> bytes = parameter_bytes(stage);
      memory.parameters =
          ByteCount(static_cast<std::int64_t>(std::accumulate(bytes.begin(), bytes.end(), 0.0)));
    } else {
      const WeightsHeld held = weights_held(stage.weights, plan_.execution.gathers_in_flight);
      memory.parameters = held.device;
      memory.host_parameters = held.host;
      memory.disk_parameters = held.disk;
    }
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
      const double host = std::max(0.0, as_double(node.host_memory.value()) / node.gpus -
                                            as_double(memory.host_parameters.value()));
      memory.kv_tokens =
          std::min(memory.kv_tokens, static_cast<std::int64_t>(host / std::max(1.0, kv * away)));
    }
    memory.kv_tokens -= memory.kv_tokens % plan_.serving->options.cache_block;  // whole pages
    memory.host_cache =
        ByteCount(static_cast<std::int64_t>(as_double(memory.kv_tokens) * kv * away));
    memory.longest_request =
        whole ? memory.kv_tokens
              : CachePages(plan_.serving->options.cache_block, memory.kv_tokens, sliding).longest();
    result.push_back(memory);
  }
  return result;
}

std::optional<LayerCache> ServingModel::layer_cache(int index) {
  const Block& block = network().blocks[static_cast<std::size_t>(index)];
  if (block.kind != BlockKind::Layer || block.attention.heads == 0) {
    return std::nullopt;
  }
  LayerCache cache;
  cache.tokens = std::numeric_limits<std::int64_t>::max();
  for (const ServingMemory& stage : memory()) {
    cache.tokens = std::min(cache.tokens, stage.kv_tokens);
  }
  cache.bytes =
      ByteCount(static_cast<std::int64_t>(as_double(cache.tokens) * kv_bytes(block) / layout_.cp));
  cache.by_heads =
      kv_elements(network().spec, block, layout_.tp) < kv_elements(network().spec, block, 1);
  return cache;
}

// Logits that tensor ranks have parts of are gathered beside these.
ByteCount ServingModel::workspace(int block, std::int64_t tokens) const {
  const BlockContext lowered = context(block, tokens);
  const ByteCount live = live_activations(lowered, expansion_bytes(lowered.block));
  const std::optional<Step> gather = gather_of_logits(lowered.block, tokens);
  if (!gather) {
    return live;
  }
  const double parts = gather->bytes.value() * (1.0 + 1.0 / layout_.tp);
  return std::max(live, ByteCount(static_cast<std::int64_t>(std::ceil(parts))));
}

// Latents as they are gathered, keys without their rotary part and values, and whole keys. Longer
// contexts are expanded in parts (vLLM, v1/attention/backends/mla/common.py,
// determine_chunked_prefill_workspace_size).
ByteCount ServingModel::expansion_bytes(const Block& block) const {
  const Serving& serving = *plan_.serving;
  const ServingOptions& options = serving.options;
  const bool finds_prefixes = options.prefix_hits > 0 || share_prefixes(serving.requests);
  if (network().spec.mla.kv_lora_rank == 0 ||
      (options.prefill == Prefill::Separate && !finds_prefixes)) {
    return {};
  }
  const std::int64_t pages = options.max_requests * options.cache_block;
  const std::int64_t tokens = std::max(
      pages, std::min(kMostExpanded,
                      std::max(kExpandedRequests * plan_.sequence, kExpandedPages * pages)));
  const ExpandedLatents token = expanded_token(network().spec, block, layout_.tp);
  const double elements = token.latents + as_double(token.columns) + token.keys;
  return ByteCount(static_cast<std::int64_t>(
      std::ceil(as_double(ceil_div(tokens, std::int64_t{layout_.cp})) * elements *
                element_bytes(models::Element::Compute, plan_.precision))));
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
        const LinearCost& cost = linear(index, kBoundTokens);
        flops += (cost.own.flops + cost.experts.flops).value() / as_double(kBoundTokens) *
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

Seconds ServingModel::fetch_bound() const {
  Seconds sum;
  for (const Stage& stage : stages_) {
    sum += host_copies(stage, Iteration());
  }
  return sum;
}

}  // namespace orrery::plan
