// SPDX-License-Identifier: Apache-2.0
// The parts of a layer and the blocks made of them, one file per part. FLOPs count a multiply-add
// as two; every activation an operator needs backward is saved once. Nothing here knows sharding.
// Sources: Vaswani et al. 2017, Korthikanti et al. 2022 (saved activations), Touvron et al. 2023
// (LLaMA), DeepSeek-AI 2024 (MLA, shared experts), Raffel et al. 2020 (T5), Devlin et al. 2019
// (BERT), Dosovitskiy et al. 2021 (ViT).
#pragma once

#include "models/block_builder.hpp"
#include "models/network.hpp"

namespace orrery::models {

// Layers differ in these choices only.
struct LayerVariant {
  bool moe = false;
  bool windowed = false;
  bool decoder = false;  // T5: cross-attention to the encoder's output
  // Of its stack, where the first layer has something of its own: the decoder's embeds its tokens,
  // either one's holds the table of relative positions.
  bool first = false;
  bool causal = true;
  bool begins_decoder() const { return decoder && first; }
  bool operator==(const LayerVariant&) const = default;
};

// Both take the normalised stream and return what is added to the residual stream.
int add_attention(BlockBuilder& builder, const NetworkSpec& spec, int input,
                  const LayerVariant& variant);
int add_cross_attention(BlockBuilder& builder, const NetworkSpec& spec, int input, int memory,
                        bool save_memory);
int add_mla(BlockBuilder& builder, const NetworkSpec& spec, int input, const LayerVariant& variant);
// The dense feed-forward network of width `ffn`; prefix "" or "shared_".
int add_mlp(BlockBuilder& builder, const NetworkSpec& spec, int input, std::int64_t ffn,
            const std::string& prefix, bool save_input);
int add_moe(BlockBuilder& builder, const NetworkSpec& spec, int input);

// The attention core over q, k, v and its info, for the three attentions above.
struct AttentionCore {
  std::string name = "attention";
  int q = 0;
  int k = 0;
  int v = 0;
  bool cross = false;
};
int add_attention_core(BlockBuilder& builder, const NetworkSpec& spec, const AttentionCore& core);

// Activation function between the two feed-forward GEMMs: one input, or gate and up.
bool is_gated(Activation activation);
int add_activation(BlockBuilder& builder, Activation activation, const std::vector<int>& inputs,
                   const std::string& name);

// Gather of the token table, learned positions, norm and dropout of the embedding.
int add_embedding(BlockBuilder& builder, const NetworkSpec& spec, const std::string& prefix,
                  bool tied);

Block embedding_block(const NetworkSpec& spec);
// An encoder in front of a decoder as a network of its own, and its blocks within the decoder's
// network: as its embedding or layers, with its own tokens and items.
NetworkSpec encoder_network(const NetworkSpec& spec);
Block encoder_block(const NetworkSpec& spec, Block block);
// The second backbone of a cascade as a network of its own, and its blocks within the whole.
NetworkSpec cascade_network(const NetworkSpec& spec);
Block cascade_block(const NetworkSpec& spec, Block block);
// Projects the features of the encoder to the decoder's width and puts them into its stream.
int add_features(BlockBuilder& builder, const NetworkSpec& spec, int stream);
// Of a text of the decoder: a share of the sequence where it has a length of its own.
Dim decoder_positions(const NetworkSpec& spec);
Block layer_block(const NetworkSpec& spec, const LayerVariant& variant);
Block head_block(const NetworkSpec& spec);

}  // namespace orrery::models
