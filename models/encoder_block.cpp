// SPDX-License-Identifier: Apache-2.0
// An encoder in front of a decoder: a vision transformer, or a transformer over texts, whose
// features a projection of two layers puts among the decoder's tokens (Liu et al. 2023, LLaVA-1.5,
// arXiv 2310.03744). The projection belongs to the decoder's embedding, so that an encoder is
// trained or frozen as a whole.
#include "models/blocks.hpp"
#include "models/spec_fields.hpp"

namespace orrery::models {

NetworkSpec encoder_network(const NetworkSpec& spec) {
  const EncoderSpec& encoder = spec.encoder;
  NetworkSpec core;
  core.name = spec.name + " encoder";
  core.family = encoder.image_patch > 0 ? Family::Vit : Family::Gpt;
  core.layers = encoder.layers;
  core.hidden = encoder.hidden;
  core.heads = encoder.heads;
  core.sequence = encoder.tokens;
  NetworkSpec network = with_defaults(core);
  network.causal = false;
  network.ffn_hidden = encoder.ffn_hidden > 0 ? encoder.ffn_hidden : 4 * encoder.hidden;
  network.image_patch = encoder.image_patch;
  network.vocab = encoder.vocab;
  return network;
}

Block encoder_block(const NetworkSpec& spec, Block block) {
  block.name = block.kind == BlockKind::Layer ? "encoder" : "encoder_embedding";
  block.tokens = spec.encoder.tokens;
  block.items = spec.encoder.items;
  if (spec.encoder.frozen) {
    for (Tensor& tensor : block.tensors) {
      tensor.frozen = true;
    }
    settle_gradients(block, /*input_gradient=*/false);
  }
  return block;
}

int add_features(BlockBuilder& builder, const NetworkSpec& spec, int stream) {
  const EncoderSpec& encoder = spec.encoder;
  const Dim items{Var::Batch, kFromWorkload, static_cast<double>(encoder.items)};
  const int features = builder.activation(
      "features", {items, {Var::Seq, encoder.tokens}, {Var::Hidden, encoder.hidden}});
  // Without a gradient for the encoder the features are an input like token ids.
  builder.block.input = encoder.frozen ? -1 : features;
  builder.block.tensors[static_cast<std::size_t>(features)].frozen = encoder.frozen;
  builder.freezes = false;  // trained beside adapters, too
  const int up = builder.linear("projector_up", features, {Var::Hidden},
                                {"projected", {{Var::Ffn, spec.hidden}}}, {.bias = true});
  const int active = add_activation(builder, Activation::Gelu, {up}, "projector_activation");
  const int down =
      builder.linear("projector_down", active, {Var::Ffn},
                     {"projected_features", {{Var::Hidden, spec.hidden}}}, {.bias = true});
  const int merged = builder.activation("merged", builder.dims(stream));
  builder.pointwise("merge_features", {stream, down}, {merged}, {.flops_per_point = 0.0});
  return merged;
}

}  // namespace orrery::models
