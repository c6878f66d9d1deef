// SPDX-License-Identifier: Apache-2.0
// Operators described by iteration spaces (docs/models.md). A tensor is
// a list of named dimensions; an operator iterates over the union of its operands' dimensions.
// FLOPs, bytes, saved activations, parameters and, once axes are assigned to variables, every shard
// size and collective follow from these extents: no closed totals.
//
// Rules a reader of the tables relies on:
// - Gemm: a kernel weight holds every variable of `reduced` (its k); each adds flops_per_point x
//   rows x its elements, rows being the dims of inputs[0] outside `reduced`. Several kernel weights
//   (q, k, v; gate, up) run as one GEMM with their n summed; outputs[i] belongs to weights[i].
//   Weights without a variable of `reduced` are biases, added in the epilogue.
// - GroupedGemm: the same, but a row meets one expert: rows x elements / Expert extent. Its rows
//   are Batch x Seq x Choice over all experts together (times the capacity factor, the `scale` of
//   Seq).
// - Attention: inputs q{Batch,Seq,Head,HeadDim}, k and v{Batch,Seq,KvHead,HeadDim}, output context.
//   The Seq of inputs 1 and 2 is read as KeySeq: all positions of the sequence. Every query head
//   iterates over Batch x Head x Seq x KeySeq x HeadDim; flops_per_point counts both products.
// - Embedding reads one row of the table a token: its traffic is twice its output, never the table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace orrery::models {

