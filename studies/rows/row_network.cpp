// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/math.hpp"
#include "base/text.hpp"
#include "models/blocks.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/named_network.hpp"
#include "studies/rows/row_family.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_adapters.hpp"
#include "studies/rows/stated_experts.hpp"
#include "studies/rows/stated_window.hpp"

namespace orrery::studies {
namespace {

using models::Activation;
using models::Family;
using models::MoeSpec;
using models::NetworkSpec;

// Shares that remarks state, those of their own names first: "dropout 0", "attention_dropout=0",
// "no dropout".
void apply_dropout(const Measurement& row, NetworkSpec& spec) {
  constexpr auto kAny = std::to_array<std::string_view>({"dropout"});
  constexpr auto kHidden = std::to_array<std::string_view>({"hidden dropout"});
  constexpr auto kAttention = std::to_array<std::string_view>({"attention dropout"});
  const auto stated = [&](SettingNames names, double usual) {
    const std::optional<double> share = number_set(row.notes, names);
    const bool off = switch_set(row.notes, names) == false;
    return share && *share < 1 ? std::max(0.0, *share) : off ? 0.0 : usual;
  };
  const bool of_kinds = number_set(row.notes, kHidden) || number_set(row.notes, kAttention);
  const double all = of_kinds ? -1 : stated(kAny, -1);
  spec.hidden_dropout = all >= 0 ? all : stated(kHidden, spec.hidden_dropout);
  spec.attention_dropout = all >= 0 ? all : stated(kAttention, spec.attention_dropout);
}

// Dropout is 0.1 where scripts keep the default.
void apply_modules(const FrameworkFacts& framework, NetworkSpec& spec) {
  constexpr double kUsualDropout = 0.1;
  const ModuleFacts& modules = framework.modules;
  if (framework.gpt_dropout) {
    spec.hidden_dropout = modules.hidden_dropout ? kUsualDropout : 0;
    spec.attention_dropout = modules.attention_dropout ? kUsualDropout : 0;
  }
  if (modules.relu && spec.activation == Activation::Gelu) {
    spec.activation = Activation::Relu;
  }
  spec.attention_output_bias = spec.attention_output_bias && modules.product_biases;
  spec.mlp_bias = spec.mlp_bias && modules.product_biases;
  spec.causal = spec.causal && modules.masked;
  spec.classes = modules.classes;
  spec.tied_embeddings = spec.tied_embeddings && modules.classes == 0;
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
  moe.capacity_factor = capacity_factor(row);
  return moe;
}

// The layers of a row count encoder and decoder together, or those of each: whichever is nearer to
// the stated parameters; together where none are stated.
NetworkSpec with_layers(NetworkSpec spec, const Measurement& row) {
  const std::int64_t layers = *row.layers;
  const auto parameters = [&](std::int64_t of_each) {
    spec.encoder_layers = of_each;
    spec.layers = of_each;
    return static_cast<double>(models::num_parameters(models::build_network(spec, row.where))) /
           1e9;
  };
  const bool even = layers % 2 == 0;
  const double together = even ? parameters(layers / 2) : 0.0;
  const bool each = !even || (row.params_b && std::abs(parameters(layers) - *row.params_b) <
                                                  std::abs(together - *row.params_b));
  spec.encoder_layers = each ? layers : layers / 2;
  spec.layers = spec.encoder_layers;
  return spec;
}

// A T5 or ViT that no file describes: the family's large network with the widths that the row
// states.
std::optional<NetworkSpec> widened_network(const Measurement& row) {
  const std::string family = letters_and_digits(row.model_family);
  const bool t5 = family == "t5";
  if ((!t5 && family != "vit") || !row.layers || !row.hidden || !row.heads) {
    return std::nullopt;
  }
  NetworkSpec spec = models::load_network(t5 ? "t5-large" : "vit-large-16").spec;
  spec.name = row.model();
  spec.layers = *row.layers;
  spec.hidden = *row.hidden;
  spec.heads = *row.heads;
  spec.kv_heads = row.kv_heads.value_or(spec.heads);
  spec.head_dim = row.head_dim.value_or(spec.hidden / spec.heads);
  spec.ffn_hidden = row.ffn_hidden.value_or(4 * spec.hidden);
  return t5 ? with_layers(std::move(spec), row) : spec;
}

// A row without a depth has nothing but its name to tell the network by.
std::string with_name(std::string reason, const Measurement& row) {
  const std::string unnamed = row.layers ? std::string() : why_unnamed(row);
  return unnamed.empty() ? reason : fmt::format("{}, and {}", reason, unnamed);
}

// A family whose layers the columns do not describe: all of the network that has its name.
tl::expected<NetworkSpec, std::string> network_by_name(const Measurement& row,
                                                       const FrameworkFacts& framework) {
  auto spec = named_network(row);
  if (!spec) {
    spec = widened_network(row);
  }
  if (!spec) {
    Measurement unnamed = row;
    unnamed.model_name.clear();
    const bool by_name = family_of(unnamed) != nullptr || row.model_family.empty();
    if (by_name && row.model_name.empty()) {
      return tl::unexpected(std::string("neither model_family nor model_name is stated"));
    }
    const std::string hint = row.model_family.empty() ? nearest_network_hint(row.model_name) : "";
    return tl::unexpected(by_name ? fmt::format("network \"{}\" is not modelled{}",
                                                printable(row.model_name, 60), hint)
                                  : fmt::format("network family \"{}\" is not modelled",
                                                printable(row.model_family, 60)));
  }
  const bool of_each = row.layers == spec->encoder_layers && row.layers == spec->layers;
  const std::int64_t all = spec->encoder_layers + spec->layers;
  if (row.layers && !of_each && *row.layers != all) {
    return tl::unexpected(fmt::format("{} has {} layers, not {}", spec->name, all, *row.layers));
  }
  if (spec->family == Family::T5 && framework.short_t5_targets) {
    spec->decoder_sequence = spec->sequence / 4;
  }
  if (row.seq_len) {
    spec->decoder_sequence = spec->decoder_sequence * *row.seq_len / spec->sequence;
    spec->sequence = *row.seq_len;
  }
  spec->vocab = row.vocab.value_or(spec->vocab);
  return std::move(*spec);
}

}  // namespace

std::string_view standing_family(const Measurement& row) {
  const bool known = family_of(row) != nullptr || named_network(row);
  const FamilyFacts* relative = known ? nullptr : relative_of(row);
  return relative == nullptr ? std::string_view() : relative->name;
}

namespace {

tl::expected<NetworkSpec, std::string> whole_network(const Measurement& row,
                                                     const FrameworkFacts& framework) {
  const FamilyFacts* family = family_of(row);
  if (family == nullptr && !named_network(row)) {
    family = relative_of(row);
  }
  if (family == nullptr) {
    return network_by_name(row, framework);
  }
  if (const auto missing = missing_architecture(row)) {
    return tl::unexpected(with_name(*missing, row));
  }
  if (const auto missing = missing_experts(row)) {
    return tl::unexpected(*missing);
  }
  NetworkSpec spec = family->spec;
  spec.name = row.model();
  spec.layers = *row.layers;
  spec.hidden = *row.hidden;
  spec.heads = *row.heads;
  // Latent attention keeps one latent vector, of which every head has keys of its own; some sources
  // call that one head.
  const bool latent = spec.mla.kv_lora_rank > 0;
  spec.kv_heads = latent ? spec.heads : row.kv_heads.value_or(spec.heads);
  spec.head_dim = row.head_dim.value_or(spec.hidden / spec.heads);
  spec.sequence = *row.seq_len;
  spec.tied_embeddings =
      row.tied_embeddings.value_or(spec.tied_embeddings && !framework.unties_embeddings);
  if (row.gated_mlp && *row.gated_mlp != models::is_gated(spec.activation)) {
    spec.activation = *row.gated_mlp ? Activation::SwiGlu : Activation::Gelu;
  }
  spec.moe = mixture(row);
  const ExpertLayers layers = stated_expert_layers(row);
  if (!layers.refused.empty()) {
    return tl::unexpected(
        fmt::format("experts in \"{}\" are not modelled", printable(layers.refused, 60)));
  }
  spec.moe.layer_frequency = std::max<std::int64_t>(1, layers.frequency);
  spec.ffn_hidden =
      row.ffn_hidden.value_or(models::is_gated(spec.activation) ? 0 : 4 * spec.hidden);
  if (spec.ffn_hidden == 0 && (spec.moe.experts == 0 || spec.moe.layer_frequency > 1)) {
    return tl::unexpected(std::string("ffn_hidden is not stated"));
  }
  spec.vocab = framework.pads_vocab
                   ? round_up(*row.vocab, 128 * std::max<std::int64_t>(1, row.tp.value_or(1)))
                   : *row.vocab;
  if (family->name == "gpt" || family->name == "glm130b") {
    apply_modules(framework, spec);
  }
  apply_dropout(row, spec);
  // No column says which keys a layer sees: the network that the row names and agrees with does.
  if (const std::optional<NetworkSpec> named = named_network(row)) {
    spec.sliding_window = named->sliding_window;
    spec.global_attention_interval = named->global_attention_interval;
    if (layers.frequency == 0 && named->moe.experts == spec.moe.experts) {
      spec.moe.layer_frequency = named->moe.layer_frequency;
    }
  }
  if (const OptionalCount window = stated_window(row); window && *window < spec.sequence) {
    spec.sliding_window = *window;
    if (const std::int64_t interval = stated_global_interval(row); interval > 0) {
      spec.global_attention_interval = interval;
    }
  }
  return spec;
}

}  // namespace

tl::expected<NetworkSpec, std::string> row_network(const Measurement& row,
                                                   const FrameworkFacts& framework) {
  auto spec = whole_network(row, framework);
  const auto adapters = stated_adapters(row, framework);
  if (spec && !adapters) {
    return tl::unexpected(adapters.error());
  }
  if (spec) {
    spec->adapters = *adapters;
  }
  return spec;
}

}  // namespace orrery::studies
