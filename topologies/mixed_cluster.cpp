// SPDX-License-Identifier: Apache-2.0
#include "topologies/mixed_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::topologies {

namespace {

constexpr std::string_view kSchema = "orrery-mixed-cluster";

bool is_file(const std::string& text) {
  return text.ends_with(".json") || text.find('/') != std::string::npos;
}

void check_pools(const MixedCluster& cluster, const std::string& where) {
  const auto count = static_cast<std::int64_t>(cluster.pools.size());
  if (count < 1 || count > kMaxPools) {
    bad_input(where, fmt::format("{} pools", count), fmt::format("1 to {}", kMaxPools));
  }
  std::int64_t gpus = 0;
  for (std::size_t index = 0; index < cluster.pools.size(); ++index) {
    const Pool& pool = cluster.pools[index];
    gpus += pool.cluster.num_gpus();
    if (pool.cluster.node.scale_out.nics == 0 && count > 1) {
      bad_input(where, fmt::format("nodes of pool \"{}\" have no network", pool.name),
                "state node.scale_out.nics: pools reach each other over it");
    }
    for (std::size_t other = 0; other < index; ++other) {
      if (cluster.pools[other].name == pool.name) {
        bad_input(where, fmt::format("two pools are called \"{}\"", pool.name),
                  "give each a \"name\" in a document, or one count of nodes");
      }
    }
  }
  if (gpus > limits::kMaxDevices) {
    bad_input(where, fmt::format("{} GPUs", gpus), fmt::format("at most {}", limits::kMaxDevices));
  }
}

// The document that stands alone.
Json document_of(const MixedCluster& cluster) {
  Json pools = Json::array();
  for (const Pool& pool : cluster.pools) {
    pools.push(Json::Object{{"name", pool.name}, {"cluster", pool.cluster.document}});
  }
  Json between = Json::object();
  if (cluster.bandwidth_per_node.value() > 0) {
    between.set("bandwidth_per_node", quantity_text(cluster.bandwidth_per_node));
  }
  if (cluster.latency.value() > 0) {
    between.set("latency", quantity_text(cluster.latency));
  }
  Json document = Json::Object{{"schema", kSchema},
                               {"version", 1},
                               {"name", cluster.name},
                               {"pools", std::move(pools)},
                               {"between", std::move(between)}};
  if (!cluster.same_nodes.empty()) {
    Json groups = Json::array();
    for (const std::vector<int>& group : cluster.same_nodes) {
      Json names = Json::array();
      for (const int pool : group) {
        names.push(cluster.pools[static_cast<std::size_t>(pool)].name);
      }
      groups.push(std::move(names));
    }
    document.set("same_nodes", std::move(groups));
  }
  return document;
}

// What follows "POOL." in the overrides of a pool.
std::vector<std::string> overrides_of(const Pool& pool, const std::vector<std::string>& overrides) {
  std::vector<std::string> mine;
  for (const std::string& text : overrides) {
    if (text.starts_with(pool.name + ".")) {
      mine.push_back(text.substr(pool.name.size() + 1));
    }
  }
  return mine;
}

void check_overrides(const MixedCluster& cluster, const std::vector<std::string>& overrides) {
  std::vector<std::string> names;
  for (const Pool& pool : cluster.pools) {
    names.push_back(pool.name);
  }
  for (const std::string& text : overrides) {
    const std::string head = text.substr(0, text.find('.'));
    if (std::find(names.begin(), names.end(), head) == names.end()) {
      bad_input("--set",
                fmt::format("\"{}\" does not begin with a pool of the cluster", printable(text)),
                nearest_hint(head, names));
    }
  }
}

Pool load_pool(const std::string& text, const std::string& name,
               const std::vector<std::string>& overrides) {
  Pool pool;
  pool.cluster = load_cluster(text);
  pool.name = name.empty() ? pool.cluster.node.name : name;
  const std::vector<std::string> mine = overrides_of(pool, overrides);
  if (!mine.empty()) {
    pool.cluster = load_cluster(text, mine);
  }
  return pool;
}

Pool read_pool(const JsonReader& value, const std::vector<std::string>& overrides) {
  ObjectReader object = value.object();
  const JsonReader cluster = object.required("cluster");
  const std::string name = object.string_or("name", "");
  Pool pool;
  if (cluster.json().is_string()) {
    pool = in_file(cluster.where(), [&] { return load_pool(cluster.string(), name, overrides); });
  } else {
    pool.cluster = read_cluster(cluster.json(), cluster.where());
    pool.name = name.empty() ? pool.cluster.node.name : name;
    if (!overrides_of(pool, overrides).empty()) {
      cluster.fail("--set does not reach into a cluster that is written out here",
                   "change the document, or name the cluster");
    }
  }
  if (!is_kebab_case(pool.name)) {
    value.fail(fmt::format("\"{}\" is not a name of a pool", printable(pool.name)),
               "lower-case letters and digits joined by hyphens");
  }
  object.finish();
  return pool;
}

bool is_pcie(const Pool& pool) { return pool.cluster.node.scale_up.builder == "pcie"; }

// [["fast", "slow"]]: pools of which each node is the same machine.
std::vector<int> read_same_nodes(const JsonReader& value, const MixedCluster& cluster,
                                 std::vector<int>& taken) {
  std::vector<std::string> names;
  for (const Pool& pool : cluster.pools) {
    names.push_back(pool.name);
  }
  std::vector<int> group;
  for (const JsonReader& name : value.array(kMaxPools)) {
    const auto found = std::find(names.begin(), names.end(), name.string());
    if (found == names.end()) {
      name.fail(fmt::format("no pool is called \"{}\"", printable(name.string())),
                nearest_hint(name.string(), names));
    }
    const int pool = static_cast<int>(found - names.begin());
    if (std::find(taken.begin(), taken.end(), pool) != taken.end()) {
      name.fail(fmt::format("pool \"{}\" is named twice", *found));
    }
    taken.push_back(pool);
    group.push_back(pool);
  }
  if (group.size() < 2) {
    value.fail("one pool alone shares no node", "name two or more");
  }
  const auto at = [&](int pool) -> const Pool& {
    return cluster.pools[static_cast<std::size_t>(pool)];
  };
  for (const int pool : group) {
    if (at(pool).cluster.num_nodes != at(group.front()).cluster.num_nodes) {
      value.fail(fmt::format("\"{}\" has {} nodes, \"{}\" {}", at(group.front()).name,
                             at(group.front()).cluster.num_nodes, at(pool).name,
                             at(pool).cluster.num_nodes),
                 "pools in the same nodes have equally many");
    }
  }
  if (std::none_of(group.begin(), group.end(), [&](int pool) { return is_pcie(at(pool)); })) {
    value.fail("no pool says how GPUs of different kinds reach each other in a node",
               "a node type whose scale_up.builder is \"pcie\" for one of the pools");
  }
  std::sort(group.begin(), group.end());
  return group;
}

MixedCluster read_document(const Json& document, const std::string& where,
                           const std::vector<std::string>& overrides) {
  ObjectReader object = JsonReader(document, where).object();
  object.expect_schema(kSchema, 1);
  MixedCluster cluster;
  cluster.name = object.string_or("name", "mixed cluster");
  for (const JsonReader& pool : object.required("pools").array(kMaxPools)) {
    cluster.pools.push_back(read_pool(pool, overrides));
  }
  if (const auto value = object.optional("between")) {
    ObjectReader between = value->object();
    if (const auto bandwidth = between.optional("bandwidth_per_node")) {
      cluster.bandwidth_per_node = bandwidth->bandwidth();
    }
    if (const auto latency = between.optional("latency")) {
      cluster.latency = latency->duration();
    }
    between.finish();
  }
  if (const auto groups = object.optional("same_nodes")) {
    std::vector<int> taken;
    for (const JsonReader& group : groups->array(kMaxPools)) {
      cluster.same_nodes.push_back(read_same_nodes(group, cluster, taken));
    }
  }
  object.string_or("note", "");
  object.finish();
  return cluster;
}

MixedCluster checked(MixedCluster cluster, const std::string& where,
                     const std::vector<std::string>& overrides) {
  check_pools(cluster, where);
  check_overrides(cluster, overrides);
  cluster.document = document_of(cluster);
  return cluster;
}

}  // namespace

