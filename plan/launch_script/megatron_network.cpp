// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/megatron_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"
#include "models/positions.hpp"
#include "plan/dispatchers.hpp"
#include "plan/launch_script/megatron_patterns.hpp"
#include "plan/launch_script/megatron_window.hpp"

namespace orrery::plan {
namespace {

constexpr std::int64_t kTokensOfNullTokenizer = 1;

using models::Activation;
using models::MlaSpec;
using models::MoeSpec;
using models::NetworkSpec;
using models::NormKind;
using models::PositionKind;

const std::vector<std::string> kPositions = {"learned_absolute", "rope", "none"};
constexpr std::array kPositionKinds = {PositionKind::Learned, PositionKind::Rotary,
                                       PositionKind::None};

std::vector<int> moe_pattern(const NetworkSpec& spec) {
  std::vector<int> pattern;
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    const bool moe = layer >= spec.moe.first_dense_layers && layer % spec.moe.layer_frequency == 0;
    pattern.push_back(moe ? 1 : 0);
  }
  return pattern;
}

void require(bool expressible, std::string_view what) {
  if (!expressible) {
    bad_input("megatron", fmt::format("Megatron-LM's GPT model has no {}", what));
  }
}

void require_expressible(const NetworkSpec& spec) {
  require(spec.family == models::Family::Gpt || spec.family == models::Family::Llama,
          "encoder; only decoder-only networks can be exported");
  require(spec.causal, "bidirectional attention");
  require(spec.classes == 0, "classifier in place of the vocabulary's head");
  require(!spec.parallel_block, "parallel attention and MLP");
  require(!spec.sandwich_norm && !spec.embedding_norm, "norms after the embedding or a block");
  require(!spec.head_bias && !spec.moe.router_bias, "bias in the head or the router");
  require(spec.position != PositionKind::Alibi, "ALiBi positions");
  require(spec.activation != Activation::Relu && spec.activation != Activation::GeGlu,
          "ReLU or GeGLU on its command line");
  require(spec.attention_output_bias == spec.mlp_bias && (spec.attention_bias || !spec.mlp_bias),
          "such choice of biases");
}

// DeepEP by its older name, which all releases know.
void write_dispatcher(const DispatcherFacts& facts, FlagList& flags) {
  const bool flex = !facts.megatron_backend.empty();
  flags.emplace_back("--moe-token-dispatcher-type", flex ? "flex" : "alltoall");
  if (facts.dispatcher == Dispatcher::DeepEp) {
    flags.emplace_back("--moe-enable-deepep", "");
  } else if (flex) {
    flags.emplace_back("--moe-flex-dispatcher-backend", facts.megatron_backend);
  }
}

void write_moe(const NetworkSpec& spec, const Execution& execution, FlagList& flags) {
  const MoeSpec& moe = spec.moe;
  flags.emplace_back("--num-experts", fmt::format("{}", moe.experts));
  flags.emplace_back("--moe-router-topk", fmt::format("{}", moe.top_k));
  if (moe.groups > 1) {
    flags.emplace_back("--moe-router-num-groups", fmt::format("{}", moe.groups));
    flags.emplace_back("--moe-router-group-topk", fmt::format("{}", moe.groups_per_token));
  }
  flags.emplace_back("--moe-ffn-hidden-size", fmt::format("{}", moe.ffn_hidden));
  flags.emplace_back("--moe-grouped-gemm", "");
  write_dispatcher(dispatcher_facts(execution), flags);
  if (moe.shared_ffn_hidden > 0) {
    flags.emplace_back("--moe-shared-expert-intermediate-size",
                       fmt::format("{}", moe.shared_ffn_hidden));
  }
  const std::string pattern = layer_pattern_text(moe_pattern(spec));
  if (pattern != "1") {
    flags.emplace_back("--moe-layer-freq", pattern);
  }
  if (moe.capacity_factor > 0) {
    flags.emplace_back("--moe-expert-capacity-factor", fmt::format("{}", moe.capacity_factor));
  }
}

void write_mla(const MlaSpec& mla, FlagList& flags) {
  flags.emplace_back("--multi-latent-attention", "");
  if (mla.q_lora_rank > 0) {
    flags.emplace_back("--q-lora-rank", fmt::format("{}", mla.q_lora_rank));
  }
  flags.emplace_back("--kv-lora-rank", fmt::format("{}", mla.kv_lora_rank));
  flags.emplace_back("--qk-head-dim", fmt::format("{}", mla.qk_nope_head_dim));
  flags.emplace_back("--qk-pos-emb-head-dim", fmt::format("{}", mla.qk_rope_head_dim));
  flags.emplace_back("--v-head-dim", fmt::format("{}", mla.v_head_dim));
}

void write_shape(const NetworkSpec& spec, std::int64_t sequence, FlagList& flags) {
  const auto integer = [&flags](const char* flag, std::int64_t value) {
    flags.emplace_back(flag, fmt::format("{}", value));
  };
  integer("--num-layers", spec.layers);
  integer("--hidden-size", spec.hidden);
  if (spec.ffn_hidden > 0) {
    integer("--ffn-hidden-size", spec.ffn_hidden);
  }
  integer("--num-attention-heads", spec.heads);
  integer("--kv-channels", spec.head_dim);
  if (spec.kv_heads != spec.heads) {
    flags.emplace_back("--group-query-attention", "");
    integer("--num-query-groups", spec.kv_heads);
  }
  integer("--seq-length", sequence);
  integer("--max-position-embeddings",
          std::max({models::position_rows(spec), spec.max_positions, sequence}));
  // It adds a token that ends documents (megatron/training/tokenizer/tokenizer.py).
  integer("--vocab-size", spec.vocab - kTokensOfNullTokenizer);
  integer("--make-vocab-size-divisible-by", 1);
  flags.emplace_back("--tokenizer-type", "NullTokenizer");
}

// ---------------------------------------------------------------------------------------------

std::int64_t read_vocab(MegatronArguments& arguments, int tp, std::int64_t given) {
  const std::int64_t multiple =
      arguments.integer_or("--make-vocab-size-divisible-by", 128, 1, 1 << 20);
  const auto type = arguments.text("--tokenizer-type");
  const bool gpt2_files = arguments.given("--vocab-file") && arguments.given("--merge-file");
  auto size = arguments.integer("--vocab-size", 1, limits::kMaxVocab);
  if (!size.has_value() && given > 0) {
    return given;
  }
  // Sizes of the vocabularies that come with these tokenizers.
  if (!size.has_value() && (type == "GPT2BPETokenizer" || (!type.has_value() && gpt2_files))) {
    size = 50257;
  } else if (!size.has_value() && type == "Llama2Tokenizer") {
    size = 32000;
  }
  if (!size.has_value()) {
    bad_input(arguments.file(), "the size of the vocabulary is in a tokenizer file",
              "add --vocab-size N to the arguments or give the network");
  }
  if (type == "NullTokenizer") {
    *size += kTokensOfNullTokenizer;
  }
  // A multiple of one pads to tp alone, which lowering does by itself.
  return multiple == 1 ? *size : round_up(*size, multiple * tp);
}

// Megatron-LM limits routing to groups only where it is told how many a token takes.
void read_groups(MegatronArguments& arguments, MoeSpec& moe) {
  constexpr const char* kTaken = "--moe-router-group-topk";
  const auto groups = arguments.integer("--moe-router-num-groups", 1, limits::kMaxExperts);
  const auto taken = arguments.integer(kTaken, 1, limits::kMaxExperts);
  if (taken.has_value() && !groups.has_value()) {
    bad_input(arguments.where(kTaken), "the number of groups is missing",
              "add --moe-router-num-groups N");
  }
  moe.groups = taken.has_value() ? *groups : 1;
  moe.groups_per_token = taken.value_or(1);
}

MoeSpec read_moe(MegatronArguments& arguments, const NetworkSpec& spec, const MoeSpec& given) {
  MoeSpec moe = given;
  moe.experts = arguments.integer_or("--num-experts", given.experts, 0, limits::kMaxExperts);
  const auto pattern = arguments.text("--moe-layer-freq");
  moe.top_k = arguments.integer_or("--moe-router-topk", given.experts > 0 ? given.top_k : 2, 1,
                                   limits::kMaxExperts);
  read_groups(arguments, moe);
  moe.ffn_hidden = arguments.integer_or("--moe-ffn-hidden-size",
                                        given.experts > 0 ? given.ffn_hidden : spec.ffn_hidden, 1,
                                        limits::kMaxFfn);
  moe.shared_ffn_hidden = arguments.integer_or("--moe-shared-expert-intermediate-size",
                                               given.shared_ffn_hidden, 0, limits::kMaxFfn);
  moe.capacity_factor =
      arguments.number("--moe-expert-capacity-factor", 0, 1e4).value_or(given.capacity_factor);
  if (moe.experts == 0) {
    return {};
  }
  if (!pattern.has_value()) {
    return moe;
  }
  const std::string where = arguments.where("--moe-layer-freq");
  const std::vector<int> wanted = parse_layer_pattern(*pattern, spec.layers, where);
  NetworkSpec candidate = spec;
  candidate.moe = moe;
  // The first MoE layer and the distance to the second determine the pattern, if any does.
  std::vector<std::int64_t> positions;
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    if (wanted[static_cast<std::size_t>(layer)] != 0) {
      positions.push_back(layer);
    }
  }
  candidate.moe.layer_frequency =
      positions.size() > 1 ? positions[1] - positions[0] : std::max<std::int64_t>(spec.layers, 1);
  candidate.moe.first_dense_layers = 0;
  if (moe_pattern(candidate) != wanted && !positions.empty()) {
    candidate.moe.first_dense_layers = positions[0];
    if (positions.size() == 1) {
      candidate.moe.layer_frequency = std::max<std::int64_t>(positions[0], 1);
    }
  }
  if (moe_pattern(candidate) != wanted) {
    bad_input(where, "MoE layers are modelled at a fixed distance behind a number of dense ones");
  }
  return candidate.moe;
}

