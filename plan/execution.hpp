// SPDX-License-Identifier: Apache-2.0
// How a framework executes a plan: which kernels it has, what it overlaps, where it casts
// (docs/plan.md). By name: plan/execution_flags.hpp; as a document:
// plan/document/execution_json.hpp.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/units.hpp"

namespace orrery::plan {

// What the scale of an fp8 tensor is taken from (TransformerEngine common/recipe): the largest
// magnitudes of earlier passes; the tensor itself, in a pass of its own; every block of it, by the
// kernel that casts (mxfp8, blocks of Hopper).
enum class Fp8Scaling : std::uint8_t { Delayed, Current, Blocks };
// Ranks that, with delayed scaling, find largest magnitudes together after every pass: none, those
// of the model (tensor and context ranks, tp_only_amax_red of Megatron-Core), or all of a stage.
enum class AmaxRanks : std::uint8_t { None, Model, All };
// Which parts of a layer with experts `cuda_graphs` replays beside layers without: none, its router
// with the norm before it, those and its attention, or all of it, where shapes are static.
enum class GraphScope : std::uint8_t { Dense, Router, Attention, Layer };
// Whose kernels take the softmax of scores where attention is two products: Megatron's one of
// scale, mask and softmax, and PyTorch's where that takes no such scores; PyTorch's; or one that a
// compiler makes (XLA, torch.compile).
enum class Softmax : std::uint8_t { Megatron, Eager, Compiled };
// When FSDP gathers the next block's parameters in the backward: before this block's gradients are
// computed, after them, or only once this block's gradients have been reduced (torch.distributed
// .fsdp.BackwardPrefetch: BACKWARD_PRE, BACKWARD_POST, None).
enum class BackwardPrefetch : std::uint8_t { Pre, Post, None };

// Megatron-LM's usual values are the defaults.
struct Execution {
  // Attention.
  bool fused_attention = true;
  Softmax softmax = Softmax::Megatron;  // without that
  int flash_version = 0;                // FlashAttention 1 (Triton) or 2; 0: the GPU's best kernel
  // q, k, v are split from one tensor by copies, context is copied back.
  bool attention_copies = false;
  // Fused attention reads q, k, v in the projection's order: values and grouped queries alone are
  // copied, gradients are joined.
  bool projection_copies = false;
  bool repeated_heads = false;  // keys and values are copied to every query head first
  bool eager_ring = false;      // ring attention merges parts in fp32, as PyTorch does
  // It gathers keys and values at the first part and sends their gradients on in fp32 after each
  // (PyTorch).
  bool gathered_ring = false;
  // With full recomputation, backward reads what that gathered (torch.compile).
  bool reuses_gathered = false;
  bool overlap_context = true;  // its messages travel under the kernels of the parts
  // Attention on other devices gets the weights of queries, keys and values and their input, not
  // the product (HelixPipe).
  bool ships_weights = false;

  // Products, biases and what is elementwise.
  bool fused_kernels = true;        // bias + activation + dropout + residual in one kernel each
  bool fused_projections = true;    // q, k and v (gate and up) are one matrix product
  bool joins_gradients = false;     // kernels join those of its parts (autograd's split)
  bool fused_bias = true;           // in the epilogues of the GEMMs, its gradient too
  bool bias_gradient_sums = false;  // kernels sum the gradients of biases that the next kernel adds
  bool bias_gradients_apart = false;    // kernels sum the gradients of all biases (torch.nn.Linear)
  bool fused_grad_accumulation = true;  // weight-gradient GEMMs add to the gradient themselves
  bool cast_gradients = false;          // low-precision gradients are cast by a kernel, then added
  bool fp32_norms = false;         // norms read copies in fp32, as do their gradients: kernels cast
  bool reruns_norms = false;       // norms, and additions before them, run again in the backward
  bool eager_elementwise = false;  // RMS norm, rotary and gated activation as PyTorch's kernels

  // The token table and the loss.
  bool vocab_parallel = true;        // embedding, head and loss sharded over tp
  bool lookup_products = false;      // rows of a token table by products with one-hot tokens (XLA)
  bool fused_cross_entropy = false;  // one kernel; else Megatron's passes over fp32 logits in place
  bool eager_loss = false;           // PyTorch's kernels instead, with a copy of the logits each
  bool compiled_loss = false;  // those of Megatron-Core between its all-reduces are joined (jit)
  int loss_evaluations = 0;    // of every micro-batch, behind its backward: metrics of the training

  // fp8.
  Fp8Scaling fp8_scaling = Fp8Scaling::Delayed;
  AmaxRanks amax_ranks = AmaxRanks::All;
  bool fp8_gathers = true;      // sequence parallelism gathers what fp8 products read in fp8
  bool cast_transposes = true;  // by TransformerEngine's kernel of both in one pass
  bool norms_cast = true;       // norms write what fp8 products alone read
  bool casts_weights = false;   // for every micro-batch, not once a step
  bool fp8_inputs = true;       // products keep their inputs as they were cast
  bool fp8_attention = false;   // the forward of fused attention computes in fp8, too

