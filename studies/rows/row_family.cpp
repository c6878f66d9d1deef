// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/named_network.hpp"

namespace orrery::studies {
namespace {

using models::Activation;
using models::Family;
using models::NetworkSpec;
using models::NormKind;
using models::PositionKind;

// GPT-2 blocks: layer norm, learned positions, GELU, biases.
NetworkSpec gpt() {
  NetworkSpec spec;
  spec.family = Family::Gpt;
  return spec;
}

NetworkSpec llama() {
  NetworkSpec spec;
  spec.family = Family::Llama;
  spec.norm = NormKind::RmsNorm;
  spec.position = PositionKind::Rotary;
  spec.activation = Activation::SwiGlu;
  spec.tied_embeddings = false;
  spec.attention_bias = false;
  spec.attention_output_bias = false;
  spec.mlp_bias = false;
  return spec;
}

// Nemotron-4 (arXiv 2402.16819): rotary positions, squared ReLU, no biases, layer norm.
NetworkSpec nemotron() {
  NetworkSpec spec = llama();
  spec.family = Family::Gpt;
  spec.norm = NormKind::LayerNorm;
  spec.activation = Activation::SquaredRelu;
  return spec;
}

// Biases of attention and experts (openai/gpt-oss config.json, attention_bias;
// gpt_oss/torch/ model.py, AttentionBlock and MLPBlock).
NetworkSpec gpt_oss() {
  NetworkSpec spec = llama();
  spec.attention_bias = true;
  spec.attention_output_bias = true;
  spec.mlp_bias = true;
  return spec;
}

NetworkSpec with(NetworkSpec spec, Activation activation) {
  spec.activation = activation;
  return spec;
}

NetworkSpec with_qk_norm(NetworkSpec spec) {
  spec.qk_norm = true;
  return spec;
}

// DeepSeek-V2 and V3 share these widths (their config.json).
NetworkSpec deepseek() {
  NetworkSpec spec = llama();
  spec.mla.q_lora_rank = 1536;
  spec.mla.kv_lora_rank = 512;
  spec.mla.qk_nope_head_dim = 128;
  spec.mla.qk_rope_head_dim = 64;
  spec.mla.v_head_dim = 128;
  return spec;
}

// The networks below as their config.json and modelling code on Hugging Face have them.
NetworkSpec with_bias_of_qkv(NetworkSpec spec) {
  spec.attention_bias = true;
  return spec;
}

NetworkSpec gemma(bool norms_after) {
  NetworkSpec spec = with(llama(), Activation::GeGlu);
  spec.tied_embeddings = true;
  spec.sandwich_norm = norms_after;
  return spec;
}

NetworkSpec bloom() {
  NetworkSpec spec = gpt();
  spec.position = PositionKind::Alibi;
  spec.embedding_norm = true;
  return spec;
}

NetworkSpec without_biases(NetworkSpec spec) {
  spec.attention_bias = false;
  spec.attention_output_bias = false;
  spec.mlp_bias = false;
  return spec;
}

NetworkSpec with_rotary(NetworkSpec spec) {
  spec.position = PositionKind::Rotary;
  return spec;
}

NetworkSpec without_query_rank(NetworkSpec spec) {
  spec.mla.q_lora_rank = 0;
  return spec;
}

NetworkSpec parallel_blocks(NetworkSpec spec, bool norm_for_mlp) {
  spec.position = PositionKind::Rotary;
  spec.parallel_block = true;
  spec.parallel_mlp_norm = norm_for_mlp;
  return spec;
}

NetworkSpec bert() {
  NetworkSpec spec = gpt();
  spec.family = Family::Bert;
  spec.causal = false;
  spec.embedding_norm = true;
  return spec;
}

const std::vector<FamilyFacts>& family_table() {
  static const std::vector<FamilyFacts> kTable = {
      {"gpt", gpt()},
      {"gptneox", parallel_blocks(gpt(), true)},
      {"pythia", parallel_blocks(gpt(), true)},
      {"gptj", parallel_blocks(gpt(), false)},
      {"gptoss", gpt_oss()},
      {"mtnlg", gpt()},
      {"opt", with(gpt(), Activation::Relu)},
      {"bloom", bloom()},
      {"mpt", without_biases(gpt())},
      {"falcon", without_biases(parallel_blocks(gpt(), false))},
      {"phi", parallel_blocks(gpt(), false)},
      {"phi3", llama()},
      {"phi4", llama()},
      {"starcoder", gpt()},
      {"starcoder2", with_rotary(gpt())},
      {"megatron", gpt()},
      {"turingnlg", gpt()},
      {"transformer", gpt()},
      {"bert", bert()},
      {"roberta", bert()},
      {"llama", llama()},
      {"codellama", llama()},
      {"vicuna", llama()},
      {"mistral", llama()},
      {"mixtral", llama()},
      {"internlm", llama()},
      {"yi", llama()},
      {"baichuan", llama()},
      {"olmo", llama()},
      {"olmo2", with_qk_norm(llama())},
      {"olmo3", with_qk_norm(llama())},
      {"olmoe", with_qk_norm(llama())},
      {"smollm", llama()},
      {"minicpm", llama()},
      {"moe", llama()},
      {"palm", with(without_biases(parallel_blocks(gpt(), false)), Activation::SwiGlu)},
      {"cohere", with(without_biases(parallel_blocks(gpt(), false)), Activation::SwiGlu)},
      {"commandr", with(without_biases(parallel_blocks(gpt(), false)), Activation::SwiGlu)},
      {"dbrx", llama()},
      {"skywork", llama()},
      {"qwen", with_bias_of_qkv(llama())},
      {"qwenmoe", llama()},
      {"qwen3", with_qk_norm(llama())},
      {"gemma", gemma(false)},
      {"gemma2", gemma(true)},
      {"gemma3", with_qk_norm(gemma(true))},
      {"deepseek", deepseek()},
      {"deepseekv2lite", without_query_rank(deepseek())},
      {"kimi", deepseek()},
      {"moonlight", without_query_rank(deepseek())},
      {"deepseekmoe", llama()},
      {"deepseekllm", llama()},
      {"nemotron", nemotron()},
      // xai-org/grok-1: GeGLU experts; norms before and after each part are in model.py.
      {"grok", with(llama(), Activation::GeGlu)},
      {"glm", with(llama(), Activation::GeGlu)},
      // GLM-130B (THUDM/LargeScale megatron/model/transformer.py, configs/glm-130b): layers of
      // Megatron-LM with GeGLU and rotary positions; later ones are LLaMA's.
      {"glm130b", with(with_rotary(gpt()), Activation::GeGlu)},
      {"chatglm", llama()},
      {"glm4", with_bias_of_qkv(llama())},
      {"granite", llama()},
      {"ernie", llama()},
      {"exaone", with_qk_norm(llama())},
      {"minimax", with_qk_norm(llama())},
      {"seedoss", with_bias_of_qkv(llama())},
  };
  return kTable;
}

// Networks with layers that are no attention, with two stacks of layers or with shared ones.
constexpr std::string_view kOtherNetworks =
    "albert amoebanet bart blip clip cnn convnext deit densenet diffusion dit dlrm efficientnet "
    "electra encoderdecoder falconh falconmamba flamingo flux gemma3n griffin gru hyena "
    "inception jamba kimilinear llava lstm m2m mamba marian mbart mt5 nemotronh nllb pegasus "
    "pixart prophetnet qwen3next recurrentgemma resnet resnext retnet rnn rwkv samba sd3 seq2seq "
    "sora stablediffusion swin switch t5 ul2 unet vgg vit whisper wideresnet xlstm yoco zamba";

bool is_other(std::string_view text) {
  const std::string key = letters_and_digits(text);
  const std::vector<std::string_view> others = split(kOtherNetworks, ' ');
  return std::any_of(others.begin(), others.end(),
                     [&](std::string_view other) { return key.starts_with(other); });
}

// The longest name of the table that begins the text's letters and digits: "Llama-3.1" is a llama.
const FamilyFacts* find_family(std::string_view text) {
  const std::string key = letters_and_digits(text);
  if (is_other(text)) {
    return nullptr;
  }
  const FamilyFacts* best = nullptr;
  for (const FamilyFacts& known : family_table()) {
    if (key.starts_with(known.name) && (best == nullptr || known.name.size() > best->name.size())) {
      best = &known;
    }
  }
  return best;
}

// A name with a version tells latent attention; without one, experts and keys of every head do.
bool has_plain_attention(const Measurement& row) {
  constexpr auto kLatent = std::to_array<std::string_view>({"v2", "v3", "r1", "k2"});
  const bool grouped = row.kv_heads && row.heads && *row.kv_heads < *row.heads;
  const bool dense = row.experts.value_or(0) == 0;
  return (grouped || dense) &&
         !says_any(letters_and_digits(row.model_family + row.model_name), kLatent);
}

// By the name of the network, or of the one that it is cut from: four layers of QwQ-32B are Qwen's.
const FamilyFacts* family_by_name(const Measurement& row) {
  const FamilyFacts* named = find_family(row.model_name);
  if (named != nullptr || row.model_name.empty() || !row.layers) {
    return named;
  }
  const auto whole = named_network(row);
  return whole && *row.layers != whole->encoder_layers + whole->layers ? find_family(whole->name)
                                                                       : nullptr;
}

}  // namespace

std::optional<std::string> missing_architecture(const Measurement& row) {
  const std::array<std::pair<std::string_view, const OptionalCount*>, 5> needed = {
      {{"layers", &row.layers},
       {"hidden", &row.hidden},
       {"heads", &row.heads},
       {"vocab", &row.vocab},
       {"seq_len", &row.seq_len}}};
  for (const auto& [name, value] : needed) {
    if (!*value || **value == 0) {
      return fmt::format("{} is not stated", name);
    }
  }
  return std::nullopt;
}

// The family that the row states, or the part of it that its network's name states: Qwen3-30B of
// family "qwen".
const FamilyFacts* family_of(const Measurement& row) {
  const bool stated = !row.model_family.empty();
  const FamilyFacts* named = stated ? find_family(row.model_name) : family_by_name(row);
  const FamilyFacts* family = stated ? find_family(row.model_family) : named;
  if (is_other(row.model_name)) {
    return nullptr;  // whatever its publisher's other networks are
  }
  if (family != nullptr && named != nullptr && named->spec.family == Family::Bert) {
    return named;
  }
  // DeepSeek's first networks have the attention of LLaMA.
  if (family != nullptr && family->spec.mla.kv_lora_rank > 0 && has_plain_attention(row)) {
    return find_family("llama");
  }
  const bool narrower = family != nullptr && named != nullptr &&
                        named->name.size() > family->name.size() &&
                        named->name.starts_with(family->name);
  return narrower ? named : family;
}

// A decoder of a family that the table does not hold, by its feed-forward network: a llama where it
// has three matrices, else a gpt.
const FamilyFacts* relative_of(const Measurement& row) {
  const bool other = is_other(row.model_family) || is_other(row.model_name);
  if (other || missing_architecture(row)) {
    return nullptr;
  }
  return find_family(row.gated_mlp.value_or(false) ? "llama" : "gpt");
}

}  // namespace orrery::studies
