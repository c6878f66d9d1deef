// SPDX-License-Identifier: Apache-2.0
#include "models/spec_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "models/spec_fields.hpp"

namespace orrery::models {
namespace {

class Checker {
 public:
  explicit Checker(const std::string& where) : where_(where) {}

  void require(bool condition, std::string_view message, std::string_view hint = {}) const {
    if (!condition) {
      bad_input(where_, message, hint);
    }
  }

 private:
  const std::string& where_;
};

template <class Object>
void check_ranges(const Object& object, std::span<const IntegerField<Object>> fields,
                  const Checker& check) {
  for (const IntegerField<Object>& field : fields) {
    const std::int64_t value = object.*field.member;
    check.require(value >= field.min && value <= field.max,
                  fmt::format("{} is {}", field.key, value),
                  fmt::format("{} to {}", field.min, field.max));
  }
}

template <class Object>
void check_ranges(const Object& object, std::span<const NumberField<Object>> fields,
                  const Checker& check) {
  for (const NumberField<Object>& field : fields) {
    const double value = object.*field.member;
    check.require(std::isfinite(value) && value >= field.min && value <= field.max,
                  fmt::format("{} is {}", field.key, value),
                  fmt::format("{} to {}", field.min, field.max));
  }
}

void check_moe(const NetworkSpec& spec, const Checker& check) {
  const MoeSpec& moe = spec.moe;
  if (moe.experts == 0) {
    check.require(moe == MoeSpec{}, "moe has fields but no experts", "set moe.experts");
    return;
  }
  check.require(moe.top_k >= 1 && moe.top_k <= moe.experts,
                fmt::format("moe.top_k is {} of {} experts", moe.top_k, moe.experts));
  check.require(moe.experts % moe.groups == 0,
                fmt::format("moe.groups is {} of {} experts", moe.groups, moe.experts),
                "a divisor of moe.experts");
  check.require(
      moe.groups_per_token <= moe.groups,
      fmt::format("moe.groups_per_token is {} of {} groups", moe.groups_per_token, moe.groups));
  check.require(moe.top_k <= moe.experts / moe.groups * moe.groups_per_token,
                fmt::format("moe.top_k is {}, but {} groups of {} experts are taken", moe.top_k,
                            moe.groups_per_token, moe.experts / moe.groups));
  check.require(moe.ffn_hidden >= 1, "moe.ffn_hidden is missing", "the width of one expert");
  check.require(moe.first_dense_layers <= spec.layers,
                "moe.first_dense_layers exceeds the number of layers");
  check.require(spec.family == Family::Gpt || spec.family == Family::Llama,
                "experts are modelled in decoder-only networks only");
}

void check_mla(const NetworkSpec& spec, const Checker& check) {
  const MlaSpec& mla = spec.mla;
  if (mla.kv_lora_rank == 0) {
    check.require(mla == MlaSpec{}, "mla has fields but no kv_lora_rank", "set mla.kv_lora_rank");
    return;
  }
  check.require(mla.qk_nope_head_dim >= 1 && mla.qk_rope_head_dim >= 1 && mla.v_head_dim >= 1,
                "mla needs qk_nope_head_dim, qk_rope_head_dim and v_head_dim");
  check.require(spec.kv_heads == spec.heads,
                "with mla every head has its own keys: kv_heads must equal heads");
  check.require(!spec.qk_norm, "qk_norm is not modelled together with mla");
  check.require(spec.position == PositionKind::Rotary, "mla needs rotary positions");
  check.require(spec.family == Family::Gpt || spec.family == Family::Llama,
                "mla is modelled in decoder-only networks only");
}

void check_attention(const NetworkSpec& spec, const Checker& check) {
  check.require(spec.heads % spec.kv_heads == 0,
                fmt::format("{} heads cannot share {} kv_heads evenly", spec.heads, spec.kv_heads),
                "kv_heads must divide heads");
  check.require(spec.global_attention_interval == 0 || spec.sliding_window > 0,
                "global_attention_interval needs a sliding_window");
  const bool relative = spec.position == PositionKind::RelativeBias;
  check.require(!relative || spec.family == Family::T5,
                "relative-bias positions are modelled for the family t5 only");
}

void check_family(const NetworkSpec& spec, const Checker& check) {
  const bool t5 = spec.family == Family::T5;
  const bool vit = spec.family == Family::Vit;
  check.require(t5 == (spec.encoder_layers > 0),
                t5 ? "t5 needs encoder_layers" : "encoder_layers are modelled for t5 only");
  check.require(t5 || spec.decoder_sequence == 0, "decoder_sequence is modelled for t5 only");
  check.require(vit || spec.vocab >= 1, "vocab is missing");
  check.require(!vit || (spec.image_patch >= 1 && spec.classes >= 1),
                "vit needs image_patch and classes");
  check.require(vit || spec.image_patch == 0, "image_patch belongs to the family vit");
  const bool decoder = spec.family == Family::Gpt || spec.family == Family::Llama;
  check.require(spec.classes == 0 || vit ||
                    (decoder && !spec.tied_embeddings && spec.encoder.layers == 0 &&
                     spec.cascade.layers == 0),
                "classes belong to the family vit, or to a decoder without tied_embeddings, "
                "encoder and cascade");
  check.require(spec.family == Family::Bert || spec.masked_fraction == 0,
                "masked_fraction belongs to the family bert");
  const bool layout_fixed = t5 || spec.family == Family::Bert;
  check.require(!layout_fixed || (!spec.parallel_block && !spec.sandwich_norm),
                "parallel_block and sandwich_norm are not modelled for t5 and bert");
  check.require(!(spec.parallel_block && spec.sandwich_norm),
                "parallel_block and sandwich_norm exclude each other");
  check.require(!spec.parallel_mlp_norm || spec.parallel_block,
                "parallel_mlp_norm needs parallel_block");
  const bool all_moe =
      spec.moe.experts > 0 && spec.moe.first_dense_layers == 0 && spec.moe.layer_frequency == 1;
  check.require(all_moe || spec.ffn_hidden >= 1, "ffn_hidden is missing");
}

void check_encoder(const NetworkSpec& spec, const Checker& check) {
  const EncoderSpec& encoder = spec.encoder;
  if (encoder.layers == 0) {
    check.require(encoder == EncoderSpec{}, "encoder has fields but no layers",
                  "set encoder.layers");
    return;
  }
  check.require(spec.family == Family::Gpt || spec.family == Family::Llama,
                "an encoder stands in front of decoder-only networks only", "family gpt or llama");
  check.require(!spec.tied_embeddings, "an encoder needs tied_embeddings = false",
                "the token table is not in the first pipeline stage then");
  check.require(encoder.hidden >= 1 && encoder.heads >= 1 && encoder.tokens >= 1,
                "encoder needs hidden, heads and tokens (of an image or text)");
  check.require(
      encoder.hidden % encoder.heads == 0,
      fmt::format("encoder.hidden {} is not divisible by {} heads", encoder.hidden, encoder.heads));
  check.require((encoder.image_patch > 0) != (encoder.vocab > 0),
                "encoder needs image_patch for images or vocab for texts, one of them");
}

void check_cascade(const NetworkSpec& spec, const Checker& check) {
  const CascadeSpec& cascade = spec.cascade;
  if (cascade.layers == 0) {
    check.require(cascade == CascadeSpec{}, "cascade has fields but no layers",
                  "set cascade.layers");
    return;
  }
  check.require(spec.encoder.layers > 0 && spec.encoder.frozen,
                "both backbones of a cascade read the features of a frozen encoder",
                "give the network an \"encoder\" with \"frozen\": true");
  check.require(spec.adapters.rank == 0, "the backbones of a cascade are trained, without adapters",
                "leave out adapters or cascade");
  check.require(spec.mla.kv_lora_rank == 0 && spec.moe.experts == 0,
                "the backbones of a cascade have neither experts nor latent attention",
                "leave out moe and mla, or cascade");
  check.require(cascade.hidden >= 1 && cascade.heads >= 1 && cascade.tokens >= 1,
                "cascade needs hidden, heads and tokens (of a sample)");
  check.require(
      cascade.hidden % cascade.heads == 0,
      fmt::format("cascade.hidden {} is not divisible by {} heads", cascade.hidden, cascade.heads));
}

void check_adapters(const NetworkSpec& spec, const Checker& check) {
  const AdapterSpec& adapters = spec.adapters;
  if (adapters.rank == 0) {
    check.require(adapters == AdapterSpec{}, "adapters has fields but no rank",
                  "set adapters.rank");
    return;
  }
  const auto targets = adapter_targets();
  check.require(std::any_of(targets.begin(), targets.end(),
                            [&](const auto& target) { return adapters.*target.member; }),
                "adapters.targets is empty", "qkv, o, up or down, or leave it out for all");
  check.require(
      !adapters.shared_by_experts || (spec.moe.experts > 0 && (adapters.up || adapters.down)),
      "adapters.shared_by_experts, but no experts are adapted",
      "leave it out, or give the network moe and the adapters targets up or down");
  check.require(spec.encoder.layers == 0 || spec.encoder.frozen,
                "adapters stand on frozen weights, but the encoder is trained",
                "set encoder.frozen to true");
}

}  // namespace

void check_spec(const NetworkSpec& spec, const std::string& where) {
  const Checker check(where);
  check_ranges(spec, integer_fields(), check);
  check_ranges(spec, number_fields(), check);
  check_ranges(spec.moe, moe_integer_fields(), check);
  check_ranges(spec.moe, moe_number_fields(), check);
  check_ranges(spec.mla, mla_integer_fields(), check);
  check_ranges(spec.encoder, encoder_integer_fields(), check);
  check_ranges(spec.cascade, cascade_integer_fields(), check);
  check_ranges(spec.adapters, adapter_integer_fields(), check);
  check_ranges(spec.adapters, adapter_number_fields(), check);
  check_attention(spec, check);
  check_moe(spec, check);
  check_mla(spec, check);
  check_encoder(spec, check);
  check_cascade(spec, check);
  check_adapters(spec, check);
  check_family(spec, check);
}

}  // namespace orrery::models
