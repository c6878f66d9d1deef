// SPDX-License-Identifier: Apache-2.0
// What an iteration of serving costs a pipeline stage, and what its KV cache holds. The network is
// that of training without dropout and loss: every operator but attention is lowered by the layout
// rules for the tokens of the iteration (block/steps.hpp), so tensor parallelism, experts and
// vocabulary sharding need nothing of their own. Attention reads the cache:
//
//   decode   max(bytes of the cached keys and values / copy bandwidth, FLOPs / attention rate)
//   prompt   fused attention of the new tokens over all tokens so far, all prompts in one kernel
//
// A cache in 8 bits is written by a cast and widened by the kernel that reads it; with
// fp8_attention the products are in fp8, queries cast by what makes them (vLLM,
// csrc/cache_kernels.cu, docs/features/quantization/quantized_kvcache.md). Grouped-query heads that
// tp exceeds are replicated. Latent attention (MLA) decodes on the latents themselves, which every
// rank holds whole; prompts make keys and values of all heads of them. The head works on sampled
// tokens only. With n nano-batches GEMMs and collectives run n times on 1/n of the tokens, and
// compute, decode attention and network share the GPU (sim/engine/share_curves.hpp). Engines replay
// CUDA graphs: the host bounds nothing but `host_per_iteration`. Context ranks split the cached
// tokens of every request: each attends to its part, and the partial results are merged by an
// all-reduce (flash decoding); everything else they compute alike. Tokens on the host are fetched
// layer by layer under the layers before, new ones go there the other way. Parameters elsewhere
// pass through a window (serving/weights.hpp).
//
// Experts may be spread over the ranks of several replicas, which then compute in step: each has
// its attention, cache and requests, tokens travel to the experts of all and back (the conversions
// of the layout rules), and every block waits for the slowest (DeepSeek-V3, arXiv 2412.19437,
// section 3.4; docs.vllm.ai, data parallel deployment). Costs are kept by number of tokens;
// O(prompts) an iteration.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/serving/batching.hpp"
#include "plan/serving/messages.hpp"
#include "plan/serving/weights.hpp"

namespace orrery::plan {

enum class ServingPart : std::uint8_t { Gemm, Decode, Prompt, Network, Other, HostCopies };
inline constexpr int kNumServingParts = 6;
std::string_view to_text(ServingPart part);  // "gemm", "decode_attention", ...

struct IterationCost {
  Seconds time;
  // As if they ran one after the other; of copies what all others do not hide.
  std::array<Seconds, kNumServingParts> parts;
  Seconds& of(ServingPart part) { return parts[static_cast<std::size_t>(part)]; }
  Seconds of(ServingPart part) const { return parts[static_cast<std::size_t>(part)]; }
};

// Bytes on one device of a stage.
struct ServingMemory {
  ByteCount parameters;     // with a window of those that live elsewhere
  ByteCount workspace;      // activations of the largest iteration and its logits
  ByteCount communication;  // NCCL buffers
  ByteCount context;        // CUDA context
  ByteCount cache;          // what is left for keys and values; negative: it does not fit
  ByteCount host_cache;     // keys and values that live on the host when the cache is full
  ByteCount host_parameters;
  ByteCount disk_parameters;
  ByteCount kv_per_token;
  std::int64_t kv_tokens = 0;        // that the cache holds of all layers
  std::int64_t longest_request = 0;  // more, where layers with a window free what is behind it
};

// Keys and values that a layer holds for one device when the cache is full.
struct LayerCache {
  std::int64_t tokens = 0;  // of all requests of a group: what the fullest stage has room for
  ByteCount bytes;          // of its part of them, on the device and on the host
  bool by_heads = false;    // tensor ranks have heads of their own
};

class ServingModel {
 public:
  explicit ServingModel(const Plan& plan);  // a plan with `serving`
  // Shares the costs of another model, whose plan differs in pp, dp, where parameters live and
  // `serving` at most, and there not in `all_reduce` and `fp8_cache`, and in
  // whether shared experts overlap.
  ServingModel(const Plan& plan, const ServingModel& like);
  // For the same plan on another thread: knows the costs that this one and its like have found out,
  // and adds its own to them.
  ServingModel on_another_thread() const;

  int num_stages() const { return static_cast<int>(stages_.size()); }
  // Layers with a window, by what every stage has of them; all is kept where the host holds part.
  SlidingLayers sliding_layers() const;
  int replicas() const { return replicas_; }  // in step
  // Of the replicas in step, an iteration of each.
  IterationCost cost(int stage, std::span<const Iteration> iterations);
  IterationCost cost(int stage, const Iteration& iteration) {
    return cost(stage, std::span(&iteration, 1));
  }
  Seconds transfer(int stage, const Iteration& iteration) const;
  std::vector<ServingMemory> memory();
  std::optional<LayerCache> layer_cache(int block);  // of a block that has keys and values
  // Tokens of the largest iteration that a replica forms; of the head those it samples.
  std::int64_t most_tokens(int block) const;
  // A block as the layout rules see it where every replica in step has so many tokens.
  BlockContext context(int block, std::int64_t tokens) const;
  // Its collectives then, those that merge attention of context ranks and gather logits with them.
  std::vector<Step> collectives(int block, std::int64_t tokens) const;
  // Least seconds that `tokens` computed tokens, whose decodes read `keys` cached tokens, keep the
  // busiest stage busy, in whatever iterations: peak rates alone.
  Seconds busy_bound(std::int64_t tokens, std::int64_t keys);
  // No iteration takes less on all stages: parameters that come over the link to the host.
  Seconds fetch_bound() const;

