// SPDX-License-Identifier: Apache-2.0
// The first block: gather of the token table, learned positions (and token types of BERT), norm and
// dropout; for ViT the patch projection, a GEMM over the pixels of a patch.
#include "models/blocks.hpp"
#include "models/positions.hpp"

namespace orrery::models {
namespace {

constexpr std::int64_t kTokenTypes = 2;
constexpr std::int64_t kColourChannels = 3;

int gather_tokens(BlockBuilder& builder, const NetworkSpec& spec, const std::string& prefix,
                  bool tied) {
  const int ids = builder.activation(prefix + "tokens", builder.token_dims({}), Element::Int64);
  const int table = builder.weight(prefix + "w_tokens",
                                   {{Var::Vocab, spec.vocab}, {Var::Hidden, spec.hidden}}, tied);
  const int output = builder.activation(prefix + "token_embedding",
                                        builder.token_dims({{Var::Hidden, spec.hidden}}));
  builder.add({.name = prefix + "token_gather",
               .kind = OpKind::Embedding,
               .inputs = {ids},
               .weights = {table},
               .outputs = {output},
               .reduced = {Var::Vocab}});
  return output;
}

int project_patches(BlockBuilder& builder, const NetworkSpec& spec) {
  const std::int64_t pixels = kColourChannels * spec.image_patch * spec.image_patch;
  const int image = builder.activation("pixels", builder.token_dims({{Var::Latent, pixels}}));
  builder.block.tensors[static_cast<std::size_t>(image)].frozen = true;  // as data are
  return builder.linear("patch_projection", image, {Var::Latent},
                        {"patch_embedding", {{Var::Hidden, spec.hidden}}}, {.bias = true});
}

int add_positions(BlockBuilder& builder, const NetworkSpec& spec, int input) {
  const Dim hidden{Var::Hidden, spec.hidden};
  const int output = builder.activation("position_sum", builder.token_dims({hidden}));
  const int table = builder.weight("w_positions", {{Var::Position, position_rows(spec)}, hidden});
  Operator& op = builder.pointwise("position_add", {input}, {output}, {.flops_per_point = 1.0});
  op.weights.push_back(table);
  if (spec.family == Family::Bert) {
    op.weights.push_back(builder.weight("w_token_types", {{Var::Latent, kTokenTypes}, hidden}));
  } else if (spec.family == Family::Vit) {
    op.weights.push_back(builder.weight("w_class_token", {hidden}));
  }
  return output;
}

}  // namespace

int add_embedding(BlockBuilder& builder, const NetworkSpec& spec, const std::string& prefix,
                  bool tied) {
  int stream = spec.family == Family::Vit ? project_patches(builder, spec)
                                          : gather_tokens(builder, spec, prefix, tied);
  if (spec.position == PositionKind::Learned) {
    stream = add_positions(builder, spec, stream);
  }
  if (spec.embedding_norm) {
    stream = builder.norm(prefix + "embedding_norm", stream, spec.norm);
  }
  if (spec.hidden_dropout > 0) {
    stream = builder.dropout(prefix + "embedding_dropout", stream);
  }
  return stream;
}

Block embedding_block(const NetworkSpec& spec) {
  BlockBuilder builder("embedding", BlockKind::Embedding, spec.adapters);
  builder.block.output = add_embedding(builder, spec, "", /*tied=*/false);
  if (spec.encoder.layers > 0) {
    builder.block.output = add_features(builder, spec, builder.block.output);
  }
  return std::move(builder.block);
}

}  // namespace orrery::models
