// SPDX-License-Identifier: Apache-2.0
// A network: an architecture description (native JSON, zoo name or Hugging Face config.json) and
// the chain of blocks generated from it. Distinct blocks are stored once; `chain` says which block
// stands at each position (embedding, layers, head).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "models/operators.hpp"

namespace orrery::models {

enum class Family : std::uint8_t { Gpt, Llama, Bert, T5, Vit };  // shape of the blocks
enum class NormKind : std::uint8_t { LayerNorm, RmsNorm };
enum class PositionKind : std::uint8_t { Learned, Rotary, RelativeBias, Alibi, None };
enum class Activation : std::uint8_t { Gelu, Relu, SquaredRelu, SwiGlu, GeGlu };

struct MoeSpec {
  std::int64_t experts = 0;  // 0: dense
  std::int64_t top_k = 0;
  std::int64_t ffn_hidden = 0;         // of one expert
  std::int64_t shared_ffn_hidden = 0;  // of the shared experts together
  std::int64_t first_dense_layers = 0;
  // Experts are in so many equal groups, and those of a token are of so many of them (DeepSeek-V3,
  // arXiv 2412.19437, section 2.1.2: node-limited routing); 1 and 1: anywhere.
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  std::int64_t layer_frequency = 1;  // layer i from first_dense_layers on is MoE if n divides i
  double capacity_factor = 0;        // 0: dropless
  bool router_bias = false;

  bool operator==(const MoeSpec&) const = default;
};

struct MlaSpec {
  std::int64_t q_lora_rank = 0;   // 0 with kv_lora_rank > 0: full-rank queries
  std::int64_t kv_lora_rank = 0;  // 0: no MLA
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;

  bool operator==(const MlaSpec&) const = default;
};

// A module in front of a decoder: images (image_patch) or texts (vocab) become features, which a
// projection of two layers puts among the tokens of the sequence. `frozen`: it is not trained.
struct EncoderSpec {
  std::int64_t layers = 0;  // 0: none
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t ffn_hidden = 0;  // 0: 4 x hidden
  std::int64_t image_patch = 0;
  std::int64_t vocab = 0;
  std::int64_t tokens = 0;  // of an item
  std::int64_t items = 1;   // images or texts of a sequence
  bool frozen = false;

  bool operator==(const EncoderSpec&) const = default;
};

// A second backbone beside the decoder, a cascade: the one draws a small picture, the other a large
// one of it. It is trained on samples of its own, of the same kind but for what stands here, and
// reads the features of the same frozen encoder.
struct CascadeSpec {
  std::int64_t layers = 0;  // 0: none
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t ffn_hidden = 0;  // 0: 4 x hidden
  std::int64_t tokens = 0;      // of a sample

  bool operator==(const CascadeSpec&) const = default;
};

// Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685): beside an adapted product input x A
// -> rank and rank x B -> output are added to its result. They alone are trained; all other weights
// (but the projection of an encoder's features) are frozen.
struct AdapterSpec {
  std::int64_t rank = 0;  // 0: none, everything is trained
  double dropout = 0;     // > 0: of the input of A
  // Adapted products of a layer, all as NeMo has it: projections to queries, keys and values (of
  // latents, too), of the attention's output, and up (with the gate) and down of feed-forward
  // networks.
  bool qkv = true;
  bool o = true;
  bool up = true;
  bool down = true;
  // One pair serves the experts of a layer, the same on all their ranks; else each has its own.
  bool shared_by_experts = false;

