// SPDX-License-Identifier: Apache-2.0
// A Plan: every decision about one training run, complete and self-contained (docs/plan.md).
// It embeds its network, cluster and profile, so that simulating it needs no other file and gives
// the searched time bit for bit. Degrees multiply: gpus = tp x cp x dp x pp; the expert-parallel
// degree divides the data ranks, times tp with expert_tp = 1 and cp with expert_cp = 1.
// Rank order, fastest first: tp, cp, ep (the inner part of dp), dp, pp; ep_inside moves ep.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/json.hpp"
#include "costmodel/profile.hpp"
#include "models/network.hpp"
#include "plan/offload.hpp"
#include "plan/operator_set.hpp"
#include "plan/tensor_shares.hpp"
#include "topologies/cluster.hpp"

namespace orrery::sim {
struct ScheduleDocument;
}

namespace orrery::plan {

// Selective drops the attention core; Products keeps the outputs of attention and of every second
// matrix product and recomputes the rest (torchtitan's per-operator checkpointing); Operators are
// those that BlockPlan::recomputed names.
enum class Recompute : std::uint8_t { None, Selective, Full, Products, Operators };
// Mix: Ulysses over the first ulysses_degree ranks of the context axis, ring over the others.
enum class ContextParallel : std::uint8_t { Ring, AllGather, Ulysses, Mix };
// How the tp ranks are arranged and which variables each of their axes takes (block_rules.cpp):
// columns (Megatron); rows x columns (SUMMA, Optimus); with depth replicas of the weights
// (Tesseract); a cube (Bian et al.).
enum class TensorMesh : std::uint8_t { OneD, TwoD, TwoAndHalfD, ThreeD };
// An axis of such a mesh.
enum class TensorAxis : std::uint8_t { Columns, Rows, Depth };
// Where the replicas that experts are spread over are counted: tp, cp, ep, dp (Data), tp, ep, cp,
// dp (Context) or ep, tp, cp, dp (Tensor), the fastest first.
enum class ExpertsInside : std::uint8_t { Data, Context, Tensor };
// How a mesh of rows and columns broadcasts a piece: in chunks along a ring, as NCCL does, or over
// a binomial tree, which Optimus counts: ceil(log2 n) rounds of the whole piece.
enum class Broadcasts : std::uint8_t { Pipelined, Binomial };
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

// Variables that an axis of this block takes instead of those that its degree stands for, in order
// of preference; packed, because plans are copied and compared by the million. Zero: as usual.
class VarList {
 public:
  static constexpr int kMax = 7;
  constexpr VarList() = default;
  explicit VarList(const std::vector<models::Var>& vars);
  bool empty() const { return code_ == 0; }
  std::vector<models::Var> vars() const;
  std::uint32_t code() const { return code_; }
  bool operator==(const VarList&) const = default;

