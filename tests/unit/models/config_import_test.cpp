// SPDX-License-Identifier: Apache-2.0
// What importers read, ignore and refuse.
#include "models/config_import.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/folders.hpp"
#include "tests/unit/models/specs.hpp"

namespace orrery::models {
namespace {

using testing::HasSubstr;
using testing::Not;

Json sample(const std::string& name) {
  return read_json_file(orrery::test_folder().string() + "/data/hf/" + name + ".json");
}

std::string refusal(const std::string& name, std::string_view key, Json value) {
  Json document = sample(name);
  document.set(key, std::move(value));
  try {
    import_hugging_face(document, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

NetworkSpec import_with(const std::string& name, std::string_view key, Json value) {
  Json document = sample(name);
  document.set(key, std::move(value));
  return import_hugging_face(document, "config.json");
}

TEST(ConfigImport, IsRecognised) {
  EXPECT_TRUE(is_hugging_face_config(sample("gpt2")));
  EXPECT_FALSE(is_hugging_face_config(load_network("gpt2").document));
  EXPECT_FALSE(is_hugging_face_config(Json::array()));
}

TEST(ConfigImport, TakesTheLengthBeforeARotaryStretch) {
  EXPECT_EQ(import_hugging_face(sample("llama3.1-8b"), "c").sequence, 8192);
  EXPECT_EQ(import_hugging_face(sample("qwen3-8b"), "c").sequence, 40960);
}

TEST(ConfigImport, IgnoresWhatDoesNotMatter) {
  const NetworkSpec spec = import_with("llama3.1-8b", "some_future_member", "x");
  EXPECT_EQ(spec, import_hugging_face(sample("llama3.1-8b"), "c"));
}

TEST(ConfigImport, StorageInFp8LeavesTheNetworkAsItIs) {
  const Json storage(Json::Object{{"activation_scheme", "dynamic"},
                                  {"fmt", "e4m3"},
                                  {"quant_method", "fp8"},
                                  {"weight_block_size", Json::Array{Json(128), Json(128)}}});
  EXPECT_EQ(import_with("deepseek-v3", "quantization_config", storage),
            import_hugging_face(sample("deepseek-v3"), "c"));
  EXPECT_EQ(import_with("llama3.1-8b", "quantization_config", Json()),
            import_hugging_face(sample("llama3.1-8b"), "c"));
}

// DeepSeek's "greedy" router takes any experts, whatever groups are stated beside it.
TEST(ConfigImport, GroupsOfExpertsCountWhereTheRouterTakesSome) {
  const auto groups = [](const char* name, const char* method, bool stated = true) {
    Json config = sample(name);
    config.set("n_group", 8);
    config.set("topk_group", 3);
    config.set("topk_method", stated ? Json(method) : Json());
    const MoeSpec moe = import_hugging_face(config, "c").moe;
    return std::pair(moe.groups, moe.groups_per_token);
  };
  EXPECT_EQ(groups("deepseek-v3", "greedy"), std::pair(1L, 1L));
  EXPECT_EQ(groups("deepseek-v3", "noaux_tc"), std::pair(8L, 3L));
  EXPECT_EQ(groups("deepseek-v2-lite", "greedy"), std::pair(1L, 1L));
  EXPECT_EQ(groups("deepseek-v2-lite", "group_limited_greedy"), std::pair(8L, 3L));
  EXPECT_EQ(groups("deepseek-v3", "", false), std::pair(8L, 3L));
  EXPECT_EQ(groups("deepseek-v2-lite", "", false), std::pair(1L, 1L));
  EXPECT_THAT(refusal("deepseek-v3", "topk_method", Json("gready")), HasSubstr("greedy"));
}

TEST(ConfigImport, RefusesOtherQuantisation) {
  for (const char* method : {"gptq", "awq", "bitsandbytes", "compressed-tensors"}) {
    EXPECT_THAT(
        refusal("llama3.1-8b", "quantization_config", Json(Json::Object{{"quant_method", method}})),
        HasSubstr(method));
  }
  EXPECT_THAT(
      refusal("llama3.1-8b", "quantization_config", Json(Json::Object{{"load_in_4bit", true}})),
      HasSubstr("quantised"));
}

TEST(ConfigImport, RefusesWhatChangesTheNetworkUnmodelled) {
  EXPECT_THAT(refusal("llama3.1-8b", "num_experts", 8), HasSubstr("num_experts"));
  EXPECT_THAT(refusal("mixtral-8x7b", "moe_every_other", true), HasSubstr("moe_every_other"));
  EXPECT_THAT(refusal("qwen3-30b-a3b", "decoder_sparse_step", 2), HasSubstr("decoder_sparse"));
  EXPECT_THAT(refusal("qwen3-30b-a3b", "mlp_only_layers", Json(Json::Array{Json(5)})),
              HasSubstr("mlp_only_layers"));
  EXPECT_THAT(refusal("opt-1.3b", "do_layer_norm_before", false), HasSubstr("do_layer_norm"));
  EXPECT_THAT(refusal("opt-1.3b", "word_embed_proj_dim", 512), HasSubstr("word_embed_proj_dim"));
  EXPECT_THAT(refusal("bert-base", "position_embedding_type", "relative_key"),
              HasSubstr("position"));
  EXPECT_THAT(refusal("gpt2", "add_cross_attention", true), HasSubstr("add_cross_attention"));
  EXPECT_THAT(refusal("vit-base-16", "patch_size", 15), HasSubstr("multiple"));
  EXPECT_THAT(refusal("gpt2", "n_head", 7),
              HasSubstr("config.json: hidden size 768 is not divisible by 7 heads"));
  EXPECT_THAT(refusal("t5-base", "feed_forward_proj", "gated-silu"), HasSubstr("gated-gelu"));
}

TEST(ConfigImport, RefusesLayersOutOfOrder) {
  EXPECT_THAT(refusal("llama4-scout", "interleave_moe_layer_step", 5),
              HasSubstr("/interleave_moe_layer_step"));
  EXPECT_THAT(refusal("ernie4.5-21b", "moe_layer_end_index", 20), HasSubstr("-1"));
  EXPECT_THAT(refusal("ernie4.5-21b", "moe_layer_interval", 2), HasSubstr("moe_layer_interval"));
}

// Llama 4 Maverick: 400 billion parameters with experts in every second layer.
TEST(ConfigImport, ExpertsInEverySecondLayer) {
  Json document = sample("llama4-scout");
  document.set("interleave_moe_layer_step", 2);
  document.set("num_local_experts", 128);
  const Network network = build_network(import_hugging_face(document, "c"), "c");
  EXPECT_NEAR(static_cast<double>(num_parameters(network)) / 1e9, 400.7, 0.4);
}

TEST(ConfigImport, ImagesAndTextsNameTheTextPart) {
  EXPECT_THAT(refusal("llama4-scout", "model_type", "llama4"), Not(HasSubstr("text_config")));
  Json document(Json::Object{{"model_type", "gemma3"}, {"text_config", Json::object()}});
  try {
    import_hugging_face(document, "config.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("text_config"));
  }
}

TEST(ConfigImport, MembersWithTwoNames) {
  Json stretched(Json::Object{{"original_max_position_embeddings", 4096}});
  EXPECT_EQ(import_with("smollm3-3b", "rope_parameters", stretched).sequence, 4096);
  EXPECT_EQ(import_with("olmo2-7b", "rope_parameters", stretched).sequence, 4096);
  Json bloom = sample("bloom-7b1");
  bloom.set("n_layer", Json());
  bloom.set("num_hidden_layers", 2);
  EXPECT_EQ(import_hugging_face(bloom, "c").layers, 2);
}

TEST(ConfigImport, HeadsOfFalcon) {
  EXPECT_EQ(import_with("falcon-40b", "new_decoder_architecture", false).kv_heads, 1);
  EXPECT_EQ(import_hugging_face(sample("falcon-40b"), "c").kv_heads, 8);
  EXPECT_FALSE(import_with("falcon-40b", "num_ln_in_parallel_attn", 1).parallel_mlp_norm);
}

TEST(ConfigImport, RefusesWrongTypesAndMissingMembers) {
  EXPECT_THAT(refusal("llama3.1-8b", "hidden_size", "wide"), HasSubstr("/hidden_size"));
  EXPECT_THAT(refusal("llama3.1-8b", "hidden_size", Json()), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal("llama3.1-8b", "hidden_size", -4096), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal("llama3.1-8b", "hidden_act", "sine"), HasSubstr("sine"));
  EXPECT_THAT(refusal("gpt2", "n_layer", Json()), HasSubstr("n_layer"));
  EXPECT_THAT(refusal("gpt2", "model_type", "gpt3"), HasSubstr("gpt2"));
  EXPECT_THAT(refusal("gpt2", "model_type", Json()), HasSubstr("model_type"));
}

TEST(ConfigImport, MistralWithoutAWindowHasItsDefault) {
  Json document = sample("mistral-7b");
  EXPECT_EQ(import_hugging_face(document, "c").sliding_window, 4096);
  document.set("sliding_window", Json());
  EXPECT_EQ(import_hugging_face(document, "c").sliding_window, 0);
}

TEST(ConfigImport, ReadsPatternsOfLayerTypes) {
  const auto types = [](std::initializer_list<const char*> names) {
    Json list = Json::array();
    for (const char* name : names) {
      list.push(name);
    }
    return list;
  };
  Json document = sample("gemma2-9b");
  document.set("num_hidden_layers", 4);
  document.set("layer_types", types({"sliding_attention", "full_attention", "sliding_attention",
                                     "full_attention"}));
  EXPECT_EQ(import_hugging_face(document, "c").global_attention_interval, 2);
  document.set("layer_types",
               types({"full_attention", "full_attention", "full_attention", "full_attention"}));
  EXPECT_EQ(import_hugging_face(document, "c").sliding_window, 0);
  document.set("layer_types", types({"full_attention", "sliding_attention", "sliding_attention",
                                     "full_attention"}));
  EXPECT_THROW(import_hugging_face(document, "c"), Error);
}

TEST(ConfigImport, ClassesAreTheLabels) {
  const NetworkSpec spec = import_with(
      "vit-base-16", "id2label", Json(Json::Object{{"0", "cat"}, {"1", "dog"}, {"2", "owl"}}));
  EXPECT_EQ(spec.classes, 3);
  EXPECT_EQ(spec.sequence, 197);
}

TEST(ConfigImport, DuplicatesAreErrors) {
  EXPECT_THROW(parse_json(R"({"model_type": "gpt2", "n_layer": 1, "n_layer": 2})", "c"), Error);
}

}  // namespace
}  // namespace orrery::models
