// SPDX-License-Identifier: Apache-2.0
// Random networks: FLOPs and parameters by a second, independent count; documents read back equal;
// totals grow with every size; hostile documents give an Error.
#include "models/network.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"
#include "models/config_import.hpp"
#include "models/spec_fields.hpp"
#include "tests/folders.hpp"

namespace orrery::models {
namespace {

using Wide = __int128;

std::int64_t pick(std::int64_t low, std::int64_t high) { return *rc::gen::inRange(low, high + 1); }

NetworkSpec random_spec() {
  NetworkSpec core;
  core.name = "random";
  core.family = *rc::gen::element(Family::Gpt, Family::Llama);
  core.layers = pick(1, 12);
  core.heads = std::int64_t{1} << pick(0, 6);
  core.hidden = core.heads * pick(1, 40) * 8;
  core.sequence = pick(1, 5000);
  core.attention_bias = *rc::gen::arbitrary<bool>();
  NetworkSpec spec = with_defaults(core);
  spec.kv_heads = core.heads >> pick(0, 2);
  spec.kv_heads = spec.kv_heads > 0 ? spec.kv_heads : 1;
  spec.head_dim = pick(1, 256);
  spec.ffn_hidden = pick(1, 20000);
  spec.vocab = pick(1, 300000);
  spec.mlp_bias = *rc::gen::arbitrary<bool>();
  spec.tied_embeddings = *rc::gen::arbitrary<bool>();
  spec.hidden_dropout = *rc::gen::element(0.0, 0.1);
  spec.attention_dropout = *rc::gen::element(0.0, 0.1);
  spec.activation = *rc::gen::element(Activation::Gelu, Activation::SwiGlu, Activation::GeGlu);
  if (*rc::gen::arbitrary<bool>()) {
    spec.moe.experts = pick(1, 64);
    spec.moe.top_k = pick(1, spec.moe.experts);
    spec.moe.ffn_hidden = pick(1, 4000);
    spec.moe.shared_ffn_hidden = pick(0, 1) * pick(1, 4000);
    spec.moe.first_dense_layers = pick(0, spec.layers);
  }
  return spec;
}

std::int64_t moe_layers(const NetworkSpec& spec) {
  return spec.moe.experts > 0 ? spec.layers - spec.moe.first_dense_layers : 0;
}

Wide mlp_matrices(const NetworkSpec& spec) { return spec.activation == Activation::Gelu ? 2 : 3; }

// Weights of the matrix products met by one token in all layers.
Wide matrix_weights_per_token(const NetworkSpec& spec) {
  const Wide h = spec.hidden;
  const Wide attention = 2 * h * spec.heads * spec.head_dim + 2 * h * spec.kv_heads * spec.head_dim;
  const Wide dense = mlp_matrices(spec) * h * spec.ffn_hidden;
  const Wide experts = h * spec.moe.experts + mlp_matrices(spec) * h *
                                                  (Wide{spec.moe.top_k} * spec.moe.ffn_hidden +
                                                   spec.moe.shared_ffn_hidden);
  const Wide moe = moe_layers(spec);
  return spec.layers * attention + (spec.layers - moe) * dense + moe * experts + h * spec.vocab;
}

TEST(NetworkProperty, FlopsByDoubleEntry) {
  EXPECT_TRUE(rc::check("six times the weights a token meets, and the attention term", [] {
    const NetworkSpec spec = random_spec();
    const Workload work{.batch = pick(1, 64), .sequence = pick(1, 8192)};
    const Wide tokens = Wide{work.batch} * work.sequence;
    const Wide attention = 12 * tokens * work.sequence * spec.heads * spec.head_dim * spec.layers;
    const auto expected =
        static_cast<double>(6 * tokens * matrix_weights_per_token(spec) + attention);
    const double counted = model_flops(build_network(spec, "random"), work).value();
    RC_ASSERT(std::abs(counted - expected) <= 1e-12 * expected);
  }));
}

TEST(NetworkProperty, ParametersByDoubleEntry) {
  EXPECT_TRUE(rc::check("matrices, biases, norms and tables", [] {
    NetworkSpec spec = random_spec();
    spec.moe = {};
    const Wide h = spec.hidden;
    const Wide q = Wide{spec.heads} * spec.head_dim;
    const Wide kv = Wide{spec.kv_heads} * spec.head_dim;
    const Wide f = spec.ffn_hidden;
    const Wide norm = spec.norm == NormKind::LayerNorm ? 2 * h : h;
    Wide layer = 2 * h * q + 2 * h * kv + mlp_matrices(spec) * h * f + 2 * norm;
    layer += spec.attention_bias ? q + 2 * kv : 0;
    layer += spec.attention_output_bias ? h : 0;
    layer += spec.mlp_bias ? (mlp_matrices(spec) - 1) * f + h : 0;
    const Wide positions = spec.position == PositionKind::Learned ? spec.sequence * h : 0;
    const Wide tables = (spec.tied_embeddings ? 1 : 2) * h * spec.vocab;
    RC_ASSERT(Wide{num_parameters(build_network(spec, "random"))} ==
              layer * spec.layers + positions + tables + norm);
  }));
}

TEST(NetworkProperty, SavedBytesByDoubleEntry) {
  EXPECT_TRUE(rc::check("a dense layer under every policy", [] {
    NetworkSpec spec = random_spec();
    spec.moe = {};
    const Workload work{.batch = pick(1, 64), .sequence = pick(1, 8192)};
    const SavedPolicy policy{.fused_attention = *rc::gen::arbitrary<bool>(),
                             .selective = *rc::gen::arbitrary<bool>()};
    const Wide bs = Wide{work.batch} * work.sequence;
    const Wide q = Wide{spec.heads} * spec.head_dim;
    const Wide kv = Wide{spec.kv_heads} * spec.head_dim;
    const Wide inner = spec.activation == Activation::Gelu ? 4 : 6;
    Wide bytes = bs * (8 * Wide{spec.hidden} + 4 * q + 4 * kv + inner * spec.ffn_hidden);
    bytes += spec.hidden_dropout > 0 ? 2 * bs * spec.hidden : 0;
    if (policy.fused_attention) {
      bytes += 4 * bs * spec.heads;
    } else if (!policy.selective) {
      bytes += (spec.attention_dropout > 0 ? 5 : 2) * bs * work.sequence * spec.heads;
    }
    const Network network = build_network(spec, "random");
    RC_ASSERT(saved_bytes(network.blocks.at(1), work, policy) == static_cast<double>(bytes));
  }));
}

TEST(NetworkProperty, DocumentsReadBackEqual) {
  EXPECT_TRUE(rc::check("parse(print(spec)) = spec", [] {
    const NetworkSpec spec = random_spec();
    const Json document = parse_json(to_json(spec).dump(*rc::gen::element(-1, 2)), "printed");
    RC_ASSERT(read_network_spec(document, "printed") == spec);
  }));
}

TEST(NetworkProperty, TotalsGrowWithEverySize) {
  EXPECT_TRUE(rc::check("flops, parameters and saved bytes are monotone", [] {
    const NetworkSpec spec = random_spec();
    NetworkSpec larger = spec;
    const auto grow =
        *rc::gen::element(&NetworkSpec::layers, &NetworkSpec::hidden, &NetworkSpec::ffn_hidden,
                          &NetworkSpec::vocab, &NetworkSpec::head_dim);
    larger.*grow += pick(1, 100);
    const Network a = build_network(spec, "a");
    const Network b = build_network(larger, "b");
    const Workload work{.batch = 2, .sequence = 128};
    RC_ASSERT(num_parameters(b) >= num_parameters(a));
    RC_ASSERT(model_flops(b, work) >= model_flops(a, work));
    RC_ASSERT(saved_bytes(b.blocks.back(), work, {}) >= saved_bytes(a.blocks.back(), work, {}));
    RC_ASSERT(model_flops(a, {.batch = 3, .sequence = 128}) > model_flops(a, work));
    RC_ASSERT(model_flops(a, work, true) <= model_flops(a, work));
  }));
}

Json random_value() {
  switch (*rc::gen::inRange(0, 6)) {
    case 0:
      return Json();
    case 1:
      return Json(*rc::gen::arbitrary<bool>());
    case 2:
      return Json(*rc::gen::arbitrary<std::int64_t>());
    case 3:
      return Json(static_cast<double>(*rc::gen::arbitrary<std::int64_t>()) / 7.0);
    case 4:
      return Json(*rc::gen::arbitrary<std::string>());
    default:
      return Json(Json::Object{{"experts", *rc::gen::arbitrary<std::int64_t>()}});
  }
}

// A sound document with some members replaced.
Json damaged(Json document) {
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    const auto index = *rc::gen::inRange<std::size_t>(0, document.as_object().size());
    document.as_object()[index].second = random_value();
  }
  return document;
}

template <class Read>
void value_or_error(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    RC_ASSERT(std::string(error.what()).size() <= 4000U);
  }
}

TEST(NetworkProperty, DamagedDocumentsGiveANetworkOrAnError) {
  EXPECT_TRUE(rc::check("native", [] {
    const Json document = damaged(to_json(random_spec()));
    value_or_error([&] { read_network(document, "damaged"); });
  }));
  EXPECT_TRUE(rc::check("config.json", [] {
    const std::string folder = orrery::test_folder().string() + "/data/hf/";
    const std::string name = *rc::gen::element<std::string>(
        "gpt2", "llama3.1-8b", "deepseek-v3", "qwen1.5-moe-a2.7b", "t5-base", "vit-base-16");
    const Json document = damaged(read_json_file(folder + name + ".json"));
    value_or_error([&] { build_network(import_hugging_face(document, "damaged"), "damaged"); });
  }));
}

}  // namespace
}  // namespace orrery::models