MlaSpec read_mla(MegatronArguments& arguments, const MlaSpec& given) {
  MlaSpec mla = given;
  const auto integer = [&arguments](const char* flag, std::int64_t fallback) {
    return arguments.integer_or(flag, fallback, 0, limits::kMaxHidden);
  };
  const bool fresh = given.kv_lora_rank == 0;
  const bool present = arguments.has("--multi-latent-attention");
  // The defaults are those of MLATransformerConfig.
  mla.q_lora_rank = integer("--q-lora-rank", given.q_lora_rank);
  mla.kv_lora_rank = integer("--kv-lora-rank", fresh ? 32 : given.kv_lora_rank);
  mla.qk_nope_head_dim = integer("--qk-head-dim", fresh ? 128 : given.qk_nope_head_dim);
  mla.qk_rope_head_dim = integer("--qk-pos-emb-head-dim", fresh ? 64 : given.qk_rope_head_dim);
  mla.v_head_dim = integer("--v-head-dim", fresh ? 128 : given.v_head_dim);
  return present ? mla : given;
}

void read_choices(MegatronArguments& arguments, NetworkSpec& spec) {
  spec.norm = arguments.choice("--normalization", {"LayerNorm", "RMSNorm"}) == 0
                  ? NormKind::LayerNorm
                  : NormKind::RmsNorm;
  spec.position = kPositionKinds[arguments.choice("--position-embedding-type", kPositions)];
  if (arguments.has("--use-rotary-position-embeddings")) {
    spec.position = PositionKind::Rotary;
  }
  if (arguments.has("--no-position-embedding") && spec.position == PositionKind::Learned) {
    spec.position = PositionKind::None;
  }
  spec.activation = arguments.has("--swiglu")         ? Activation::SwiGlu
                    : arguments.has("--squared-relu") ? Activation::SquaredRelu
                                                      : Activation::Gelu;
  spec.tied_embeddings = !arguments.has("--untie-embeddings-and-output-weights");
  const bool biases = !arguments.has("--disable-bias-linear");
  spec.attention_bias = arguments.has("--add-qkv-bias") || biases;
  spec.attention_output_bias = biases;
  spec.mlp_bias = biases;
  spec.qk_norm = arguments.has("--qk-layernorm");
  spec.hidden_dropout = arguments.number("--hidden-dropout", 0, 1).value_or(0.1);
  spec.attention_dropout = arguments.number("--attention-dropout", 0, 1).value_or(0.1);
  if (spec.norm == NormKind::RmsNorm && spec.activation == Activation::SwiGlu) {
    spec.family = models::Family::Llama;
  }
}

