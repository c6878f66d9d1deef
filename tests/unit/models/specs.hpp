// SPDX-License-Identifier: Apache-2.0
// Small networks for the tests of the models room.
#pragma once

#include <string>

#include "models/network.hpp"
#include "models/spec_fields.hpp"

namespace orrery::models {

inline NetworkSpec small_spec(Family family, std::int64_t hidden = 64, std::int64_t heads = 4) {
  NetworkSpec core;
  core.name = "small";
  core.family = family;
  core.layers = 3;
  core.hidden = hidden;
  core.heads = heads;
  core.sequence = 32;
  core.attention_bias = default_attention_bias(family);
  NetworkSpec spec = with_defaults(core);
  spec.vocab = family == Family::Vit ? 0 : 1000;
  if (family == Family::Llama) {
    spec.ffn_hidden = 3 * hidden;
  }
  if (family == Family::T5) {
    spec.encoder_layers = 2;
  }
  if (family == Family::Vit) {
    spec.image_patch = 4;
    spec.classes = 10;
  }
  return spec;
}

inline NetworkSpec with_dropout(NetworkSpec spec) {
  spec.hidden_dropout = 0.1;
  spec.attention_dropout = 0.1;
  return spec;
}

// The network behind an encoder of images.
inline NetworkSpec behind_encoder(NetworkSpec spec, std::int64_t layers, std::int64_t items,
                                  bool frozen) {
  spec.tied_embeddings = false;
  spec.encoder = {.layers = layers,
                  .hidden = 512,
                  .heads = 8,
                  .image_patch = 14,
                  .tokens = 256,
                  .items = items,
                  .frozen = frozen};
  return spec;
}

// Two backbones of different size behind a frozen encoder.
inline NetworkSpec cascaded(NetworkSpec spec, std::int64_t layers, std::int64_t items) {
  spec = behind_encoder(std::move(spec), layers, items, /*frozen=*/true);
  spec.cascade = {.layers = 6, .hidden = 512, .heads = 8, .tokens = 1024};
  return spec;
}

inline const Block& block_named(const Network& network, const std::string& name) {
  for (const Block& block : network.blocks) {
    if (block.name == name) {
      return block;
    }
  }
  throw std::out_of_range(name);
}

inline const Operator& operator_named(const Block& block, const std::string& name) {
  for (const Operator& op : block.operators) {
    if (op.name == name) {
      return op;
    }
  }
  throw std::out_of_range(name);
}

inline const Tensor& tensor_at(const Block& block, int index) {
  return block.tensors.at(static_cast<std::size_t>(index));
}

inline const Tensor& tensor_named(const Block& block, const std::string& name) {
  for (const Tensor& tensor : block.tensors) {
    if (tensor.name == name) {
      return tensor;
    }
  }
  throw std::out_of_range(name);
}

}  // namespace orrery::models
