// SPDX-License-Identifier: Apache-2.0
// The last block: final norm, vocabulary projection, cross-entropy over the vocabulary on fp32
// logits (kept once, 4 bytes each); BERT's transform and pooler; classes of ViT and of decoders
// that classify sequences.
#include "models/blocks.hpp"

namespace orrery::models {
namespace {

// Three values a token, each of which ranks that share the vocabulary reduce: the largest logit,
// the sum of the exponentials below it, and what the loss compares that with, the target's logit
// (Megatron-LM core/tensor_parallel/cross_entropy.py).
void add_loss(BlockBuilder& builder, int logits, Var over) {
  Dims rows = builder.dims(logits);
  rows.pop_back();
  std::vector<int> values;
  for (const char* name : {"largest_logit", "target_logit", "exponentials"}) {
    values.push_back(builder.activation(name, rows, Element::Fp32));
  }
  Operator op{.name = "cross_entropy",
              .kind = OpKind::CrossEntropy,
              .inputs = {logits},
              .outputs = std::move(values),
              .reduced = {over},
              .flops_per_point = 5.0,
              .logits_in_fp32 = true};
  op.saved.push_back({.tensor = logits, .element = Element::Fp32});
  builder.add(std::move(op));
}

void add_vocabulary_loss(BlockBuilder& builder, const NetworkSpec& spec, int input, Var width) {
  const int logits =
      builder.linear("lm_head", input, {width}, {"logits", {{Var::Vocab, spec.vocab}}},
                     {.bias = spec.head_bias, .tied = spec.tied_embeddings});
  builder.block.operators.back().logits_in_fp32 = true;
  add_loss(builder, logits, Var::Vocab);
}

// One token of each sequence (the class token) for a classifier.
int select_class_token(BlockBuilder& builder, const NetworkSpec& spec, int input) {
  const int token = builder.activation("class_token", {kBatchDim, {Var::Hidden, spec.hidden}});
  builder.add({.name = "select_class_token",
               .kind = OpKind::Elementwise,
               .inputs = {input},
               .outputs = {token},
               .reduced = {Var::Seq},
               .bytes_factor = 0.0,  // one row of the input a sequence
               .pointwise = true});
  return token;
}

void add_class_loss(BlockBuilder& builder, int input, std::int64_t classes) {
  const int logits = builder.linear("classifier", input, {Var::Hidden},
                                    {"logits", {{Var::Latent, classes}}}, {.bias = true});
  add_loss(builder, logits, Var::Latent);
}

// Masked-language-model head: transform, activation and norm on the masked positions, then the tied
// decoder. The pooler (next-sentence part) reads the first token of each sequence.
void bert_head(BlockBuilder& builder, const NetworkSpec& spec, int hidden) {
  const Dim width{Var::Latent, spec.hidden};
  const int token = select_class_token(builder, spec, hidden);
  builder.linear("pooler", token, {Var::Hidden}, {"pooled", {width}}, {.bias = true});

  const double share = spec.masked_fraction > 0 ? spec.masked_fraction : 1.0;
  const Dim positions{Var::Seq, kFromWorkload, share};
  const int masked =
      builder.activation("masked", {kBatchDim, positions, {Var::Hidden, spec.hidden}});
  builder.add({.name = "select_masked",
               .kind = OpKind::Permute,
               .inputs = {hidden},
               .outputs = {masked},
               .bytes_factor = 2.0 * share / (1.0 + share),
               .backward_bytes_factor = 1.0});
  const int transformed = builder.linear("head_transform", masked, {Var::Hidden},
                                         {"transformed", {width}}, {.bias = true});
  const int active = add_activation(builder, spec.activation, {transformed}, "head_activation");
  const int normed = builder.norm("head_norm", active, spec.norm);
  add_vocabulary_loss(builder, spec, normed, Var::Latent);
}

}  // namespace

Block head_block(const NetworkSpec& spec) {
  BlockBuilder builder("head", BlockKind::Head, spec.adapters);
  builder.positions = decoder_positions(spec);
  int hidden = builder.activation("hidden", builder.token_dims({{Var::Hidden, spec.hidden}}));
  builder.block.input = hidden;
  if (spec.family == Family::Bert) {
    bert_head(builder, spec, hidden);
    return std::move(builder.block);
  }
  hidden = builder.norm("final_norm", hidden, spec.norm);
  if (spec.classes > 0) {
    const int token = select_class_token(builder, spec, hidden);
    add_class_loss(builder, token, spec.classes);
    return std::move(builder.block);
  }
  if (spec.family == Family::T5 && spec.hidden_dropout > 0) {
    hidden = builder.dropout("final_dropout", hidden);
  }
  add_vocabulary_loss(builder, spec, hidden, Var::Hidden);
  return std::move(builder.block);
}

}  // namespace orrery::models
