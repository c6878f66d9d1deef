// SPDX-License-Identifier: Apache-2.0
// Rows that name a network of models/zoo and leave its widths out.
#include "studies/rows/named_network.hpp"

#include <gmock/gmock.h>

#include <map>

#include "studies/rows/assumptions.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::row_of;

Changes nameless(const std::string& name, Changes changes = {}) {
  changes.merge(Changes{
      {"model_family", ""}, {"model_name", name}, {"layers", ""}, {"hidden", ""}, {"heads", ""}});
  return changes;
}

std::string found(const std::string& name) {
  const auto spec = named_network(row_of(nameless(name)));
  return spec ? spec->name : "";
}

TEST(NamedNetwork, NamesAsPublishersWriteThem) {
  EXPECT_EQ(found("Llama 3.1 8B"), "llama3.1-8b");
  EXPECT_EQ(found("meta-llama/Meta-Llama-3-8B-Instruct"), "llama3-8b");
  EXPECT_EQ(found("Llama-2-7b-chat-hf"), "llama2-7b");
  EXPECT_EQ(found("T5-Base"), "t5-base");
  EXPECT_EQ(found("mistralai/Mistral-7B-Instruct-v0.2"), "mistral-7b");
  EXPECT_EQ(found("GPT-2 345M"), "gpt2-medium");
  EXPECT_EQ(found("LLaMA-30B"), "llama-33b");
  EXPECT_EQ(found("DeepSeek-V3-671B (Base)"), "deepseek-v3");
  EXPECT_EQ(found("ViT-L/16"), "vit-large-16");
  EXPECT_EQ(found("Qwen2.5-3B"), "qwen2.5-3b");
  EXPECT_EQ(found("Phi-4 14B"), "phi-4");
  EXPECT_EQ(found("Granite 3.0 8B"), "granite3-8b");
  EXPECT_EQ(found("Mixtral 8\xC3\x97"
                  "7B"),
            "mixtral-8x7b");
  EXPECT_EQ(found("Phi-4 7B"), "");
  EXPECT_EQ(found("DBRX 30B"), "");
  EXPECT_EQ(found("llama3-9b"), "");
  EXPECT_EQ(found(""), "");
}

