// SPDX-License-Identifier: Apache-2.0
#include "models/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command/common.hpp"
#include "cli/show/show.hpp"
#include "search/problem.hpp"
#include "studies/network_picture.hpp"

namespace orrery::cli {
namespace {

std::string kind_text(models::OpKind kind) {
  switch (kind) {
    case models::OpKind::Gemm:
      return "gemm";
    case models::OpKind::GroupedGemm:
      return "grouped gemm";
    case models::OpKind::Attention:
      return "attention";
    case models::OpKind::Norm:
      return "norm";
    case models::OpKind::Elementwise:
      return "elementwise";
    case models::OpKind::Embedding:
      return "embedding";
    case models::OpKind::CrossEntropy:
      return "cross entropy";
    case models::OpKind::Router:
      return "router";
    case models::OpKind::Permute:
      return "permute";
  }
  return "";
}

std::int64_t count_of(const models::Network& network, std::size_t block) {
  return std::count(network.chain.begin(), network.chain.end(), static_cast<int>(block));
}

// By their first place in the chain, as in the picture; those that are in none come last.
std::vector<std::size_t> block_order(const models::Network& network) {
  std::vector<std::size_t> order(network.blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto place = [&](std::size_t block) {
      return std::find(network.chain.begin(), network.chain.end(), static_cast<int>(block));
    };
    return place(a) < place(b);
  });
  return order;
}

std::string block_table(const models::Network& network, const models::Workload& workload) {
  TextTable table({{"block"},
                   {"count", Align::Right},
                   {"parameters", Align::Right},
                   {"forward FLOPs", Align::Right},
                   {"saved", Align::Right}});
  for (const std::size_t i : block_order(network)) {
    const models::Block& block = network.blocks[i];
    table.add_row({block.name, fmt::format("{}", count_of(network, i)),
                   format_count(static_cast<double>(models::num_parameters(block))),
                   format_count(models::forward_flops(block, workload, false).value()),
                   format_bytes(Bytes(models::saved_bytes(block, workload, {})))});
  }
  return table.text();
}

std::vector<std::string> weights_of(const models::Block& block, const models::Operator& op) {
  std::vector<std::string> names;
  for (const int weight : op.weights) {
    names.push_back(block.tensors[static_cast<std::size_t>(weight)].name);
  }
  return names;
}

std::string operator_table(const models::Block& block, const models::Workload& workload) {
  TextTable table({{fmt::format("operators of \"{}\"", block.name)},
                   {"kind"},
                   {"forward FLOPs", Align::Right},
                   {"weights"}});
  for (const models::Operator& op : block.operators) {
    const double flops = models::forward_flops(block, op, workload, false).value();
    table.add_row({op.name, kind_text(op.kind), flops > 0 ? format_count(flops) : "",
                   fmt::format("{}", fmt::join(weights_of(block, op), ", "))});
  }
  return table.text();
}

Json operators_json(const models::Block& block, const models::Workload& workload) {
  Json operators = Json::array();
  for (const models::Operator& op : block.operators) {
    Json weights = Json::array();
    for (const std::string& name : weights_of(block, op)) {
      weights.push(name);
    }
    operators.push(
        Json::Object{{"name", op.name},
                     {"kind", kind_text(op.kind)},
                     {"forward_flops", models::forward_flops(block, op, workload, false).value()},
                     {"weights", std::move(weights)}});
  }
  return operators;
}

// One sequence, as in the tables.
Json blocks_json(const models::Network& network, const models::Workload& workload) {
  Json blocks = Json::array();
  for (const std::size_t i : block_order(network)) {
    const models::Block& block = network.blocks[i];
    blocks.push(
        Json::Object{{"name", block.name},
                     {"count", count_of(network, i)},
                     {"parameters", models::num_parameters(block)},
                     {"forward_flops", models::forward_flops(block, workload, false).value()},
                     {"saved_bytes", models::saved_bytes(block, workload, {})},
                     {"operators", operators_json(block, workload)}});
  }
  return blocks;
}

// Latent attention has its own head sizes: queries and keys with their rotary part, and values.
std::string head_text(const models::NetworkSpec& spec) {
  if (spec.mla.kv_lora_rank > 0) {
    return fmt::format("{} heads of {} (values {}, latent of {})", spec.heads,
                       spec.mla.qk_nope_head_dim + spec.mla.qk_rope_head_dim, spec.mla.v_head_dim,
                       spec.mla.kv_lora_rank);
  }
  return fmt::format("{} heads ({} key-value) of {}", spec.heads, spec.kv_heads, spec.head_dim);
}

}  // namespace

Shown show_network(const ShowRequest& request) {
  const search::Overrides overrides = search::split_overrides(request.settings);
  if (!overrides.cluster.empty()) {
    bad_input("--set", fmt::format("\"{}\" is a field of a cluster", overrides.cluster.front()));
  }
  const models::Network network = models::load_network(request.name, overrides.network);
  const models::NetworkSpec& spec = network.spec;
  const models::Workload workload{1, spec.sequence};
  const auto parameters = static_cast<double>(models::num_parameters(network));
  const auto active = static_cast<double>(models::num_active_parameters(network));
  const Flops per_token =
      models::model_flops(network, workload) / static_cast<double>(spec.sequence);

  Shown shown;
  const std::int64_t trained = models::num_trained_parameters(network);
  shown.text = fmt::format("{}: {} parameters", spec.name, format_count(parameters));
  if (trained != models::num_parameters(network)) {
    shown.text += fmt::format(", {} trained ({:.3g} %)", format_count(static_cast<double>(trained)),
                              100.0 * static_cast<double>(trained) / parameters);
  }
  if (active != parameters) {
    shown.text += fmt::format(", {} active per token", format_count(active));
  }
  shown.text +=
      fmt::format("\n{} layers, hidden {}, {}, feed-forward {}, vocabulary {}\n",
                  spec.layers + spec.encoder_layers + spec.encoder.layers + spec.cascade.layers,
                  spec.hidden, head_text(spec), spec.ffn_hidden, spec.vocab);
  if (spec.moe.experts > 0) {
    shown.text += fmt::format("{} experts of {}, top {}, shared {}\n", spec.moe.experts,
                              spec.moe.ffn_hidden, spec.moe.top_k, spec.moe.shared_ffn_hidden);
  }
  shown.text += fmt::format("{} FLOPs per token forward and backward at sequence {}\n",
                            format_count(per_token.value()), spec.sequence);
  shown.text += spec.source.empty() ? "" : fmt::format("source: {}\n", spec.source);
  shown.text +=
      fmt::format("\nOne sequence of {}, 2-byte precision, fused attention:\n", spec.sequence);
  shown.text += block_table(network, workload);
  for (const std::size_t block : block_order(network)) {
    shown.text += fmt::format("\n{}", operator_table(network.blocks[block], workload));
  }
  shown.svg = request.picture ? studies::network_svg(network) : std::string();
  shown.json = Json::Object{
      {"name", spec.name},
      {"parameters", models::num_parameters(network)},
      {"active_parameters", models::num_active_parameters(network)},
      {"trained_parameters", trained},
      {"model_flops_per_token", per_token.value()},
      {"blocks", blocks_json(network, workload)},
      {"network", network.document.is_null() ? models::to_json(spec) : network.document},
  };
  return shown;
}

}  // namespace orrery::cli
