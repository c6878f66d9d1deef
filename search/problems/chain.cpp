// SPDX-License-Identifier: Apache-2.0
#include "search/problems/chain.hpp"

#include <fmt/core.h>

#include <utility>

namespace orrery::search {

namespace {

template <typename Value>
std::vector<double> prefix_sums(const std::vector<ChainLayer>& layers, Value value) {
  std::vector<double> sums = {0.0};
  sums.reserve(layers.size() + 1);
  for (const ChainLayer& layer : layers) {
    sums.push_back(sums.back() + value(layer));
  }
  return sums;
}

Seconds duration_or_zero(ObjectReader& layer, std::string_view key) {
  const auto value = layer.optional(key);
  return value ? value->duration() : Seconds(0);
}

Bytes bytes_or_zero(ObjectReader& layer, std::string_view key) {
  const auto value = layer.optional(key);
  return value ? value->bytes(true) : Bytes(0);
}

}  // namespace

Chain::Chain(std::vector<ChainLayer> layers)
    : layers_(std::move(layers)),
      forward_(prefix_sums(layers_, [](const ChainLayer& l) { return l.forward.value(); })),
      backward_(prefix_sums(layers_, [](const ChainLayer& l) { return l.backward.value(); })),
      parameters_(prefix_sums(layers_, [](const ChainLayer& l) { return l.parameters.value(); })),
      activations_(
          prefix_sums(layers_, [](const ChainLayer& l) { return l.activations.value(); })) {}

Chain read_chain(ObjectReader& problem, int max_layers) {
  const JsonReader list = problem.required("layers");
  std::vector<ChainLayer> layers;
  for (const JsonReader& entry : list.array(max_layers)) {
    ObjectReader reader = entry.object();
    ChainLayer layer{duration_or_zero(reader, "forward"), duration_or_zero(reader, "backward"),
                     bytes_or_zero(reader, "parameters"), bytes_or_zero(reader, "activations"),
                     bytes_or_zero(reader, "output")};
    layer.backward += Seconds(reader.number_or("state_time_s", 0, -1e9, 1e9));
    layer.parameters += Bytes(reader.number_or("state_parameters_bytes", 0, -1e15, 1e15));
    layer.activations += Bytes(reader.number_or("state_activations_bytes", 0, -1e15, 1e15));
    const std::int64_t count = reader.integer_or("count", 1, 1, max_layers);
    reader.finish();
    if (static_cast<std::int64_t>(layers.size()) + count > max_layers) {
      list.fail(fmt::format("more than {} layers", max_layers), "merge neighbouring layers");
    }
    layers.insert(layers.end(), static_cast<std::size_t>(count), layer);
  }
  if (layers.empty()) {
    list.fail("expected at least one layer");
  }
  const double scale = problem.number_or("batch_scale", 1, 1e-6, 1e6);
  for (ChainLayer& layer : layers) {
    layer.forward *= scale;
    layer.backward *= scale;
    layer.activations *= scale;
    layer.output *= scale;
  }
  Chain chain(std::move(layers));
  if (chain.time(0, chain.size()) <= 0) {
    list.fail("no layer takes any time", "give them \"forward\" and \"backward\"");
  }
  return chain;
}

Json to_json(const std::vector<ChainStage>& stages) {
  Json list = Json::array();
  for (const ChainStage& stage : stages) {
    Json entry = Json::object();
    entry.set("first", stage.first);
    entry.set("last", stage.last);
    entry.set("replicas", stage.replicas);
    list.push(std::move(entry));
  }
  return list;
}

}  // namespace orrery::search