  bool operator==(const AdapterSpec&) const = default;
};

// The numbers that define a network; the native document has one member per field.
struct NetworkSpec {
  std::string name;
  Family family = Family::Gpt;
  std::int64_t layers = 0;  // decoder layers (T5: encoder_layers apart)
  std::int64_t encoder_layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_hidden = 0;
  std::int64_t vocab = 0;             // as trained with (padded)
  std::int64_t sequence = 0;          // training length: default of --seq
  std::int64_t decoder_sequence = 0;  // T5: tokens of the decoder's texts beside `sequence` of the
                                      // encoder's; 0: as many. Another --seq keeps the share
  std::int64_t max_positions = 0;     // learned positions; 0: the sequence length
  NormKind norm = NormKind::LayerNorm;
  PositionKind position = PositionKind::Learned;
  Activation activation = Activation::Gelu;
  bool tied_embeddings = true;
  bool attention_bias = true;
  bool mlp_bias = true;
  double hidden_dropout = 0;  // > 0: dropout kernels and their masks exist
  double attention_dropout = 0;
  bool causal = true;
  bool qk_norm = false;
  bool parallel_block = false;        // attention and MLP read one norm (GPT-J, GPT-NeoX, Falcon)
  bool parallel_mlp_norm = false;     // parallel_block whose MLP has a norm of its own (GPT-NeoX)
  bool sandwich_norm = false;         // norms after attention and MLP as well (Gemma 2 and 3)
  bool attention_output_bias = true;  // of the O projection; defaults to attention_bias
  bool embedding_norm = false;        // norm after the embedding (BLOOM, BERT)
  bool head_bias = false;             // bias of the vocabulary projection
  std::int64_t sliding_window = 0;
  std::int64_t global_attention_interval = 0;  // with a window: every n-th layer sees everything
  std::int64_t image_patch = 0;                // ViT: patch side
  std::int64_t classes = 0;  // ViT; of a decoder: a classifier stands where the vocabulary's would
  double masked_fraction = 0;  // BERT: share of positions that reach the head (0: all)
  MoeSpec moe;
  MlaSpec mla;
  EncoderSpec encoder;
  CascadeSpec cascade;
  AdapterSpec adapters;
  std::string source;

  bool operator==(const NetworkSpec&) const = default;
};

struct Network {
  // Compiled once: many files make and copy them.
  Network();
  Network(const Network&);
  Network(Network&&) noexcept;
  Network& operator=(const Network&);
  Network& operator=(Network&&) noexcept;
  ~Network();

  NetworkSpec spec;
  std::vector<Block> blocks;
  // Indices into blocks: embedding, layers ..., head. T5 has encoder_layers + layers of them. With
  // an encoder: its embedding and layers before them. With a cascade: a second embedding, layers
  // and head after them.
  std::vector<int> chain;
  std::vector<std::string> overrides;
  Json document;  // native document after the overrides
};

// NETWORK on the command line: a name or alias of the zoo, a native JSON file or a Hugging Face
// config.json.
Network load_network(const std::string& text, const std::vector<std::string>& overrides = {});
Network read_network(const Json& document, const std::string& where);  // native document
NetworkSpec read_network_spec(const Json& document, const std::string& where);
Json to_json(const NetworkSpec& spec);
// Checks the spec (limits, divisibility of heads, ...) and generates the blocks.
Network build_network(const NetworkSpec& spec, const std::string& where);
std::vector<std::string> zoo_names();

// Totals over the chain, derived from the operators. Batch and Seq bound to the arguments.
struct Workload {
  std::int64_t batch = 1;     // sequences
  std::int64_t sequence = 0;  // tokens each
};
std::int64_t num_parameters(const Network& network);         // tied weights once
std::int64_t num_active_parameters(const Network& network);  // top-k experts only
std::int64_t num_trained_parameters(const Network& network);
std::int64_t num_parameters(const Block& block);  // a tied copy included
// Elements of a tensor under a workload (fractional where a dim is scaled).
double num_elements(const Tensor& tensor, const Workload& workload);
// Matrix FLOPs (Gemm, GroupedGemm, Attention) of one operator and of a block; the others are bound
// by memory and not counted. A sliding window limits the key positions.
Flops forward_flops(const Block& block, const Operator& op, const Workload& workload,
                    bool causal_half);
Flops forward_flops(const Block& block, const Workload& workload, bool causal_half);
// Bytes kept for the backward of one block without sharding.
struct SavedPolicy {
  bool fused_attention = true;
  bool selective = false;  // the attention core is recomputed
  int compute_bytes = 2;
};
double saved_bytes(const Block& block, const Workload& workload, const SavedPolicy& policy);
// Forward plus backward without recomputation: the numerator of MFU. Gradients that nobody wants
// (of frozen weights) are not made and not counted. Attention is counted in full
// (not halved for causal masks), as Megatron-LM and the PaLM appendix do, unless causal_half.
Flops model_flops(const Network& network, const Workload& workload, bool causal_half = false);

}  // namespace orrery::models