  // Experts.
  // Router weights multiply the activations inside the experts; else what experts give back, which
  // is then kept for the weights' gradient.
  bool weighted_activations = true;
  bool overlap_shared_experts = false;  // shared experts run while routed tokens travel
  // What both say of a dispatcher stands in plan/dispatchers.hpp: a token goes once to each node
  // and rank, whatever experts it has there; the kernels that send tokens order them, too.
  bool deduplicated_dispatch = false;
  bool fused_permutation = false;
  // Tokens, and gradients of what experts give back, travel to the experts in 8 bits (DeepSeek-V3).
  bool quantised_dispatch = false;
  bool expert_kernels = false;     // products and casts of experts: kernels for each of them
  bool expert_padding = false;     // fp8: copies of tokens to padded rows of experts, and back
  bool eager_expert_bias = false;  // what experts give back gets its bias by PyTorch's kernels
  bool fused_experts = false;      // gate and casts between experts' products are in the products
  bool fused_router = false;       // TransformerEngine's kernels of the router
  double routing_imbalance = 1;    // tokens of the rank that gets most over the mean of the ranks

  // Tensor parallelism.
  bool overlap_tp = true;        // backward: collectives beside weight-gradient GEMMs
  bool stream_tp = false;        // collectives in pieces under their GEMM (user buffers, async TP)
  bool regathers_inputs = true;  // products' inputs, in the backward; else they are kept
  bool split_transfers = false;  // tp ranks each send a part of a boundary that all of them hold

  // Pipelines.
  bool overlap_p2p = true;
  bool serial_exchanges = false;  // without overlap_p2p: an activation, then a gradient; both wait
  bool synchronised_messages = false;  // without overlap_p2p: the host waits for the device, too
  // Devices update without meeting at the gradient norm (zero bubble).
  bool post_validation = false;

  // Data parallelism: buckets of gradients, ZeRO's shards.
  bool overlap_grad_reduce = true;     // buckets reduced while the last backward runs
  bool overlap_param_gather = true;    // ZeRO-1/2 gathers under the next forward, ZeRO-3 prefetch
  bool allreduce_gradients = false;    // ZeRO-1 sums whole gradients on every rank, no scatter
  bool broadcasts_parameters = false;  // ZeRO-1/2: every rank broadcasts its tensors, no gather
  // ZeRO-3: parameters out of the gathered buffer, gradients into that of the reduction (FSDP2).
  bool copies_gathered = false;
  bool flattens_gradients = false;    // ZeRO-3: gradients are joined, cast and divided (FSDP1)
  bool reshard_after_forward = true;  // ZeRO-3 frees gathered parameters between the passes
  bool quantised_gather = false;      // ZeRO++: parameters are gathered in 8 bits
  bool hierarchical_gather = false;   // ZeRO++: a second shard inside the node serves the backward
  bool quantised_reduce = false;      // ZeRO++: gradients are reduced in 4 bits by all-to-all
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;
  // ZeRO-3, and parameters that live elsewhere: whole blocks not yet freed; 0: any number.
  int gathers_in_flight = 2;
  int fetched_together = 1;             // of them, where parameters live elsewhere
  std::int64_t bucket_bytes = 0;        // gradient bucket; 0: one bucket a block
  std::int64_t first_bucket_bytes = 0;  // of each backward, where smaller; 0: as the others

  // States and the optimizer.
  bool fp32_gradients = true;     // accumulate and reduce gradients in fp32
  bool fp32_parameters = false;   // parameters are stored in fp32 and cast for use (FSDP)
  bool master_weights = true;     // fp32 copy in the optimizer
  bool copies_master = false;     // to the parameters, by a pass of its own after the optimizer's
  bool eager_optimizer = false;   // Adam as PyTorch's kernels, a pass each, instead of one
  bool delayed_update = false;    // a host's optimizer works under the next iteration, a step late
  int gradient_passes = 0;        // over the gradient buffer a step: cleared, scaled, checked
  int optimizer_state_bytes = 8;  // per parameter beside the master copy (Adam: two fp32 moments)

  // The host.
  bool blocking_launches = false;  // CUDA_LAUNCH_BLOCKING: it waits for every kernel
  bool cuda_graphs = false;        // a pass of a layer without experts is one launch of it
  GraphScope graph_scope = GraphScope::Dense;  // of layers with experts
  Seconds host_per_block;  // its time to issue one pass of a layer; bounds small layers

  bool operator==(const Execution&) const = default;
};

std::string_view to_text(Fp8Scaling scaling);         // "delayed", "current", "blocks"
std::string_view to_text(AmaxRanks ranks);            // "none", "model", "all"
std::string_view to_text(GraphScope scope);           // "dense", "router", "attention", "layer"
std::string_view to_text(Softmax softmax);            // "megatron", "eager", "compiled"
std::string_view to_text(BackwardPrefetch prefetch);  // "pre", "post", "none"
Fp8Scaling parse_fp8_scaling(std::string_view text, std::string_view where);
AmaxRanks parse_amax_ranks(std::string_view text, std::string_view where);
GraphScope parse_graph_scope(std::string_view text, std::string_view where);
Softmax parse_softmax(std::string_view text, std::string_view where);
BackwardPrefetch parse_backward_prefetch(std::string_view text, std::string_view where);

}  // namespace orrery::plan
