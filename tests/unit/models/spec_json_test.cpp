// SPDX-License-Identifier: Apache-2.0
// The native document: defaults, strictness, and the rules between fields.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/unit/models/specs.hpp"

namespace orrery::models {
namespace {

using testing::HasSubstr;

Json minimal() {
  return parse_json(R"({"schema": "orrery-network", "version": 1, "name": "n", "family": "gpt",
                        "layers": 2, "hidden": 64, "heads": 4, "sequence": 128, "vocab": 100})",
                    "minimal");
}

std::string refusal(const Json& document) {
  try {
    read_network(document, "net.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "accepted";
}

std::string refusal_with(std::string_view key, Json value) {
  Json document = minimal();
  document.set(key, std::move(value));
  return refusal(document);
}

TEST(NetworkDocument, FillsWhatAFamilyImplies) {
  const NetworkSpec gpt = read_network_spec(minimal(), "minimal");
  EXPECT_EQ(gpt.head_dim, 16);
  EXPECT_EQ(gpt.kv_heads, 4);
  EXPECT_EQ(gpt.ffn_hidden, 256);
  EXPECT_TRUE(gpt.attention_bias && gpt.mlp_bias && gpt.tied_embeddings && gpt.causal);
  Json document = minimal();
  document.set("family", "llama");
  document.set("ffn_hidden", 128);
  const NetworkSpec llama = read_network_spec(document, "minimal");
  EXPECT_EQ(llama.norm, NormKind::RmsNorm);
  EXPECT_EQ(llama.activation, Activation::SwiGlu);
  EXPECT_FALSE(llama.attention_bias || llama.mlp_bias || llama.tied_embeddings);
}

TEST(NetworkDocument, OutputBiasFollowsTheAttentionBias) {
  Json document = minimal();
  document.set("attention_bias", false);
  EXPECT_FALSE(read_network_spec(document, "minimal").attention_output_bias);
  document.set("attention_output_bias", true);
  EXPECT_TRUE(read_network_spec(document, "minimal").attention_output_bias);
}

TEST(NetworkDocument, NamesUnknownKeysAndTheirNeighbours) {
  const std::string message = refusal_with("hiden_dropout", 0.1);
  EXPECT_THAT(message, HasSubstr("net.json"));
  EXPECT_THAT(message, HasSubstr("hidden_dropout"));
  EXPECT_THAT(refusal_with("activation", "swiglue"), HasSubstr("swiglu"));
  EXPECT_THAT(refusal_with("family", "lama"), HasSubstr("llama"));
}

TEST(NetworkDocument, RefusesWrongTypesAndAbsurdValues) {
  EXPECT_THAT(refusal_with("layers", "many"), HasSubstr("layers"));
  EXPECT_THAT(refusal_with("layers", 2.5), HasSubstr("layers"));
  EXPECT_THAT(refusal_with("layers", -1), HasSubstr("layers"));
  EXPECT_THAT(refusal_with("layers", std::int64_t{1} << 40), HasSubstr("layers"));
  EXPECT_THAT(refusal_with("hidden_dropout", 1.5), HasSubstr("hidden_dropout"));
  EXPECT_THAT(refusal_with("vocab", 0), HasSubstr("vocab"));
  EXPECT_THAT(refusal_with("tied_embeddings", 1), HasSubstr("tied_embeddings"));
  EXPECT_THAT(refusal_with("version", 2), HasSubstr("version"));
  EXPECT_THAT(refusal_with("schema", "orrery-plan"), HasSubstr("schema"));
  EXPECT_THAT(refusal_with("name", ""), HasSubstr("name"));
  EXPECT_THAT(refusal(Json::array()), HasSubstr("object"));
}

// Empty parts would silently be none.
TEST(NetworkDocument, PartsHaveASize) {
  for (const auto& [part, size] : {std::pair{"moe", "experts"}, std::pair{"mla", "kv_lora_rank"},
                                   std::pair{"encoder", "layers"}, std::pair{"cascade", "layers"},
                                   std::pair{"adapters", "rank"}}) {
    const std::string message = refusal_with(part, Json::object());
    EXPECT_THAT(message, HasSubstr(std::string("/") + part));
    EXPECT_THAT(message, HasSubstr(size));
  }
}

TEST(NetworkDocument, RefusesContradictions) {
  EXPECT_THAT(refusal_with("heads", 5), HasSubstr("not divisible"));
  EXPECT_THAT(refusal_with("kv_heads", 3), HasSubstr("kv_heads"));
  EXPECT_THAT(refusal_with("encoder_layers", 2), HasSubstr("t5"));
  EXPECT_THAT(refusal_with("decoder_sequence", 128), HasSubstr("t5"));
  EXPECT_THAT(refusal_with("image_patch", 16), HasSubstr("vit"));
  EXPECT_THAT(refusal_with("masked_fraction", 0.15), HasSubstr("bert"));
  EXPECT_THAT(refusal_with("position", "relative-bias"), HasSubstr("t5"));
  EXPECT_THAT(refusal_with("global_attention_interval", 2), HasSubstr("sliding_window"));
  EXPECT_THAT(refusal_with("ffn_hidden", 0), HasSubstr("ffn_hidden"));
  EXPECT_THAT(refusal_with("parallel_mlp_norm", true), HasSubstr("parallel_block"));
  EXPECT_THAT(refusal_with("moe", Json(Json::Object{{"top_k", 2}})), HasSubstr("experts"));
  EXPECT_THAT(refusal_with("moe", Json(Json::Object{{"experts", 2}, {"top_k", 3}})),
              HasSubstr("top_k"));
  EXPECT_THAT(refusal_with("mla", Json(Json::Object{{"kv_lora_rank", 8}})), HasSubstr("mla"));
}

TEST(NetworkDocument, RefusesMoreParametersThanAnyNetworkHas) {
  Json document = minimal();
  document.set("layers", 16384);
  document.set("hidden", 1 << 20);
  document.set("heads", 64);
  EXPECT_THAT(refusal(document), HasSubstr("parameters"));
  document.set("hidden", 1 << 12);
  document.set("moe",
               Json(Json::Object{{"experts", 65536}, {"top_k", 1}, {"ffn_hidden", 1 << 22}}));
  EXPECT_THAT(refusal(document), HasSubstr("parameters"));
}

TEST(NetworkDocument, SpecsBuiltInCodeObeyTheSameRanges) {
  NetworkSpec spec = small_spec(Family::Gpt);
  spec.layers = 0;
  EXPECT_THROW(build_network(spec, "code"), Error);
  spec = small_spec(Family::Gpt);
  spec.hidden_dropout = -1;
  EXPECT_THROW(build_network(spec, "code"), Error);
}

TEST(NetworkDocument, OmitsWhatIsImplied) {
  const Json json = to_json(read_network_spec(minimal(), "minimal"));
  EXPECT_EQ(json.find("head_dim"), nullptr);
  EXPECT_EQ(json.find("moe"), nullptr);
  EXPECT_EQ(json.as_object().size(), minimal().as_object().size());
}

}  // namespace
}  // namespace orrery::models