 private:
  std::uint32_t code_ = 0;
};

// Layout of a run of consecutive blocks (positions of Network::chain).
struct BlockPlan {
  int tp = 1;
  int cp = 1;
  int ep = 1;
  int expert_tp = 0;  // 0: as tp; 1: experts are spread over the tensor-parallel ranks, too
  bool sequence_parallel = false;
  ContextParallel context = ContextParallel::Ring;
  std::int8_t expert_cp = 0;  // 1: experts are spread over the context-parallel ranks, too; else 0
  ExpertsInside ep_inside = ExpertsInside::Data;
  int zero_stage = 0;
  int shard_degree = 0;  // ZeRO group size; 0: all data-parallel ranks; smaller: HSDP
  Recompute recompute = Recompute::None;
  OperatorSet recomputed{};  // of Recompute::Operators
  Offload offload{};         // tensors that leave the device
  TensorMesh tensor_parallel = TensorMesh::OneD;
  TensorMesh mesh() const { return tp > 1 ? tensor_parallel : TensorMesh::OneD; }
  int tp_rows = 0;   // of the tp mesh; 0: a square of rows and columns (3d: a cube)
  int tp_depth = 0;  // 0: 1, in a cube as rows
  // The axis of the tp mesh whose ranks are neighbours; the others follow as columns, rows, depth.
  TensorAxis tp_inner = TensorAxis::Columns;
  bool keep_gathered = false;  // inputs and weights gathered in the forward wait for the backward
  Broadcasts broadcasts = Broadcasts::Pipelined;  // of SUMMA
  int ulysses_degree = 1;  // of a mix: ranks of cp that trade tokens for heads
  bool zigzag = true;      // causal ring: rank i has chunks i and 2cp - 1 - i of the sequence
  std::array<VarList, 8> variables{};  // by axis (plan/layout.hpp)
  TensorShares tensor_shares{};        // of heads, widths and vocabulary by tp rank; empty: equal
  // With shares, the rank whose bytes are meant; -1: the one that holds most. No part of a
  // document.
  std::int8_t tensor_rank = -1;
  bool operator==(const BlockPlan&) const = default;
};

struct BlockRun {
  int count = 0;  // consecutive chain positions
  BlockPlan layout;
  bool operator==(const BlockRun&) const = default;
};

// Execution choices of the framework, with Megatron-LM's usual values as defaults.
struct Execution {
  bool fused_attention = true;
  Softmax softmax = Softmax::Megatron;  // without that
  int flash_version = 0;                // FlashAttention 1 (Triton) or 2; 0: the GPU's best kernel
  bool fused_kernels = true;            // bias + activation + dropout + residual in one kernel each
  bool fused_bias = true;               // in the epilogues of the GEMMs, its gradient too
  bool bias_gradient_sums = false;  // kernels sum the gradients of biases that the next kernel adds
  bool bias_gradients_apart = false;    // kernels sum the gradients of all biases (torch.nn.Linear)
  bool fused_grad_accumulation = true;  // weight-gradient GEMMs add to the gradient themselves
  bool cast_gradients = false;          // low-precision gradients are cast by a kernel, then added
  bool attention_copies =
      false;  // q, k, v are split from one tensor by copies, context is copied back
  bool projection_copies =
      false;  // fused attention reads q, k, v in the projection's order: values
              // and grouped queries alone are copied, gradients are joined
  bool fused_cross_entropy = false;  // one kernel; else Megatron's passes over fp32 logits in place
  int loss_evaluations = 0;  // of every micro-batch, behind its backward: metrics of the training
  bool eager_loss = false;   // PyTorch's kernels instead, with a copy of the logits each
  bool lookup_products = false;  // rows of a token table by products with one-hot tokens (XLA)
  bool compiled_loss = false;    // those of Megatron-Core between its all-reduces are joined (jit)
  bool fp32_norms = false;       // norms read copies in fp32, as do their gradients: kernels cast
  bool reruns_norms = false;     // norms, and additions before them, run again in the backward
  bool eager_elementwise = false;  // RMS norm, rotary and gated activation as PyTorch's kernels
  bool repeated_heads = false;     // keys and values are copied to every query head first
  bool eager_ring = false;         // ring attention merges parts in fp32, as PyTorch does
  bool gathered_ring = false;      // it gathers keys and values at the first part and sends their
                                   // gradients on in fp32 after each (PyTorch)
  bool reuses_gathered = false;    // with full recomputation, backward reads what that gathered
                                   // (torch.compile)
  bool overlap_context = true;     // its messages travel under the kernels of the parts
  bool regathers_inputs = true;    // products' inputs, in the backward; else they are kept
  bool fp8_gathers = true;         // sequence parallelism gathers what fp8 products read in fp8
  bool cast_transposes = true;     // fp8: by TransformerEngine's kernel of both in one pass
  bool norms_cast = true;          // fp8: norms write what fp8 products alone read
  bool casts_weights = false;      // fp8: for every micro-batch, not once a step
  bool fp8_inputs = true;          // fp8: products keep their inputs as they were cast
  bool fp8_attention = false;      // fp8: the forward of fused attention computes in fp8, too
  // Router weights multiply the activations inside the experts; else what experts give back, which
  // is then kept for the weights' gradient.
  bool weighted_activations = true;
  bool fused_projections = true;       // q, k and v (gate and up) are one matrix product
  bool vocab_parallel = true;          // embedding, head and loss sharded over tp
  bool allreduce_gradients = false;    // ZeRO-1 sums whole gradients on every rank, no scatter
  bool broadcasts_parameters = false;  // ZeRO-1/2: every rank broadcasts its tensors, no gather
  bool copies_gathered = false;     // ZeRO-3: parameters out of the gathered buffer, gradients into
                                    // that of the reduction (FSDP2)
  bool flattens_gradients = false;  // ZeRO-3: gradients are joined, cast and divided (FSDP1)
  bool overlap_grad_reduce = true;  // buckets reduced while the last backward runs
  bool overlap_param_gather = true;  // ZeRO-1/2 gathers under the next forward, ZeRO-3 prefetch
  bool overlap_p2p = true;
  bool serial_exchanges = false;  // without overlap_p2p: an activation, then a gradient; both wait
  bool synchronised_messages = false;  // without overlap_p2p: the host waits for the device, too
  bool split_transfers = false;  // tp ranks each send a part of a boundary that all of them hold
  bool overlap_tp = true;        // backward: collectives beside weight-gradient GEMMs
  bool stream_tp = false;        // collectives in pieces under their GEMM (user buffers, async TP)
  bool fp32_gradients = true;    // accumulate and reduce gradients in fp32
  bool master_weights = true;    // fp32 copy in the optimizer
  bool copies_master = false;    // to the parameters, by a pass of its own after the optimizer's
  bool fp32_parameters = false;  // parameters are stored in fp32 and cast for use (FSDP)
  bool reshard_after_forward =
      true;                        // ZeRO-3 frees gathered parameters between forward and backward
  Seconds host_per_block;          // host time to issue one pass of a layer; bounds small layers
  bool blocking_launches = false;  // CUDA_LAUNCH_BLOCKING: the host waits for every kernel
  bool cuda_graphs = false;        // a pass of a layer without experts is one launch of the host's
  GraphScope graph_scope = GraphScope::Dense;  // of layers with experts
  // ZeRO-3, and parameters that live elsewhere: whole blocks not yet freed; 0: any number.
  int gathers_in_flight = 2;
  int fetched_together = 1;  // of them, where parameters live elsewhere
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;
  Fp8Scaling fp8_scaling = Fp8Scaling::Delayed;
  AmaxRanks amax_ranks = AmaxRanks::All;
  bool delayed_update = false;    // a host's optimizer works under the next iteration, a step late
  std::int64_t bucket_bytes = 0;  // gradient bucket; 0: one bucket a block
  std::int64_t first_bucket_bytes = 0;  // of each backward, where smaller; 0: as the others
  bool eager_optimizer = false;         // Adam as PyTorch's kernels, a pass each, instead of one
  int gradient_passes = 0;              // over the gradient buffer a step: cleared, scaled, checked
  bool overlap_shared_experts = false;  // shared experts run while routed tokens travel
  // What both say of a dispatcher stands in plan/dispatchers.hpp: a token goes once to each node
  // and rank, whatever experts it has there; the kernels that send tokens order them, too.
  bool deduplicated_dispatch = false;
  bool fused_permutation = false;
  double routing_imbalance = 1;      // tokens of the rank that gets most over the mean of the ranks
  bool expert_kernels = false;       // products and casts of experts: kernels for each of them
  bool expert_padding = false;       // fp8: copies of tokens to padded rows of experts, and back
  bool eager_expert_bias = false;    // what experts give back gets its bias by PyTorch's kernels
  bool fused_experts = false;        // gate and casts between experts' products are in the products
  bool fused_router = false;         // TransformerEngine's kernels of the router
  bool quantised_dispatch = false;   // tokens, and gradients of what experts give back, travel to
                                     // the experts in 8 bits (DeepSeek-V3)
  bool quantised_gather = false;     // ZeRO++: parameters are gathered in 8 bits
  bool hierarchical_gather = false;  // ZeRO++: a second shard inside the node serves the backward
  bool quantised_reduce = false;     // ZeRO++: gradients are reduced in 4 bits by all-to-all
  bool ships_weights = false;        // attention on other devices gets the weights of queries, keys
                                     // and values and their input, not the product (HelixPipe)
  bool post_validation =
      false;  // devices update without meeting at the gradient norm (zero bubble)
  int optimizer_state_bytes = 8;  // per parameter beside the master copy (Adam: two fp32 moments)
  bool operator==(const Execution&) const = default;
};

struct Serving;  // plan/serving/serving.hpp

// Sequences that one group of ranks takes together, of any lengths (plan/packs.hpp).
struct Pack {
  int group = 1;                        // ranks
  std::vector<std::int64_t> sequences;  // tokens of each
  bool padded = false;                  // each to the longest of them
  std::vector<std::int64_t> slices{};   // of the one sequence: tokens of each; empty: not cut
  bool operator==(const Pack&) const = default;
};

struct Plan {
  // Compiled once: many files make and copy them.
  Plan();
  Plan(const Plan&);
  Plan(Plan&&) noexcept;
  Plan& operator=(const Plan&);
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  models::Network network;
  topologies::Cluster cluster;
  costmodel::Profile profile;
  std::int64_t batch = 0;     // sequences per iteration
  std::int64_t sequence = 0;  // tokens
  DType precision = DType::Bf16;