// Index variables. Batch and Seq extents come from the workload (micro-batch size and sequence
// length); all others from the network. KvHead shards together with Head.
enum class Var : std::uint8_t {
  Batch,
  Seq,     // tokens (query positions)
  KeySeq,  // key positions of attention
  Hidden,
  Head,
  KvHead,
  HeadDim,
  Ffn,  // inner width of the feed-forward network
  Vocab,
  Expert,
  Latent,    // low-rank width of MLA, patch pixels, classes and other widths that are never sharded
  Choice,    // the top-k copies of a token
  Table,     // embedding tables of a recommendation network
  Rank,      // inner width of a low-rank adapter
  Position,  // rows of a table of learned positions
};
inline constexpr int kNumVars = 15;
inline bool contains(const std::vector<Var>& vars, Var var) {
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

inline constexpr std::int64_t kFromWorkload = 0;

struct Dim {
  Var var;
  std::int64_t extent;    // kFromWorkload: bound at lowering (times `scale`)
  double scale = 1.0;     // share of the workload extent, e.g. masked positions of BERT
  std::int64_t unit = 1;  // elements that uneven shards keep together: query heads of a group
};

enum class TensorKind : std::uint8_t { Activation, Weight };
// Bytes of an element: Compute = the plan's precision, Param = that of stored weights.
enum class Element : std::uint8_t { Compute, Param, Fp32, Int64, Mask };  // Mask: 1 byte

struct Tensor {
  std::string name;  // unique within its block: "hidden", "qkv", "w_up"
  TensorKind kind = TensorKind::Activation;
  Element element = Element::Compute;
  std::vector<Dim> dims = {};
  bool tied = false;  // weight that is a use of the token table of the embedding: counted once
  // No gradient of it is made: a weight that is not trained, an activation that no trained weight
  // takes part in. Everything that follows reads this: which gradients a backward makes, what it
  // keeps for them, which of them are reduced and stored.
  bool frozen = false;
};

enum class OpKind : std::uint8_t {
  Gemm,
  GroupedGemm,  // experts
  Attention,    // fused or unfused by the plan; see AttentionInfo
  Norm,
  Elementwise,   // activation functions, residual adds, dropout, rotary, scaling
  Embedding,     // gather
  CrossEntropy,  // softmax over Vocab and loss
  Router,        // gate softmax and top-k
  Permute,       // token dispatch and combine, memory only
};

// What an operator keeps for its backward: bytes are elements of `tensor` (its dims) times
// `copies` x element size.
struct Saved {
  int tensor = 0;  // index into Block::tensors
  double copies = 1.0;
  Element element = Element::Compute;
  bool attention_core = false;  // dropped by selective recomputation and by fused attention
  bool fused_only = false;      // kept only with fused attention (log-sum-exp)
  bool unweighted = false;      // kept only where router weights meet what experts give back
};

// What plans tell apart beyond the kind.
enum class OpRole : std::uint8_t {
  None,
  Rotary,        // rotary positions of queries or keys
  Routing,       // the product whose outputs choose a token's experts
  SharedExpert,  // of the experts that every token meets
};

struct Operator {
  std::string name;  // "qkv", "attention", ...
  OpKind kind = OpKind::Elementwise;
  std::vector<int> inputs = {};   // activations read, indices into Block::tensors
  std::vector<int> weights = {};  // parameters read
  std::vector<int> outputs = {};  // activations written
  std::vector<Var> reduced = {};  // variables summed over (the k of a GEMM)
  // FLOPs forward = flops_per_point x product of the iteration space (2 for GEMMs), which count for
  // GEMMs and attention alone; the backward of a GEMM is two of them over the same space.
  double flops_per_point = 0;
  // Memory traffic forward in elements of its operands (each read or written once) unless it
  // touches them more often; backward = backward_bytes_factor x forward.
  double bytes_factor = 1.0;
  double backward_bytes_factor = 2.0;
  // Part of the attention core (scores, softmax, context): recomputed by "selective".
  bool attention_core = false;
  // A separate small kernel of its own in framework-unfused execution (dropout, bias, residual).
  bool pointwise = false;
  bool logits_in_fp32 = false;
  bool cross_attention = false;  // keys are the encoder's: never causal, no window
  bool adapter = false;          // of a low-rank adapter: products in 16 bits whatever the others
  OpRole role = OpRole::None;
  std::vector<Saved> saved = {};
};

// The attention core as one operator; the unfused form materialises scores of b x heads x s x t.
struct AttentionInfo {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;        // of queries and keys
  std::int64_t value_head_dim = 0;  // differs in MLA
  bool causal = true;
  std::int64_t window = 0;  // sliding window in tokens, 0 = none
  bool dropout = false;     // attention dropout keeps a mask and the dropped scores
};

enum class BlockKind : std::uint8_t { Embedding, Layer, Head };

struct Block {
  std::string name;  // "dense", "moe", "embedding", "head"
  BlockKind kind = BlockKind::Layer;
  std::vector<Tensor> tensors = {};
  std::vector<Operator> operators = {};  // in execution order
  AttentionInfo attention = {};          // heads = 0: none
  int input = -1;                        // tensor handed over from the block before (-1: token ids)
  int output = -1;                       // tensor handed to the next block (-1: the loss)
  // T5: the encoder's final output, which travels beside the residual stream through every decoder
  // block. The first decoder block computes it from its input, the others receive it.
  int memory = -1;
  // Mixture of experts: 0 = dense.
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t groups = 1;  // of experts, and of how many of them those of a token are
  std::int64_t groups_per_token = 1;
  // A block of an encoder: tokens of one of its items (an image, a text) instead of those of the
  // sequence, and items of a sequence, of which its Batch is. 0: a block of the network itself.
  std::int64_t tokens = 0;
  std::int64_t items = 1;
  bool frozen = false;  // all its tensors are: it runs forward only
};

// Whether it multiplies matrices.
bool is_gemm(const Operator& op);
// Which gradients the backward of an operator makes.
bool gives_input_gradient(const Block& block, const Operator& op);
bool gives_weight_gradient(const Block& block, const Operator& op);
// Whether it has a backward at all.
bool has_backward(const Block& block, const Operator& op);
// From the weights that are frozen: which activations are, what operators keep for the gradients
// that are made, and whether the block is frozen. `input_gradient`: gradients are wanted of what
// the block is handed.
void settle_gradients(Block& block, bool input_gradient);

}  // namespace orrery::models