int MixedCluster::num_gpus() const {
  return std::accumulate(pools.begin(), pools.end(), 0,
                         [](int sum, const Pool& pool) { return sum + pool.cluster.num_gpus(); });
}

bool MixedCluster::in_same_nodes(const std::vector<int>& of_pools) const {
  return std::any_of(same_nodes.begin(), same_nodes.end(), [&](const std::vector<int>& group) {
    return std::all_of(of_pools.begin(), of_pools.end(), [&](int pool) {
      return std::find(group.begin(), group.end(), pool) != group.end();
    });
  });
}

bool is_mixed_cluster(const Json& document) {
  const Json* schema = document.is_object() ? document.find("schema") : nullptr;
  return schema != nullptr && *schema == Json(std::string(kSchema));
}

bool names_mixed_cluster(const std::string& text) {
  if (!is_file(text)) {
    return text.find('+') != std::string::npos;
  }
  return text.ends_with(".json") && is_mixed_cluster(read_json_file(text));
}

MixedCluster read_mixed_cluster(const Json& document, const std::string& where) {
  return checked(read_document(document, where, {}), where, {});
}

MixedCluster load_mixed_cluster(const std::string& text,
                                const std::vector<std::string>& overrides) {
  if (is_file(text)) {
    return checked(read_document(read_json_file(text), text, overrides), text, overrides);
  }
  MixedCluster cluster;
  cluster.name = text;
  for (const std::string_view part : split(text, '+')) {
    if (trim(part).empty()) {
      bad_input(fmt::format("cluster \"{}\"", printable(text)), "a pool beside \"+\" has no name",
                "NODE:COUNT+NODE:COUNT");
    }
    cluster.pools.push_back(load_pool(std::string(trim(part)), "", overrides));
  }
  return checked(std::move(cluster), fmt::format("cluster \"{}\"", printable(text)), overrides);
}