TEST(NamedNetwork, ReleasesTuningsAndContextsBehindAName) {
  const std::map<std::string, std::string> kNames = {
      {"Mistral 7B v0.1", "mistral-7b"},
      {"Mixtral 8x22B v0.3", "mixtral-8x22b"},
      {"Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
      {"Phi-3-mini-4k-instruct", "phi-3-mini"},
      {"LLaMA-2-7B-32K", "llama2-7b"},
      {"Llama2-7B 4k", "llama2-7b"},
      {"GPT-3 175B (Megatron)", "gpt3-175b"},
      {"Pythia 6.9B deduped", "pythia-6.9b"},
      {"Qwen2.5-Coder-32B", "qwen2.5-32b"},
      {"BLOOM 7.1B", "bloom-7b1"},
      {"DeepSeek-V2-Lite", "deepseek-v2-lite"},
      {"Nemotron-4 340B", "nemotron-4-340b"},
      {"Gemma 2 27B", "gemma2-27b"},
      {"Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"},
      {"OLMoE-1B-7B-0924", "olmoe-1b-7b"},
      {"phi-3-small", ""},
      {"Mistral-Medium", ""},
      {"PaLM 540B", ""},
      {"Llama 70B", ""},
      {"Llama-3.1 8B (2 layers)", ""}};
  for (const auto& [name, network] : kNames) {
    EXPECT_EQ(found(name), network) << name;
  }
  const auto vocab = [](const std::string& name) {
    return named_network(row_of(nameless(name)))->vocab;
  };
  EXPECT_EQ(vocab("Mistral-7B-v0.3"), 32768);
  EXPECT_EQ(vocab("Mistral-7B-v0.1"), 32000);
}

TEST(NamedNetwork, SizesOfAFamily) {
  const auto of = [](const std::string& family, const std::string& name) {
    const auto spec = named_network(row_of(nameless(name, {{"model_family", family}})));
    return spec ? spec->name : "";
  };
  EXPECT_EQ(of("llama", "7B"), "llama-7b");
  EXPECT_EQ(of("Llama 3.1", "8B"), "llama3.1-8b");
  EXPECT_EQ(of("mistral", "7B v0.1"), "mistral-7b");
  EXPECT_EQ(of("llama", "70B"), "");
  EXPECT_EQ(of("gpt", "Llama 70B"), "");
}

TEST(NamedNetwork, NamesThatNobodyKnowsAreInTheReason) {
  const auto reason = [](const std::string& name, const Changes& changes = {}) {
    Changes open = changes;
    open["vocab"] = "32000";
    Changes row = nameless(name, open);
    row["model_family"] = "llama";
    return predict_training_row(row_of(row), 0).skipped_because;
  };
  EXPECT_EQ(reason("Llama 70B"),
            "layers is not stated, and no network is named \"Llama 70B\" (did you mean "
            "\"llama2-70b\"?)");
  EXPECT_EQ(reason("my own net"), "layers is not stated, and no network is named \"my own net\"");
  EXPECT_EQ(reason("Llama-3-8B", {{"hidden", "5120"}}),
            "layers is not stated, and llama3-8b has hidden 4096, not 5120");
  EXPECT_EQ(reason("", {{"model_family", ""}}), "layers is not stated");
  const auto unmodelled = [](const std::string& name) {
    return predict_training_row(row_of(nameless(name)), 0).skipped_because;
  };
  EXPECT_EQ(unmodelled("Qwen3-Next-80B"), "network \"Qwen3-Next-80B\" is not modelled");
  EXPECT_EQ(unmodelled("Lama-2-7B"),
            "network \"Lama-2-7B\" is not modelled (did you mean \"llama2-7b\"?)");
  EXPECT_EQ(unmodelled(""), "neither model_family nor model_name is stated");
}

TEST(NamedNetwork, SizesMustBeThoseOfTheNetwork) {
  for (const std::string name : {"GPT-1.8B", "GPT-67B", "GPT-14.5B", "GPT-1.75B", "GPT-3.9B"}) {
    EXPECT_EQ(found(name), "") << name;
  }
  EXPECT_EQ(found("GPT-6.7B"), "gpt3-6.7b");
  EXPECT_EQ(found("GPT-18B"), "gpt-18.4b");
  EXPECT_EQ(found("GPT-2 1.5B"), "gpt2-xl");
  EXPECT_EQ(found("Qwen3-30B-A3B"), "qwen3-30b-a3b");
  const auto with = [](const Changes& changes) {
    return named_network(row_of(nameless("llama3-8b", changes))).has_value();
  };
  EXPECT_TRUE(with({{"params_b", "8.03"}}));
  EXPECT_FALSE(with({{"params_b", "80"}}));
  EXPECT_TRUE(with({{"params_b", "1.9"}, {"layers", "4"}}));  // cut short
}

// No other name leads to a file that is not there.
TEST(NamedNetwork, OtherNamesLeadToNetworks) {
  for (const std::string name : {"GPT-3", "MT-NLG", "T5-XXL", "ViT-B/16", "BLOOM", "Mixtral"}) {
    EXPECT_NE(found(name), "") << name;
  }
}

TEST(NamedNetwork, WidthsThatTheRowStatesMustBeItsOwnDepthMayDiffer) {
  const auto with = [](const Changes& changes) {
    return named_network(row_of(nameless("llama3-8b", changes))).has_value();
  };
  EXPECT_TRUE(with({{"hidden", "4096"}, {"layers", "4"}}));
  EXPECT_FALSE(with({{"hidden", "5120"}}));
  EXPECT_FALSE(with({{"experts", "8"}}));
}

TEST(NamedNetwork, FillsBlanksAlone) {
  Measurement row = row_of(nameless("Mixtral-8x7B", {{"layers", "4"}, {"vocab", "32064"}}));
  EXPECT_THAT(complete_from_name(row), Contains("experts"));
  EXPECT_EQ(row.layers, 4);
  EXPECT_EQ(row.vocab, 32064);
  EXPECT_EQ(row.kv_heads, 8);
  EXPECT_EQ(row.experts, 8);
  EXPECT_EQ(row.top_k, 2);
  EXPECT_THAT(complete_from_name(row), IsEmpty());
}

TEST(NamedNetwork, NameAloneIsSimulatedAsTheColumnsWould) {
  const Changes widths = {{"model_family", "llama"}, {"layers", "32"},         {"hidden", "4096"},
                          {"heads", "32"},           {"kv_heads", "8"},        {"head_dim", "128"},
                          {"ffn_hidden", "14336"},   {"vocab", "128256"},      {"gated_mlp", "1"},
                          {"tied_embeddings", "0"},  {"model_name", "unknown"}};
  const RowResult stated = predict_training_row(row_of(widths), 0);
  ASSERT_GT(stated.predicted, 0) << stated.skipped_because;
  const RowResult named = predict_training_row(
      row_of(nameless("Llama-3-8B", {{"vocab", ""}, {"tied_embeddings", ""}})), 0);
  EXPECT_EQ(named.predicted, stated.predicted) << named.skipped_because;
  EXPECT_THAT(named.assumed, ElementsAre(HasSubstr("layers, hidden, heads, kv_heads")));
}

// Their rows count encoder and decoder together.
TEST(NamedNetwork, EncoderDecodersAreTheNetworkOfThatName) {
  const Changes t5 = {
      {"model_family", "t5"}, {"model_name", "T5-v1.1-XL"}, {"layers", "48"},  {"hidden", "2048"},
      {"heads", "32"},        {"vocab", "32128"},           {"seq_len", "512"}};
  const RowResult row = predict_training_row(row_of(t5), 0);
  EXPECT_GT(row.predicted, 0) << row.skipped_because;
  Changes other = t5;
  other["layers"] = "24";  // of encoder and decoder each
  EXPECT_EQ(predict_training_row(row_of(other), 0).predicted, row.predicted);
  other["layers"] = "36";
  EXPECT_THAT(predict_training_row(row_of(other), 0).skipped_because,
              HasSubstr("t5-v1.1-xl has 48 layers, not 36"));
}

// Which keys a layer sees no column says: the named network does, where the row is that network.
TEST(NamedNetwork, WindowsAreThoseOfTheNetwork) {
  const auto window = [](const std::string& name, const std::string& ffn_hidden = "14336") {
    const Measurement row = row_of({{"model_family", "mistral"},
                                    {"model_name", name},
                                    {"layers", "32"},
                                    {"hidden", "4096"},
                                    {"heads", "32"},
                                    {"kv_heads", "8"},
                                    {"ffn_hidden", ffn_hidden},
                                    {"vocab", "32000"},
                                    {"params_b", ""},
                                    {"seq_len", "8192"}});
    return row_network(row, framework_of(row).facts)->sliding_window;
  };
  EXPECT_EQ(window("Mistral-7B"), 4096);
  EXPECT_EQ(window("Mistral 7B v0.1"), 4096);
  EXPECT_EQ(window("Mistral 7B v0.2"), 0);
  EXPECT_EQ(window("mistral-7B-Instruct-v0.3"), 0);
  EXPECT_EQ(window("Mistral-7B", "11008"), 0);  // another network
}

TEST(NamedNetwork, EncodersOfStatedWidths) {
  const Changes t5 = {{"model_family", "t5"}, {"model_name", "T5-custom"},
                      {"layers", "32"},       {"hidden", "1024"},
                      {"heads", "16"},        {"seq_len", "512"}};
  const auto depth = [&t5](const std::string& layers, const std::string& params_b) {
    Changes changes = t5;
    changes["layers"] = layers;
    changes["params_b"] = params_b;
    const Measurement row = row_of(changes);
    const auto spec = row_network(row, framework_of(row).facts);
    return std::pair(spec->encoder_layers, spec->layers);
  };
  EXPECT_EQ(depth("32", ""), std::pair(std::int64_t{16}, std::int64_t{16}));
  EXPECT_EQ(depth("31", ""), std::pair(std::int64_t{31}, std::int64_t{31}));
  // T5-large by either way of counting.
  EXPECT_EQ(depth("24", "0.74"), std::pair(std::int64_t{24}, std::int64_t{24}));
  EXPECT_EQ(depth("48", "0.74"), std::pair(std::int64_t{24}, std::int64_t{24}));
}

TEST(NamedNetwork, DecoderOfT5IsAsLongAsItsTrainingHasIt) {
  const auto decoder_of = [](const std::string& framework, const std::string& seq_len) {
    const Measurement row = row_of({{"model_family", "t5"},
                                    {"model_name", "T5-v1.1-XL"},
                                    {"layers", "48"},
                                    {"hidden", "2048"},
                                    {"heads", "32"},
                                    {"vocab", "32128"},
                                    {"seq_len", seq_len},
                                    {"framework", framework}});
    return row_network(row, framework_of(row).facts)->decoder_sequence;
  };
  EXPECT_EQ(decoder_of("PyTorch DDP", "512"), 114);
  EXPECT_EQ(decoder_of("PyTorch DDP", "1024"), 228);
  EXPECT_EQ(decoder_of("T5X (JAX/XLA)", "512"), 128);
  EXPECT_EQ(decoder_of("Megatron-LM", "1024"), 256);
}

}  // namespace
}  // namespace orrery::studies