std::int64_t required(MegatronArguments& arguments, const char* flag, std::int64_t given,
                      std::int64_t max) {
  const auto value = arguments.integer(flag, 1, max);
  if (!value.has_value() && given == 0) {
    bad_input(arguments.file(), fmt::format("{} is missing", flag),
              "write it into the arguments or give the network");
  }
  return value.value_or(given);
}

NetworkSpec read_spec(MegatronArguments& arguments, int tp, const NetworkSpec& given) {
  NetworkSpec spec = given;
  read_choices(arguments, spec);
  spec.layers = required(arguments, "--num-layers", given.layers, limits::kMaxLayers);
  spec.hidden = required(arguments, "--hidden-size", given.hidden, limits::kMaxHidden);
  spec.heads = required(arguments, "--num-attention-heads", given.heads, limits::kMaxHeads);
  spec.sequence = required(arguments, "--seq-length", given.sequence, limits::kMaxSequence);
  const bool fresh = given.hidden == 0;
  const std::int64_t ffn =
      spec.activation == Activation::SwiGlu ? 4 * spec.hidden * 2 / 3 / 64 * 64 : 4 * spec.hidden;
  spec.ffn_hidden =
      arguments.integer_or("--ffn-hidden-size", fresh ? ffn : given.ffn_hidden, 1, limits::kMaxFfn);
  const auto head_dim = arguments.integer("--kv-channels", 1, limits::kMaxHidden);
  if (fresh && !head_dim.has_value() && spec.hidden % spec.heads != 0) {
    bad_input(arguments.file(), "--hidden-size is not divisible by --num-attention-heads");
  }
  spec.head_dim = head_dim.value_or(fresh ? spec.hidden / spec.heads : given.head_dim);
  const std::int64_t groups =
      arguments.integer_or("--num-query-groups", fresh ? 1 : given.kv_heads, 1, limits::kMaxHeads);
  const bool grouped = arguments.has("--group-query-attention");
  spec.kv_heads = grouped ? groups : fresh ? spec.heads : given.kv_heads;
  const auto positions = arguments.integer("--max-position-embeddings", 1, limits::kMaxSequence);
  spec.max_positions = positions.value_or(0) == spec.sequence ? 0 : positions.value_or(0);
  spec.vocab = read_vocab(arguments, tp, given.vocab);
  spec.moe = read_moe(arguments, spec, given.moe);
  spec.mla = read_mla(arguments, given.mla);
  read_megatron_window(arguments, spec);
  const bool only_experts =
      spec.moe.experts > 0 && spec.moe.first_dense_layers == 0 && spec.moe.layer_frequency == 1;
  if (fresh && only_experts && !arguments.given("--ffn-hidden-size")) {
    spec.ffn_hidden = 0;  // no dense layer uses it
  }
  return spec;
}

