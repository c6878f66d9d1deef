// SPDX-License-Identifier: Apache-2.0
#include "models/config_fields.hpp"

#include <algorithm>
#include <array>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "models/spec_fields.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kSiluNames = {"silu", "swish"};
constexpr std::array<std::string_view, 5> kGeluNames = {"gelu", "gelu_new", "gelu_fast",
                                                        "gelu_pytorch_tanh", "quick_gelu"};

// Length before a stretched rotary embedding, else the largest position. Configurations of
// transformers 5 call the member rope_parameters.
std::int64_t training_length(ObjectReader& config, std::int64_t positions) {
  const std::optional<JsonReader> scaling =
      config.optional(present(config, {"rope_scaling", "rope_parameters"}));
  if (!scaling || !scaling->json().is_object()) {
    return positions;
  }
  ObjectReader rope = scaling->object();
  const std::int64_t original =
      rope.integer_or("original_max_position_embeddings", positions, 1, limits::kMaxSequence);
  rope.ignore_rest();
  return original;
}

bool is_switched_off(const Json& value) {
  return value.is_null() || (value.is_bool() && !value.as_bool()) ||
         (value.is_integer() && value.as_integer() == 0) ||
         (value.is_array() && value.as_array().empty());
}

// The period n of "every n-th layer is full, the others slide"; 0 when all slide, 1 when none does.
std::int64_t window_interval(const JsonReader& layer_types, std::int64_t layers) {
  const std::vector<JsonReader> types = layer_types.array(limits::kMaxLayers);
  if (static_cast<std::int64_t>(types.size()) != layers) {
    layer_types.fail("layer_types must have one entry a layer");
  }
  constexpr std::array<std::string_view, 2> kTypes = {"full_attention", "sliding_attention"};
  std::vector<bool> full;
  for (const JsonReader& type : types) {
    full.push_back(type.one_of(kTypes) == kTypes[0]);
  }
  const auto first = std::find(full.begin(), full.end(), true);
  const auto interval =
      first == full.end() ? std::int64_t{0} : static_cast<std::int64_t>(first - full.begin()) + 1;
  for (std::size_t i = 0; interval > 0 && i < full.size(); ++i) {
    if (full[i] != ((static_cast<std::int64_t>(i) + 1) % interval == 0)) {
      layer_types.fail("layer_types without a regular pattern are not modelled",
                       "every n-th layer full_attention, the others sliding_attention");
    }
  }
  return interval;
}

}  // namespace

std::string_view present(const ObjectReader& config,
                         std::initializer_list<std::string_view> names) {
  const auto* const found = std::find_if(names.begin(), names.end(),
                                         [&](std::string_view name) { return config.has(name); });
  return found == names.end() ? *names.begin() : *found;
}

MoeSpec read_experts(ObjectReader& config, const ExpertKeys& keys) {
  MoeSpec moe;
  moe.experts = config.required(keys.experts).integer(1, limits::kMaxExperts);
  moe.top_k = config.required(keys.top_k).integer(1, limits::kMaxExperts);
  moe.ffn_hidden = config.required(keys.width).integer(1, limits::kMaxFfn);
  return moe;
}

NetworkSpec read_sizes(ObjectReader& config, Family family, const DecoderKeys& keys) {
  NetworkSpec core;
  core.family = family;
  core.layers = config.required(keys.layers).integer(1, limits::kMaxLayers);
  core.hidden = config.required(keys.hidden).integer(1, limits::kMaxHidden);
  core.heads = config.required(keys.heads).integer(1, limits::kMaxHeads);
  core.attention_bias = default_attention_bias(family);
  core.sequence = 1;
  NetworkSpec spec = with_defaults(core);
  spec.vocab = config.required(keys.vocab).integer(1, limits::kMaxVocab);
  const std::int64_t positions =
      keys.positions_if_absent > 0
          ? config.integer_or(keys.positions, keys.positions_if_absent, 1, limits::kMaxSequence)
          : config.required(keys.positions).integer(1, limits::kMaxSequence);
  spec.sequence = training_length(config, positions);
  if (spec.position == PositionKind::Learned) {
    spec.max_positions = positions;
  }
  return spec;
}