  int dp = 1;
  int pp = 1;
  int chunks = 1;  // model chunks per device
  std::string schedule = "1f1b";
  // The schedule written as data (docs/schedules.md); null: `schedule` is a registered one.
  std::shared_ptr<const sim::ScheduleDocument> schedule_document;
  double activation_cap = 0;  // micro-batches a device may hold; 0: the schedule's own
  // Slices of a sequence that travel through the pipeline one after the other (plan/slices.hpp):
  // how many, and the tokens of each where they are not equal.
  int slices = 1;
  std::vector<std::int64_t> slice_tokens;
  // Runs in which an encoder goes through a micro-batch of `dip` (plan/modules.hpp).
  int encoder_parts = 1;
  // Parameter servers (plan/stage/servers.hpp): how many, 0: one on each node; and how many waves a
  // worker of `hetpipe` may be ahead of the others.
  int servers = 0;
  int clock_distance = 0;
  // Micro-batches of sequences of any lengths: the packs of each, side by side on groups of data
  // ranks (`flexsp`) or on one data-parallel replica each (plan/packs.hpp).
  std::vector<std::vector<Pack>> packs;
  // Of a plan of one pack: the tokens of its sequences, which stand behind one another in each
  // sample. No part of a document.
  std::vector<std::int64_t> joined_sequences;
  std::int64_t micro_batch = 1;   // sequences per data-parallel rank
  std::vector<int> stage_blocks;  // chain positions per virtual stage; sums to the chain length
  std::vector<BlockRun> blocks;   // counts sum to the chain length
  Execution execution;
  ByteCount memory_reserve;  // kept free on every device
  // GPUs like these of all pools, where the cluster is one of them, also where a plan uses no more
  // than some; 0: those of the cluster. No part of a document.
  int gpus_alike = 0;
  // Set: the plan serves requests. dp counts replicas, pp pipelines of iterations; batch, schedule
  // and micro_batch do not matter and `sequence` is the longest request.
  std::shared_ptr<const Serving> serving;