void require_equal(MegatronArguments& arguments, const NetworkSpec& read,
                   const NetworkSpec& given) {
  const MoeSpec& moe = given.moe;
  if (moe.groups > 1 && !arguments.given("--moe-router-group-topk")) {
    bad_input(arguments.file(),
              fmt::format("the arguments route tokens to any expert, but {} to {} of {} groups",
                          given.name, moe.groups_per_token, moe.groups),
              fmt::format("add --moe-router-num-groups {} --moe-router-group-topk {}", moe.groups,
                          moe.groups_per_token));
  }
  struct Field {
    const char* flag;
    std::int64_t read;
    std::int64_t given;
  };
  const std::array<Field, 12> fields = {{
      {"--num-layers", read.layers, given.layers},
      {"--hidden-size", read.hidden, given.hidden},
      {"--num-attention-heads", read.heads, given.heads},
      {"--num-query-groups", read.kv_heads, given.kv_heads},
      {"--kv-channels", read.head_dim, given.head_dim},
      {"--ffn-hidden-size", read.ffn_hidden, given.ffn_hidden},
      {"--num-experts", read.moe.experts, given.moe.experts},
      {"--moe-router-topk", read.moe.top_k, given.moe.top_k},
      {"--moe-router-num-groups", read.moe.groups, given.moe.groups},
      {"--moe-router-group-topk", read.moe.groups_per_token, given.moe.groups_per_token},
      {"--moe-ffn-hidden-size", read.moe.ffn_hidden, given.moe.ffn_hidden},
      {"--window-size", read.sliding_window, given.sliding_window},
  }};
  for (const Field& field : fields) {
    if (field.read != field.given) {
      bad_input(arguments.where(field.flag), fmt::format("the arguments give {}, but {} has {}",
                                                         field.read, given.name, field.given));
    }
  }
}

}  // namespace