NetworkSpec read_llama_like(ObjectReader& config, const LlamaDefaults& defaults) {
  NetworkSpec spec = read_sizes(config, Family::Llama);
  spec.kv_heads = config.integer_or("num_key_value_heads",
                                    defaults.kv_heads > 0 ? defaults.kv_heads : spec.heads, 1,
                                    limits::kMaxHeads);
  const std::int64_t head_dim = defaults.head_dim > 0 ? defaults.head_dim : spec.head_dim;
  spec.head_dim = config.integer_or("head_dim", head_dim, 1, limits::kMaxHidden);
  if (spec.head_dim == 0) {
    config.value().fail("hidden_size is not divisible by num_attention_heads", "give head_dim");
  }
  spec.ffn_hidden = config.required("intermediate_size").integer(1, limits::kMaxFfn);
  spec.activation = read_gated_activation(config, "hidden_act");
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", defaults.tied_embeddings);
  spec.attention_bias = config.boolean_or("attention_bias", false);
  spec.attention_output_bias = spec.attention_bias;
  spec.mlp_bias = config.boolean_or("mlp_bias", false);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  return spec;
}

Activation read_gated_activation(ObjectReader& config, std::string_view key) {
  const std::string name = config.string_or(key, "silu");
  if (is_among(name, kSiluNames)) {
    return Activation::SwiGlu;
  }
  if (is_among(name, kGeluNames)) {
    return Activation::GeGlu;
  }
  config.required(key).fail("activation \"" + printable(name) + "\" is not modelled",
                            "silu or gelu");
}

Activation read_plain_activation(ObjectReader& config, std::string_view key, Activation fallback) {
  if (!config.optional(key)) {
    return fallback;
  }
  const std::string name = config.required(key).string();
  if (is_among(name, kGeluNames)) {
    return Activation::Gelu;
  }
  if (name == "relu" || name == "relu2") {
    return name == "relu" ? Activation::Relu : Activation::SquaredRelu;
  }
  config.required(key).fail("activation \"" + printable(name) + "\" is not modelled",
                            "gelu, relu or relu2");
}

double read_dropout(ObjectReader& config, std::string_view key, double fallback) {
  return config.number_or(key, fallback, 0.0, 1.0);
}

void read_sliding_window(ObjectReader& config, NetworkSpec& spec, std::int64_t window_if_absent,
                         std::int64_t interval) {
  // null states that there is none.
  const bool stated = config.value().json().find("sliding_window") != nullptr;
  const std::int64_t window =
      config.integer_or("sliding_window", stated ? 0 : window_if_absent, 0, limits::kMaxSequence);
  if (const auto layer_types = config.optional("layer_types")) {
    interval = window_interval(*layer_types, spec.layers);
  }
  if (window > 0 && interval != 1) {
    spec.sliding_window = window;
    spec.global_attention_interval = interval;
  }
}

void set_position(NetworkSpec& spec, PositionKind position) {
  spec.position = position;
  spec.max_positions = 0;
}

void set_biases(NetworkSpec& spec, bool biases) {
  spec.attention_bias = biases;
  spec.attention_output_bias = biases;
  spec.mlp_bias = biases;
}

void expect_flag(ObjectReader& config, std::string_view key, bool value) {
  if (config.boolean_or(key, value) != value) {
    config.required(key).fail(std::string(key) + " is modelled as " + (value ? "true" : "false") +
                              " only");
  }
}

void expect_integer(ObjectReader& config, std::string_view key, std::int64_t value) {
  if (config.integer_or(key, value, 0, limits::kMaxVocab) != value) {
    config.required(key).fail(std::string(key) + " is modelled as " + std::to_string(value) +
                              " only");
  }
}

void refuse_unknown_parts(const ObjectReader& config,
                          std::initializer_list<std::string_view> known) {
  constexpr std::array<std::string_view, 4> kSigns = {"expert", "moe", "router", "lora_rank"};
  for (const std::string& key : config.keys()) {
    const bool suspicious = std::any_of(kSigns.begin(), kSigns.end(), [&](std::string_view sign) {
      return to_lower(key).find(sign) != key.npos;
    });
    const bool allowed = std::find(known.begin(), known.end(), key) != known.end();
    const Json* value = config.value().json().find(key);
    if (suspicious && !allowed && !is_switched_off(*value)) {
      config.value().fail(
          "member \"" + printable(key) + "\" changes the network in a way that is not modelled",
          "remove it if it does not matter");
    }
  }
}

}  // namespace orrery::models
