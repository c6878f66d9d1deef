// SPDX-License-Identifier: Apache-2.0
#include "models/spec_fields.hpp"

#include <array>

#include "base/limits.hpp"

namespace orrery::models {
namespace {

using Spec = NetworkSpec;

constexpr std::array<IntegerField<Spec>, 15> kIntegers = {{
    {"layers", &Spec::layers, 1, limits::kMaxLayers},
    {"encoder_layers", &Spec::encoder_layers, 0, limits::kMaxLayers},
    {"hidden", &Spec::hidden, 1, limits::kMaxHidden},
    {"heads", &Spec::heads, 1, limits::kMaxHeads},
    {"kv_heads", &Spec::kv_heads, 1, limits::kMaxHeads},
    {"head_dim", &Spec::head_dim, 1, limits::kMaxHidden},
    {"ffn_hidden", &Spec::ffn_hidden, 0, limits::kMaxFfn},
    {"vocab", &Spec::vocab, 0, limits::kMaxVocab},
    {"sequence", &Spec::sequence, 1, limits::kMaxSequence},
    {"decoder_sequence", &Spec::decoder_sequence, 0, limits::kMaxSequence},
    {"max_positions", &Spec::max_positions, 0, limits::kMaxSequence},
    {"sliding_window", &Spec::sliding_window, 0, limits::kMaxSequence},
    {"global_attention_interval", &Spec::global_attention_interval, 0, limits::kMaxLayers},
    {"image_patch", &Spec::image_patch, 0, 4096},
    {"classes", &Spec::classes, 0, limits::kMaxVocab},
}};

constexpr std::array<NumberField<Spec>, 3> kNumbers = {{
    {"hidden_dropout", &Spec::hidden_dropout, 0.0, 1.0},
    {"attention_dropout", &Spec::attention_dropout, 0.0, 1.0},
    {"masked_fraction", &Spec::masked_fraction, 0.0, 1.0},
}};

constexpr std::array<FlagField<Spec>, 11> kFlags = {{
    {"tied_embeddings", &Spec::tied_embeddings},
    {"attention_bias", &Spec::attention_bias},
    {"attention_output_bias", &Spec::attention_output_bias},
    {"mlp_bias", &Spec::mlp_bias},
    {"head_bias", &Spec::head_bias},
    {"causal", &Spec::causal},
    {"qk_norm", &Spec::qk_norm},
    {"embedding_norm", &Spec::embedding_norm},
    {"parallel_block", &Spec::parallel_block},
    {"parallel_mlp_norm", &Spec::parallel_mlp_norm},
    {"sandwich_norm", &Spec::sandwich_norm},
}};

constexpr std::array<IntegerField<MoeSpec>, 8> kMoeIntegers = {{
    {"experts", &MoeSpec::experts, 0, limits::kMaxExperts},
    {"top_k", &MoeSpec::top_k, 0, limits::kMaxExperts},
    {"ffn_hidden", &MoeSpec::ffn_hidden, 0, limits::kMaxFfn},
    {"shared_ffn_hidden", &MoeSpec::shared_ffn_hidden, 0, limits::kMaxFfn},
    {"first_dense_layers", &MoeSpec::first_dense_layers, 0, limits::kMaxLayers},
    {"groups", &MoeSpec::groups, 1, limits::kMaxExperts},
    {"groups_per_token", &MoeSpec::groups_per_token, 1, limits::kMaxExperts},
    {"layer_frequency", &MoeSpec::layer_frequency, 1, limits::kMaxLayers},
}};

constexpr std::array<NumberField<MoeSpec>, 1> kMoeNumbers = {{
    {"capacity_factor", &MoeSpec::capacity_factor, 0.0, 1e4},
}};

constexpr std::array<FlagField<MoeSpec>, 1> kMoeFlags = {{
    {"router_bias", &MoeSpec::router_bias},
}};

constexpr std::array<IntegerField<MlaSpec>, 5> kMlaIntegers = {{
    {"q_lora_rank", &MlaSpec::q_lora_rank, 0, limits::kMaxHidden},
    {"kv_lora_rank", &MlaSpec::kv_lora_rank, 0, limits::kMaxHidden},
    {"qk_nope_head_dim", &MlaSpec::qk_nope_head_dim, 0, limits::kMaxHidden},
    {"qk_rope_head_dim", &MlaSpec::qk_rope_head_dim, 0, limits::kMaxHidden},
    {"v_head_dim", &MlaSpec::v_head_dim, 0, limits::kMaxHidden},
}};

constexpr std::array<IntegerField<EncoderSpec>, 8> kEncoderIntegers = {{
    {"layers", &EncoderSpec::layers, 0, limits::kMaxLayers},
    {"hidden", &EncoderSpec::hidden, 0, limits::kMaxHidden},
    {"heads", &EncoderSpec::heads, 0, limits::kMaxHeads},
    {"ffn_hidden", &EncoderSpec::ffn_hidden, 0, limits::kMaxFfn},
    {"image_patch", &EncoderSpec::image_patch, 0, 4096},
    {"vocab", &EncoderSpec::vocab, 0, limits::kMaxVocab},
    {"tokens", &EncoderSpec::tokens, 0, limits::kMaxSequence},
    {"items", &EncoderSpec::items, 1, 65536},
}};

constexpr std::array<FlagField<EncoderSpec>, 1> kEncoderFlags = {{
    {"frozen", &EncoderSpec::frozen},
}};

constexpr std::array<IntegerField<CascadeSpec>, 5> kCascadeIntegers = {{
    {"layers", &CascadeSpec::layers, 0, limits::kMaxLayers},
    {"hidden", &CascadeSpec::hidden, 0, limits::kMaxHidden},
    {"heads", &CascadeSpec::heads, 0, limits::kMaxHeads},
    {"ffn_hidden", &CascadeSpec::ffn_hidden, 0, limits::kMaxFfn},
    {"tokens", &CascadeSpec::tokens, 0, limits::kMaxSequence},
}};

constexpr std::array<IntegerField<AdapterSpec>, 1> kAdapterIntegers = {{
    {"rank", &AdapterSpec::rank, 0, limits::kMaxHidden},
}};

constexpr std::array<NumberField<AdapterSpec>, 1> kAdapterNumbers = {{
    {"dropout", &AdapterSpec::dropout, 0.0, 1.0},
}};

constexpr std::array<FlagField<AdapterSpec>, 1> kAdapterFlags = {{
    {"shared_by_experts", &AdapterSpec::shared_by_experts},
}};

constexpr std::array<FlagField<AdapterSpec>, 4> kAdapterTargets = {{
    {"qkv", &AdapterSpec::qkv},
    {"o", &AdapterSpec::o},
    {"up", &AdapterSpec::up},
    {"down", &AdapterSpec::down},
}};

constexpr std::array<std::string_view, 5> kFamilies = {"gpt", "llama", "bert", "t5", "vit"};
constexpr std::array<std::string_view, 2> kNorms = {"layer-norm", "rms-norm"};
constexpr std::array<std::string_view, 5> kPositions = {"learned", "rotary", "relative-bias",
                                                        "alibi", "none"};
constexpr std::array<std::string_view, 5> kActivations = {"gelu", "relu", "squared-relu", "swiglu",
                                                          "geglu"};

void set_family_defaults(NetworkSpec& spec) {
  if (spec.family == Family::Llama || spec.family == Family::T5) {
    spec.norm = NormKind::RmsNorm;
    spec.mlp_bias = false;
  }
  if (spec.family == Family::Llama) {
    spec.position = PositionKind::Rotary;
    spec.activation = Activation::SwiGlu;
    spec.tied_embeddings = false;
  } else if (spec.family == Family::T5) {
    spec.position = PositionKind::RelativeBias;
    spec.activation = Activation::Relu;
  } else if (spec.family == Family::Bert) {
    spec.causal = false;
    spec.embedding_norm = true;
    spec.head_bias = true;
  } else if (spec.family == Family::Vit) {
    spec.causal = false;
    spec.tied_embeddings = false;
  }
}

}  // namespace

std::span<const IntegerField<NetworkSpec>> integer_fields() { return kIntegers; }
std::span<const NumberField<NetworkSpec>> number_fields() { return kNumbers; }
std::span<const FlagField<NetworkSpec>> flag_fields() { return kFlags; }
std::span<const IntegerField<MoeSpec>> moe_integer_fields() { return kMoeIntegers; }
std::span<const NumberField<MoeSpec>> moe_number_fields() { return kMoeNumbers; }
std::span<const FlagField<MoeSpec>> moe_flag_fields() { return kMoeFlags; }
std::span<const IntegerField<MlaSpec>> mla_integer_fields() { return kMlaIntegers; }

std::span<const IntegerField<EncoderSpec>> encoder_integer_fields() { return kEncoderIntegers; }
std::span<const FlagField<EncoderSpec>> encoder_flag_fields() { return kEncoderFlags; }

std::span<const IntegerField<CascadeSpec>> cascade_integer_fields() { return kCascadeIntegers; }

std::span<const IntegerField<AdapterSpec>> adapter_integer_fields() { return kAdapterIntegers; }
std::span<const NumberField<AdapterSpec>> adapter_number_fields() { return kAdapterNumbers; }
std::span<const FlagField<AdapterSpec>> adapter_flag_fields() { return kAdapterFlags; }
std::span<const FlagField<AdapterSpec>> adapter_targets() { return kAdapterTargets; }

std::span<const std::string_view> family_names() { return kFamilies; }
std::span<const std::string_view> norm_names() { return kNorms; }
std::span<const std::string_view> position_names() { return kPositions; }
std::span<const std::string_view> activation_names() { return kActivations; }

bool default_attention_bias(Family family) {
  return family != Family::Llama && family != Family::T5;
}

NetworkSpec with_defaults(const NetworkSpec& core) {
  NetworkSpec spec;
  spec.name = core.name;
  spec.family = core.family;
  spec.layers = core.layers;
  spec.hidden = core.hidden;
  spec.heads = core.heads;
  spec.sequence = core.sequence;
  spec.attention_bias = core.attention_bias;
  spec.attention_output_bias = core.attention_bias;
  spec.kv_heads = core.heads;
  spec.head_dim = core.heads > 0 && core.hidden % core.heads == 0 ? core.hidden / core.heads : 0;
  spec.ffn_hidden = core.family == Family::Llama ? 0 : 4 * core.hidden;
  set_family_defaults(spec);
  return spec;
}

}  // namespace orrery::models