void write_megatron_network(const Plan& plan, FlagList& flags) {
  const NetworkSpec& spec = plan.network.spec;
  require_expressible(spec);
  write_shape(spec, plan.sequence, flags);
  for (std::size_t i = 0; i < kPositions.size(); ++i) {
    if (kPositionKinds[i] == spec.position) {
      flags.emplace_back("--position-embedding-type", kPositions[i]);
    }
  }
  flags.emplace_back("--normalization", spec.norm == NormKind::RmsNorm ? "RMSNorm" : "LayerNorm");
  const auto add_if = [&flags](bool condition, const char* flag) {
    if (condition) {
      flags.emplace_back(flag, "");
    }
  };
  add_if(spec.activation == Activation::SwiGlu, "--swiglu");
  add_if(spec.activation == Activation::SquaredRelu, "--squared-relu");
  add_if(!spec.tied_embeddings, "--untie-embeddings-and-output-weights");
  add_if(!spec.mlp_bias, "--disable-bias-linear");
  add_if(spec.attention_bias && !spec.mlp_bias, "--add-qkv-bias");
  add_if(spec.qk_norm, "--qk-layernorm");
  flags.emplace_back("--hidden-dropout", fmt::format("{}", spec.hidden_dropout));
  flags.emplace_back("--attention-dropout", fmt::format("{}", spec.attention_dropout));
  if (spec.moe.experts > 0) {
    write_moe(spec, plan.execution, flags);
  }
  if (spec.mla.kv_lora_rank > 0) {
    write_mla(spec.mla, flags);
  }
  write_megatron_window(spec, flags);
}

models::Network read_megatron_network(MegatronArguments& arguments, int tp,
                                      const models::Network* given) {
  if (given != nullptr) {
    const NetworkSpec spec = read_spec(arguments, tp, given->spec);
    require_equal(arguments, spec, given->spec);
    return *given;
  }
  NetworkSpec spec;
  spec.name = "imported";
  spec.source = "Megatron-LM arguments";
  return models::build_network(read_spec(arguments, tp, spec), arguments.file());
}

}  // namespace orrery::plan