namespace {

double rate_per_gpu(const Node& node) {
  const ScaleOut& out = node.scale_out;
  return out.nic_bandwidth.value() * out.nics * out.efficiency_fraction / node.gpus;
}

// Nodes that hold the GPUs of several pools.
Cluster joined_nodes(const MixedCluster& cluster, const std::vector<int>& pools) {
  const auto pool_at = [&](int index) -> const Pool& {
    return cluster.pools[static_cast<std::size_t>(index)];
  };
  const auto slower = [&](int a, int b) {
    const bool other = is_pcie(pool_at(a)) != is_pcie(pool_at(b));
    return other ? is_pcie(pool_at(a))
                 : pool_at(a).cluster.node.scale_up.bandwidth_per_gpu <
                       pool_at(b).cluster.node.scale_up.bandwidth_per_gpu;
  };
  Cluster joined = pool_at(*std::min_element(pools.begin(), pools.end(), slower)).cluster;
  joined.node.gpus = joined.node.scale_out.nics = 0;
  for (const int pool : pools) {
    const Node& node = pool_at(pool).cluster.node;
    joined.node.gpus += node.gpus;
    joined.node.scale_out.nics += node.scale_out.nics;
    joined.node.scale_out.nic_bandwidth =
        std::min(joined.node.scale_out.nic_bandwidth, node.scale_out.nic_bandwidth);
    joined.node.scale_up.latency = std::max(joined.node.scale_up.latency, node.scale_up.latency);
  }
  return joined;
}

}  // namespace

Cluster network_across(const MixedCluster& cluster, const std::vector<int>& pools,
                       int gpus_per_node) {
  const auto pool_at = [&](int index) -> const Cluster& {
    return cluster.pools[static_cast<std::size_t>(index)].cluster;
  };
  if (pools.size() > 1 && cluster.in_same_nodes(pools)) {
    return joined_nodes(cluster, pools);
  }
  const int weakest = *std::min_element(pools.begin(), pools.end(), [&](int a, int b) {
    return rate_per_gpu(pool_at(a).node) < rate_per_gpu(pool_at(b).node);
  });
  Cluster across = pool_at(weakest);
  const Seconds switch_latency = across.fabric.switch_latency;
  across.fabric = Fabric();  // one switch joins the pools: what is behind it, `between` says
  across.fabric.builder = "single-switch";
  across.fabric.switch_latency = switch_latency;
  ScaleOut& out = across.node.scale_out;
  const double per_node = out.nic_bandwidth.value() * out.nics;
  if (cluster.bandwidth_per_node.value() > 0 && cluster.bandwidth_per_node.value() < per_node) {
    out.nic_bandwidth = BytesPerSecond(cluster.bandwidth_per_node.value() / out.nics);
  }
  out.latency = std::max(out.latency, cluster.latency);
  across.num_nodes = 0;
  for (const int pool : pools) {
    across.num_nodes += pool_at(pool).num_nodes;
    out.latency = std::max(out.latency, pool_at(pool).node.scale_out.latency);
    out.plugin_latency = std::max(out.plugin_latency, pool_at(pool).node.scale_out.plugin_latency);
    out.in_network_reduction =
        out.in_network_reduction && pool_at(pool).node.scale_out.in_network_reduction;
    out.low_latency = out.low_latency && pool_at(pool).node.scale_out.low_latency;
    out.low_latency_128 = out.low_latency_128 && pool_at(pool).node.scale_out.low_latency_128;
  }
  if (gpus_per_node < across.node.gpus) {
    out.nics = std::max(1, out.nics * gpus_per_node / across.node.gpus);
    across.node.gpus = gpus_per_node;
  }
  return across;
}

void refuse_mixed_cluster(const std::string& where) {
  bad_input(
      where, "several kinds of nodes in one cluster",
      "`orrery plan` (without --pareto, --like and the like), `orrery simulate`, `show cluster` "
      "and `show layout` take mixed clusters; everything else takes one kind of nodes");
}

}  // namespace orrery::topologies
