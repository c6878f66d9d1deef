// SPDX-License-Identifier: Apache-2.0
// What the importers of config.json share: common members, activation names, and the refusal of
// members that change a network in a way Orrery does not model. Member names and defaults are those
// of the transformers library's configuration classes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/json_reader.hpp"
#include "models/network.hpp"

namespace orrery::models {

// Member names that differ between the families of decoders.
struct DecoderKeys {
  std::string_view layers = "num_hidden_layers";
  std::string_view hidden = "hidden_size";
  std::string_view heads = "num_attention_heads";
  std::string_view vocab = "vocab_size";
  std::string_view positions = "max_position_embeddings";
  std::int64_t positions_if_absent = 0;  // 0: they must be stated
};

// The first of the names that the configuration has, else the first: for members with two names.
std::string_view present(const ObjectReader& config, std::initializer_list<std::string_view> names);

// Member names that differ between the families with experts.
struct ExpertKeys {
  std::string_view experts = "num_experts";
  std::string_view top_k = "num_experts_per_tok";
  std::string_view width = "moe_intermediate_size";
};
// Experts, how many of them a token goes to and their width; all must be stated.
MoeSpec read_experts(ObjectReader& config, const ExpertKeys& keys);

// Sizes every configuration must state; head_dim = hidden / heads, kv_heads = heads.
NetworkSpec read_sizes(ObjectReader& config, Family family, const DecoderKeys& keys = {});

struct LlamaDefaults {
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  bool tied_embeddings = false;
};
// LLaMA and the families that share its members.
NetworkSpec read_llama_like(ObjectReader& config, const LlamaDefaults& defaults = {});

// "silu" -> swiglu, "gelu..." -> geglu; without gates "gelu...", "relu", "relu2".
Activation read_gated_activation(ObjectReader& config, std::string_view key);
Activation read_plain_activation(ObjectReader& config, std::string_view key, Activation fallback);

double read_dropout(ObjectReader& config, std::string_view key, double fallback);

// `sliding_window` and the pattern of windowed layers ("layer_types", else every `interval`-th
// layer sees everything; 0: all layers are windowed).
void read_sliding_window(ObjectReader& config, NetworkSpec& spec, std::int64_t window_if_absent,
                         std::int64_t interval);

// Other than learned positions, so that there is no table of them.
void set_position(NetworkSpec& spec, PositionKind position);
// Of all products of a layer.
void set_biases(NetworkSpec& spec, bool biases);

// A member that must be absent, null, or have this value.
void expect_flag(ObjectReader& config, std::string_view key, bool value);
void expect_integer(ObjectReader& config, std::string_view key, std::int64_t value);

// Refuses members that speak of experts, routers or low ranks and are not among `known`.
void refuse_unknown_parts(const ObjectReader& config,
                          std::initializer_list<std::string_view> known);

}  // namespace orrery::models