  std::int64_t num_micro_batches() const {
    return packs.empty() ? batch / (micro_batch * dp) : static_cast<std::int64_t>(packs.size());
  }
  const BlockPlan& layout_of(int chain_position) const;
  int num_gpus() const;  // tp x cp x dp x pp of the first block
  // A block that uses fewer ranks for tp and cp than the first one has more data-parallel ranks,
  // each with its part of the micro-batch.
  int data_ranks(const BlockPlan& layout) const;
  std::int64_t micro_batch_of(const BlockPlan& layout) const;
  // The same in what the block's Batch counts: sequences, or items of an encoder in one run of it.
  std::int64_t micro_batch_of(const BlockPlan& layout, int block) const;
};

// Throws Error naming the field when degrees do not multiply, a count does not divide, the
// schedule's constraints are broken, ... Every reader and the search call it.
void check_plan(const Plan& plan, const std::string& where);

// The document ("schema": "orrery-plan", "version": 1).
Json to_json(const Plan& plan);
Plan read_plan(const Json& document, const std::string& where);

std::string_view to_text(Recompute recompute);
std::string_view to_text(ContextParallel context);
std::string_view to_text(TensorMesh mesh);        // "1d", "2d", "2.5d", "3d"
std::string_view to_text(TensorAxis axis);        // "columns", "rows", "depth"
std::string_view to_text(ExpertsInside inside);   // "dp", "cp", "tp"
std::string_view to_text(Broadcasts broadcasts);  // "pipelined", "binomial"
std::string_view to_text(Fp8Scaling scaling);     // "delayed", "current", "blocks"
std::string_view to_text(AmaxRanks ranks);        // "none", "model", "all"
std::string_view to_text(GraphScope scope);       // "dense", "router", "attention", "layer"
GraphScope parse_graph_scope(std::string_view text, std::string_view where);
std::string_view to_text(Softmax softmax);  // "megatron", "eager", "compiled"
Softmax parse_softmax(std::string_view text, std::string_view where);
std::string_view to_text(models::Var var);  // "batch", "seq", ..., as in a plan
Fp8Scaling parse_fp8_scaling(std::string_view text, std::string_view where);
AmaxRanks parse_amax_ranks(std::string_view text, std::string_view where);
ContextParallel parse_context(std::string_view text, std::string_view where);
TensorMesh parse_tensor_mesh(std::string_view text, std::string_view where);
TensorAxis parse_tensor_axis(std::string_view text, std::string_view where);
ExpertsInside parse_experts_inside(std::string_view text, std::string_view where);
models::Var parse_var(std::string_view text, std::string_view where);
Broadcasts parse_broadcasts(std::string_view text, std::string_view where);
Recompute parse_recompute(std::string_view text, std::string_view where);  // without Operators
// "full", or groups of operators joined by plus signs: "norms+mlp-activation".
void set_recompute(std::string_view text, std::string_view where, BlockPlan& layout);
std::string recompute_text(const BlockPlan& layout);

}  // namespace orrery::plan
