// SPDX-License-Identifier: Apache-2.0
#include "models/network.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "models/adapters.hpp"
#include "models/blocks.hpp"
#include "models/spec_check.hpp"

namespace orrery::models {
namespace {

bool is_moe_layer(const MoeSpec& moe, std::int64_t layer) {
  return moe.experts > 0 && layer >= moe.first_dense_layers && layer % moe.layer_frequency == 0;
}

bool is_windowed(const NetworkSpec& spec, std::int64_t layer) {
  const std::int64_t interval = spec.global_attention_interval;
  return spec.sliding_window > 0 && !(interval > 0 && (layer + 1) % interval == 0);
}

std::vector<LayerVariant> layer_variants(const NetworkSpec& spec) {
  std::vector<LayerVariant> variants;
  const bool relative = spec.position == PositionKind::RelativeBias;
  for (std::int64_t layer = 0; layer < spec.encoder_layers; ++layer) {
    variants.push_back({.first = relative && layer == 0, .causal = false});
  }
  const bool t5 = spec.family == Family::T5;
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    variants.push_back({.moe = is_moe_layer(spec.moe, layer),
                        .windowed = is_windowed(spec, layer),
                        .decoder = t5,
                        .first = t5 && layer == 0,
                        .causal = spec.causal});
  }
  return variants;
}

int add_block(Network& network, Block block) {
  network.blocks.push_back(std::move(block));
  return static_cast<int>(network.blocks.size()) - 1;
}

// Distinct layers become one block each.
template <typename Within>
void add_layers(Network& network, const NetworkSpec& spec, Within within) {
  std::vector<std::pair<LayerVariant, int>> known;
  for (const LayerVariant& variant : layer_variants(spec)) {
    int index = -1;
    for (const auto& [other, block] : known) {
      if (other == variant) {
        index = block;
      }
    }
    if (index < 0) {
      index = add_block(network, within(layer_block(spec, variant)));
      known.emplace_back(variant, index);
    }
    network.chain.push_back(index);
  }
}

void add_encoder(Network& network) {
  const NetworkSpec& spec = network.spec;
  if (spec.encoder.layers == 0) {
    return;
  }
  const NetworkSpec encoder = encoder_network(spec);
  network.chain.push_back(add_block(network, encoder_block(spec, embedding_block(encoder))));
  const int layer =
      add_block(network, encoder_block(spec, layer_block(encoder, {.causal = false})));
  network.chain.insert(network.chain.end(), static_cast<std::size_t>(spec.encoder.layers), layer);
}

// Embedding, layers and head; `within` says what they are within the network.
template <typename Within>
void add_backbone(Network& network, const NetworkSpec& spec, Within within) {
  network.chain.push_back(add_block(network, within(embedding_block(spec))));
  add_layers(network, spec, within);
  network.chain.push_back(add_block(network, within(head_block(spec))));
}

// In floating point, before the exact totals are computed in 64 bits.
void check_size(const Network& network, const std::string& where) {
  double total = 0.0;
  for (const int index : network.chain) {
    for (const Tensor& tensor : network.blocks[static_cast<std::size_t>(index)].tensors) {
      if (tensor.kind == TensorKind::Weight) {
        total += num_elements(tensor, {.batch = 1, .sequence = 1});
      }
    }
  }
  if (!(total <= kMaxParameters)) {
    bad_input(where, fmt::format("the network has {:.3g} parameters", total),
              fmt::format("at most {:.0e}", kMaxParameters));
  }
}

}  // namespace

Network::Network() = default;
Network::Network(const Network&) = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(const Network&) = default;
Network& Network::operator=(Network&&) noexcept = default;
Network::~Network() = default;

Network build_network(const NetworkSpec& spec, const std::string& where) {
  check_spec(spec, where);
  Network network;
  network.spec = spec;
  add_encoder(network);
  add_backbone(network, spec, [](Block block) { return block; });
  if (spec.cascade.layers > 0) {
    add_backbone(network, cascade_network(spec),
                 [&](Block block) { return cascade_block(spec, std::move(block)); });
  }
  check_size(network, where);
  if (spec.adapters.rank > 0) {
    check_adapters(network, where);
    settle_adapters(network);
  }
  network.document = to_json(spec);
  return network;
}

}  // namespace orrery::models