 private:
  // Of a block for a number of tokens, without attention.
  struct LinearParts {
    Seconds gemm;
    Seconds network;
    Seconds other;
    Flops flops;
  };
  struct LinearCost {
    LinearParts own;      // all of it but for experts that replicas share
    LinearParts experts;  // when every replica has so many tokens
    Seconds exchange;     // dispatch and combination between replicas
    Seconds hidden;       // of that, under shared experts
  };
  // Of an iteration without attention: depends on the numbers of its tokens alone.
  struct FixedCost {
    std::int64_t sampled = -1;
    Seconds gemm;
    Seconds network;
    Seconds other;
  };
  struct Stage {
    std::vector<int> blocks;             // of the chain
    std::vector<FixedCost> fixed;        // the last one asked for, by tokens
    std::vector<ServedWeights> weights;  // by block; empty where all stay on the device
  };
  // Costs of fewer tokens are found by a look at a table.
  static constexpr std::int64_t kRememberedTokens = 1 << 17;
  // Of all threads.
  struct FoundCosts {
    std::mutex mutex;
    std::vector<std::unordered_map<std::int64_t, LinearCost>> linear;  // by block, by tokens
  };
  // What depends on network, cluster and layout alone.
  struct Costs {
    Costs(const Plan& plan, std::shared_ptr<FoundCosts> all);
    BlockCosts blocks;
    std::shared_ptr<FoundCosts> found;
    std::vector<std::vector<const LinearCost*>> known;  // of these, by block, by tokens
  };
  ServingModel(const Plan& plan, std::shared_ptr<Costs> costs);
  const LinearCost& linear(int block, std::int64_t tokens);
  LinearCost lower(int block, std::int64_t tokens) const;
  Seconds hidden_exchange(const BlockContext& lowered) const;
  const LinearCost& find_linear(int block, std::int64_t tokens);
  const models::Network& network() const { return costs_->blocks.network(); }
  FixedCost fixed_cost(const Stage& stage, const Iteration& iteration, std::int64_t parts);
  const FixedCost& known_fixed_cost(Stage& stage, const Iteration& iteration, std::int64_t parts);
  IterationCost cost_alone(Stage& stage, const Iteration& iteration, std::int64_t parts);
  IterationCost cost_in_step(const Stage& stage, std::span<const Iteration> iterations,
                             std::int64_t parts);
  IterationCost own_cost(int index, const Iteration& iteration, std::int64_t parts);
  void add_experts(int index, std::span<const Iteration> iterations, std::int64_t parts,
                   IterationCost& cost);
  IterationCost block_cost(int index, std::span<const Iteration> iterations, std::int64_t parts);
  // What the blocks' own time leaves of an iteration's copies is added to it.
  void add_copies(Stage& stage, std::span<const Iteration> iterations, std::int64_t parts,
                  IterationCost& cost);
  Seconds decode_attention(const models::Block& block, const Iteration& iteration) const;
  static double seen_pairs(const models::Block& block, const PromptPart& part);
  Seconds prompt_attention(const models::Block& block, const Iteration& iteration) const;
  // Keys and values of all heads, made of the latents of earlier tokens of the prompts.
  Seconds expanded_latents(const models::Block& block, const Iteration& iteration) const;
  Seconds collective_time(sim::CommKind kind, Bytes bytes,
                          const costmodel::GroupShape& group) const;
  MessageLinks messages() const;
  // All-reduce that merges the partial attention of context ranks, if there are several.
  std::optional<Step> merge(const models::Block& block, std::int64_t decoded,
                            std::int64_t prompted) const;
  Seconds merge_time(const models::Block& block, const Iteration& iteration) const;
  // All-gather of the head's logits, if tensor ranks have parts of them.
  std::optional<Step> gather_of_logits(const models::Block& block, std::int64_t tokens) const;
  // Copies between host and device for all blocks of a stage, of cache and parameters.
  Seconds host_copies(const Stage& stage, const Iteration& iteration) const;
  std::vector<double> parameter_bytes(const Stage& stage) const;
  int layers_of(const Stage& stage) const;
  // Of one token of a layer on one device, or over the context ranks: keys and values.
  double kv_bytes(const models::Block& block) const;
  int cache_width() const;  // bytes of an element
  bool attends_in_fp8() const;
  ByteCount workspace(int block, std::int64_t tokens) const;
  // What expanded_latents() needs while attention runs.
  ByteCount expansion_bytes(const models::Block& block) const;

  Plan plan_;
  BlockPlan layout_;
  BlockPlan linear_layout_;  // of all operators but attention: context ranks do the same
  int replicas_ = 1;         // in step
  Mesh mesh_;
  std::shared_ptr<Costs> costs_;
  std::int64_t window_ = 0;
  sim::TierGraph tiers_;
  std::vector<Stage> stages_;
};

}  // namespace orrery::plan
