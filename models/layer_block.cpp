// SPDX-License-Identifier: Apache-2.0
// A transformer layer: where norms, residual additions and dropout stand around its two or three
// parts. Pre-norm (GPT, LLaMA), post-norm (BERT), parallel (GPT-J, GPT-NeoX), sandwich (Gemma 2),
// and the T5 decoder layer with cross-attention.
#include "models/blocks.hpp"

namespace orrery::models {
namespace {

int stream_activation(BlockBuilder& builder, const NetworkSpec& spec, const std::string& name) {
  return builder.activation(name, builder.token_dims({{Var::Hidden, spec.hidden}}));
}

int attend(BlockBuilder& builder, const NetworkSpec& spec, int input, const LayerVariant& variant) {
  return spec.mla.kv_lora_rank > 0 ? add_mla(builder, spec, input, variant)
                                   : add_attention(builder, spec, input, variant);
}

int feed_forward(BlockBuilder& builder, const NetworkSpec& spec, int input,
                 const LayerVariant& variant) {
  return variant.moe ? add_moe(builder, spec, input)
                     : add_mlp(builder, spec, input, spec.ffn_hidden, "", /*save_input=*/true);
}

// The optional norm of a branch before it is added to the stream.
int finish_branch(BlockBuilder& builder, const NetworkSpec& spec, int branch,
                  const std::string& norm_name) {
  return spec.sandwich_norm ? builder.norm(norm_name, branch, spec.norm) : branch;
}

int pre_norm_layer(BlockBuilder& builder, const NetworkSpec& spec, int hidden, int memory,
                   const LayerVariant& variant) {
  const bool dropout = spec.hidden_dropout > 0;
  const int normed = builder.norm("attention_norm", hidden, spec.norm);
  const int attention =
      finish_branch(builder, spec, attend(builder, spec, normed, variant), "attention_post_norm");
  int stream = builder.residual("attention_residual", attention, hidden, dropout, "residual");
  if (variant.decoder) {
    const int query = builder.norm("cross_norm", stream, spec.norm);
    const int cross =
        add_cross_attention(builder, spec, query, memory, /*save_memory=*/variant.begins_decoder());
    stream = builder.residual("cross_residual", cross, stream, dropout, "residual_cross");
  }
  const int normed_mlp = builder.norm("mlp_norm", stream, spec.norm);
  const int mlp = finish_branch(builder, spec, feed_forward(builder, spec, normed_mlp, variant),
                                "mlp_post_norm");
  return builder.residual("mlp_residual", mlp, stream, dropout, "output");
}

int post_norm_layer(BlockBuilder& builder, const NetworkSpec& spec, int hidden,
                    const LayerVariant& variant) {
  const bool dropout = spec.hidden_dropout > 0;
  const int attention = attend(builder, spec, hidden, variant);
  const int sum = builder.residual("attention_residual", attention, hidden, dropout, "residual");
  const int middle = builder.norm("attention_norm", sum, spec.norm);
  const int mlp = feed_forward(builder, spec, middle, variant);
  const int last = builder.residual("mlp_residual", mlp, middle, dropout, "residual_mlp");
  return builder.norm("mlp_norm", last, spec.norm);
}

int parallel_layer(BlockBuilder& builder, const NetworkSpec& spec, int hidden,
                   const LayerVariant& variant) {
  const bool dropout = spec.hidden_dropout > 0;
  const int normed = builder.norm("attention_norm", hidden, spec.norm);
  const int attention = attend(builder, spec, normed, variant);
  const int normed_mlp = spec.parallel_mlp_norm
                             ? builder.norm("mlp_norm", hidden, spec.norm, /*save_input=*/false)
                             : normed;
  const int mlp = variant.moe ? add_moe(builder, spec, normed_mlp)
                              : add_mlp(builder, spec, normed_mlp, spec.ffn_hidden, "",
                                        /*save_input=*/spec.parallel_mlp_norm);
  const int sum = builder.residual("attention_residual", attention, hidden, dropout, "residual");
  return builder.residual("mlp_residual", mlp, sum, dropout, "output");
}

std::string layer_name(const NetworkSpec& spec, const LayerVariant& variant) {
  std::string name = variant.moe ? "moe" : "dense";
  if (spec.family == Family::T5) {
    name = variant.decoder ? "decoder" : "encoder";
  }
  if (variant.first) {
    name += "_first";
  }
  return variant.windowed ? name + "_window" : name;
}

// The first decoder layer closes the encoder (its final norm) and embeds the decoder's tokens.
int start_decoder(BlockBuilder& builder, const NetworkSpec& spec, int encoder_stream) {
  int memory = builder.norm("encoder_final_norm", encoder_stream, spec.norm);
  if (spec.hidden_dropout > 0) {
    memory = builder.dropout("encoder_dropout", memory);
  }
  builder.block.memory = memory;
  builder.positions = decoder_positions(spec);
  return add_embedding(builder, spec, "decoder_", /*tied=*/true);
}

}  // namespace

Dim decoder_positions(const NetworkSpec& spec) {
  Dim positions = kSeqDim;
  if (spec.decoder_sequence > 0) {
    positions.scale =
        static_cast<double>(spec.decoder_sequence) / static_cast<double>(spec.sequence);
  }
  return positions;
}

Block layer_block(const NetworkSpec& spec, const LayerVariant& variant) {
  BlockBuilder builder(layer_name(spec, variant), BlockKind::Layer, spec.adapters);
  if (variant.decoder && !variant.begins_decoder()) {
    builder.block.memory = stream_activation(builder, spec, "memory");
    builder.positions = decoder_positions(spec);
  }
  int hidden = stream_activation(builder, spec, "hidden");
  builder.block.input = hidden;
  if (variant.begins_decoder()) {
    hidden = start_decoder(builder, spec, hidden);
  }
  if (spec.family == Family::Bert) {
    builder.block.output = post_norm_layer(builder, spec, hidden, variant);
  } else if (spec.parallel_block) {
    builder.block.output = parallel_layer(builder, spec, hidden, variant);
  } else {
    builder.block.output = pre_norm_layer(builder, spec, hidden, builder.block.memory, variant);
  }
  return std::move(builder.block);
}

}  // namespace orrery::models
