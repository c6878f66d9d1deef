// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/math.hpp"
#include "base/text.hpp"
#include "models/blocks.hpp"
#include "studies/rows/named_network.hpp"

namespace orrery::studies {
namespace {

using models::Activation;
using models::Family;
using models::MoeSpec;
using models::NetworkSpec;
using models::NormKind;
using models::PositionKind;

struct FamilyFacts {
  std::string_view name;  // model_family
  NetworkSpec spec;
};

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
      {"gptoss", llama()},
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
      {"deepseekmoe", llama()},
      {"deepseekllm", llama()},
      {"nemotron", nemotron()},
      // xai-org/grok-1: GeGLU experts; norms before and after each part are in model.py.
      {"grok", with(llama(), Activation::GeGlu)},
      {"glm", with(llama(), Activation::GeGlu)},
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

// Names that begin like a family's, of layers that are no attention in part.
constexpr auto kOthers = std::to_array<std::string_view>({"nemotronh", "qwen3next", "gemma3n"});

// The longest name of the table that begins the text's letters and digits: "Llama-3.1" is a llama.
const FamilyFacts* find_family(std::string_view text) {
  const std::string key = letters_and_digits(text);
  if (std::any_of(kOthers.begin(), kOthers.end(),
                  [&](std::string_view other) { return key.starts_with(other); })) {
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

// The family that the row states, or the part of it that its network's name states: Qwen3-30B of
// family "qwen".
const FamilyFacts* family_of(const Measurement& row) {
  const FamilyFacts* family = find_family(row.model_family);
  const FamilyFacts* named = find_family(row.model_name);
  if (family == nullptr && row.model_family.empty()) {
    return named;
  }
  const bool narrower = family != nullptr && named != nullptr &&
                        named->name.size() > family->name.size() &&
                        named->name.starts_with(family->name);
  return narrower ? named : family;
}

// "... capacity factor 1.0 ..." in the notes; 0 (dropless) when there is none.
double capacity_factor(const std::string& notes) {
  constexpr std::string_view kPhrase = "capacity factor ";
  const std::size_t found = notes.find(kPhrase);
  double factor = 0;
  if (found != std::string::npos) {
    const char* begin = notes.data() + found + kPhrase.size();
    std::from_chars(begin, notes.data() + notes.size(), factor);
  }
  return factor;
}

MoeSpec mixture(const Measurement& row) {
  MoeSpec moe;
  moe.experts = row.experts.value_or(0);
  if (moe.experts == 0) {
    return moe;
  }
  moe.top_k = row.top_k.value_or(0);
  moe.ffn_hidden = row.moe_ffn_hidden.value_or(row.ffn_hidden.value_or(0));
  moe.shared_ffn_hidden = row.shared_expert_ffn.value_or(0);
  moe.first_dense_layers = row.first_dense_layers.value_or(0);
  moe.capacity_factor = capacity_factor(row.notes);
  return moe;
}

std::optional<std::string> missing_field(const Measurement& row) {
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

// A family whose layers the columns do not describe: all of the network that has its name.
tl::expected<NetworkSpec, std::string> network_by_name(const Measurement& row) {
  auto spec = named_network(row);
  if (!spec) {
    return tl::unexpected(
        fmt::format("network family \"{}\" is not modelled", printable(row.model_family, 60)));
  }
  if (row.layers && *row.layers != spec->encoder_layers + spec->layers) {
    return tl::unexpected(fmt::format("{} has {} layers, not {}", spec->name,
                                      spec->encoder_layers + spec->layers, *row.layers));
  }
  spec->sequence = row.seq_len.value_or(spec->sequence);
  spec->vocab = row.vocab.value_or(spec->vocab);
  return std::move(*spec);
}

}  // namespace

tl::expected<NetworkSpec, std::string> row_network(const Measurement& row,
                                                   const FrameworkFacts& framework) {
  const FamilyFacts* family = family_of(row);
  if (family == nullptr) {
    return network_by_name(row);
  }
  if (const auto missing = missing_field(row)) {
    return tl::unexpected(*missing);
  }
  NetworkSpec spec = family->spec;
  spec.name = row.model_name.empty() ? row.model_family : row.model_name;
  spec.layers = *row.layers;
  spec.hidden = *row.hidden;
  spec.heads = *row.heads;
  spec.kv_heads = row.kv_heads.value_or(spec.heads);
  spec.head_dim = row.head_dim.value_or(spec.hidden / spec.heads);
  spec.sequence = *row.seq_len;
  spec.tied_embeddings = row.tied_embeddings.value_or(spec.tied_embeddings);
  if (row.gated_mlp && *row.gated_mlp != models::is_gated(spec.activation)) {
    spec.activation = *row.gated_mlp ? Activation::SwiGlu : Activation::Gelu;
  }
  spec.moe = mixture(row);
  spec.ffn_hidden =
      row.ffn_hidden.value_or(models::is_gated(spec.activation) ? 0 : 4 * spec.hidden);
  if (spec.ffn_hidden == 0 && spec.moe.experts == 0) {
    return tl::unexpected(std::string("ffn_hidden is not stated"));
  }
  spec.vocab = framework.pads_vocab
                   ? round_up(*row.vocab, 128 * std::max<std::int64_t>(1, row.tp.value_or(1)))
                   : *row.vocab;
  if (framework.gpt_dropout && family->name == "gpt") {
    spec.hidden_dropout = 0.1;
    spec.attention_dropout = 0.1;
  }
  return spec;
}

}  // namespace orrery::studies
