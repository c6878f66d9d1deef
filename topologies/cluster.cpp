// SPDX-License-Identifier: Apache-2.0
#include "topologies/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/builder.hpp"
#include "topologies/documents.hpp"
#include "topologies/mixed_cluster.hpp"
#include "topologies/nccl_xml.hpp"
#include "topologies/node_part.hpp"
#include "topologies/slurm.hpp"

namespace orrery::topologies {
namespace {

constexpr auto kRoots = std::to_array<std::string_view>({"gpu", "node", "fabric", "nodes"});

Json cluster_of_node(Json node, std::string_view name, std::int64_t nodes) {
  Json cluster = Json::object();
  cluster.set("schema", "orrery-cluster");
  cluster.set("version", 1);
  cluster.set("name", name);
  cluster.set("node", std::move(node));
  cluster.set("nodes", nodes);
  return cluster;
}

bool is_path(std::string_view text) {
  return text.ends_with(".json") || text.ends_with(".xml") ||
         text.find('/') != std::string_view::npos || text == "-";
}

// A slash alone does not make a path of what should have been a name.
void check_exists(const std::string& text) {
  std::error_code ignored;
  const bool is_document = text.ends_with(".json") || text.ends_with(".xml") || text == "-";
  if (!is_document && !std::filesystem::exists(text, ignored)) {
    bad_input(fmt::format("cluster \"{}\"", printable(text)), "neither a name nor a file",
              "NODE:COUNT, a name of `orrery list clusters` or the path of a document");
  }
}

Json document_of_file(const std::string& path) {
  if (path.ends_with(".xml")) {
    const std::string text = read_file(path, limits::kMaxConfigFileBytes);
    return cluster_of_node(node_document_of_nccl_xml(text, path), path, 1);
  }
  Json document = read_json_file(path);
  const Json* schema = document.find("schema");
  if (schema != nullptr && *schema == Json("orrery-node")) {
    const Json* name = document.find("name");
    const std::string shown = name != nullptr && name->is_string() ? name->as_string() : "node";
    return cluster_of_node(std::move(document), shown, 1);
  }
  return document;
}

[[noreturn]] void unknown(std::string_view name, std::string_view text) {
  std::vector<std::string> names = cluster_names();
  for (std::string& node : node_names()) {
    names.push_back(std::move(node));
  }
  bad_input(fmt::format("cluster \"{}\"", printable(text)),
            fmt::format("no cluster or node is called \"{}\"", printable(name)),
            nearest_hint(to_lower(name), names));
}

Json document_of_text(const std::string& text);

// "name@topology.conf", whatever the file is called: where the name ends; npos for every other
// text, also a path that has the sign in it.
std::size_t slurm_mark(const std::string& text) {
  const std::size_t mark = text.rfind('@');
  const bool is_document = text.ends_with(".json") || text.ends_with(".xml");
  std::error_code ignored;
  return mark + 1 == text.size() || is_document || std::filesystem::exists(text, ignored)
             ? std::string::npos
             : mark;
}

// The hosts and switches of a SLURM file, every host a node as `name` has them.
Json document_of_slurm(const std::string& text) {
  const std::size_t mark = slurm_mark(text);
  const std::string name = text.substr(0, mark);
  const std::string path = text.substr(mark + 1);
  const std::string where = fmt::format("cluster \"{}\"", printable(text));
  if (!is_path(name) && name.find(':') != std::string::npos) {
    bad_input(where, "states a number of nodes beside a SLURM file, which has its own",
              fmt::format("{}@{}", printable(name.substr(0, name.find(':'))), printable(path)));
  }
  const SlurmTopology topology =
      parse_slurm_topology(read_file(path, limits::kMaxConfigFileBytes), path);
  Json cluster =
      cluster_document_of_slurm(topology, read_cluster(document_of_text(name), where), path);
  cluster.set("name", text);
  return cluster;
}

// "name", "name:count", "name@topology.conf" or the path of a JSON or NCCL topology file.
Json document_of_text(const std::string& text) {
  if (slurm_mark(text) != std::string::npos) {
    return document_of_slurm(text);
  }
  if (is_path(text)) {
    check_exists(text);
    return document_of_file(text);
  }
  if (names_mixed_cluster(text)) {
    refuse_mixed_cluster(fmt::format("cluster \"{}\"", printable(text)));
  }
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::string where = fmt::format("cluster \"{}\"", printable(text));
  if (text.find('@') != std::string::npos) {
    bad_input(where, "no SLURM file behind the @", "NODE@topology.conf");
  }
  std::int64_t count = 0;
  if (colon != std::string::npos) {
    count = parse_integer(std::string_view(text).substr(colon + 1), where + ": count", 1,
                          limits::kMaxNodesOfCluster);
  }
  const std::vector<std::string> clusters = cluster_names();
  if (std::find(clusters.begin(), clusters.end(), name) != clusters.end()) {
    Json document = read_json_file(data_path("topologies/clusters/" + name + ".json"));
    if (count > 0) {
      document.set("nodes", count);
      document.set("name", text);
    }
    return document;
  }
  if (find_node_name(name).empty()) {
    unknown(name, text);
  }
  return cluster_of_node(node_document(name, where), text, std::max<std::int64_t>(count, 1));
}

constexpr std::string_view kLinkPath = "node.scale_up.bandwidth_per_gpu";
constexpr auto kRingKeys =
    std::to_array<std::string_view>({"nccl_bandwidth", "nccl_socket_bandwidth"});

bool states_rings(const std::vector<std::string>& overrides) {
  return std::any_of(overrides.begin(), overrides.end(), [](const std::string& text) {
    return std::any_of(kRingKeys.begin(), kRingKeys.end(), [&](std::string_view key) {
      return overridden_path(text) == "node.scale_up." + std::string(key);
    });
  });
}

double link_bandwidth(const Json& document, const std::string& where) {
  ObjectReader cluster = JsonReader(document, where).object();
  ObjectReader node = cluster.required("node").object();
  ObjectReader up = node.required("scale_up").object();
  cluster.ignore_rest();
  node.ignore_rest();
  up.ignore_rest();
  return up.required("bandwidth_per_gpu").bandwidth().value();
}

// Whether a builder, not validated yet, leaves the GPUs to PCIe.
bool is_wired_by_host(const Json* builder) {
  const auto& all = builder_table();
  return builder != nullptr &&
         std::any_of(all.begin(), all.end(), [&](const TopologyBuilder* known) {
           return known->kind == BuilderKind::Node && known->wiring == Wiring::Host &&
                  *builder == Json(std::string(known->name));
         });
}

// NCCL lays its rings over the links: other links carry other rings, in proportion. Over PCIe the
// host bounds them, so that faster slots alone do not help.
void scale_rings(Json& document, double before, const std::string& where) {
  Json& up = *document.find("node")->find("scale_up");
  const double ratio = link_bandwidth(document, where) / before;
  const bool pcie = is_wired_by_host(up.find("builder"));
  for (const std::string_view key : kRingKeys) {
    if (const Json* ring = up.find(key); ring != nullptr && !ring->is_null()) {
      const BytesPerSecond stated = JsonReader(*ring, where + ": " + std::string(key)).bandwidth();
      up.set(key, quantity_text(stated * (pcie ? std::min(1.0, ratio) : ratio)));
    }
  }
}

void apply(Json& document, const std::string& text, const std::string& where) {
  const std::size_t equals = text.find('=');
  const std::string shown = printable(text);
  if (equals == std::string::npos) {
    bad_input("--set", fmt::format("\"{}\" has no \"=\"", shown), "path=value");
  }
  const std::string_view path = overridden_path(text);
  const std::string_view head = split(path, '.').front();
  if (!is_among(head, kRoots)) {
    const std::vector<std::string> roots(kRoots.begin(), kRoots.end());
    bad_input("--set", fmt::format("\"{}\" does not begin with a part of the cluster", shown),
              nearest_hint(head, roots));
  }
  set_path(document, path, trim(std::string_view(text).substr(equals + 1)), false);
  complete(document, where);
}

std::vector<std::string> read_overrides(ObjectReader& object) {
  std::vector<std::string> overrides;
  if (const auto list = object.optional("overrides")) {
    for (const JsonReader& text : list->array(1000)) {
      overrides.push_back(text.string());
    }
  }
  return overrides;
}

// Nodes and fabric must fit each other, as every later question about the network assumes.
void check_fabric(const Cluster& cluster) {
  if (cluster.num_nodes > 1 && cluster.node.scale_out.nics > 0) {
    find_builder(cluster.fabric.builder, BuilderKind::Fabric).scale(cluster);
  }
}

void check_size(const Cluster& cluster, const JsonReader& nodes) {
  const std::int64_t count = cluster.num_nodes;
  if (count * cluster.node.gpus > limits::kMaxDevices) {
    nodes.fail(fmt::format("{} nodes of {} GPUs", count, cluster.node.gpus),
               fmt::format("at most {} GPUs", limits::kMaxDevices));
  }
  if (count > 1 && cluster.node.scale_out.nics == 0) {
    nodes.fail(fmt::format("nodes of \"{}\" have no network: no route between them",
                           printable(cluster.node.name)),
               "state node.scale_out.nics, or one node");
  }
}

}  // namespace

Cluster::Cluster() = default;
Cluster::Cluster(const Cluster&) = default;
Cluster::Cluster(Cluster&&) noexcept = default;
Cluster& Cluster::operator=(const Cluster&) = default;
Cluster& Cluster::operator=(Cluster&&) noexcept = default;
Cluster::~Cluster() = default;

Cluster read_cluster(const Json& document, const std::string& where) {
  if (is_mixed_cluster(document)) {
    refuse_mixed_cluster(where);
  }
  Cluster cluster;
  cluster.document = document;
  complete(cluster.document, where);
  ObjectReader object = JsonReader(cluster.document, where).object();
  object.expect_schema("orrery-cluster", 1);
  const auto [gpu, node, fabric, nodes] =
      required_members(object, {"gpu", "node", "fabric", "nodes"});
  cluster.gpu = read_gpu(gpu);
  cluster.node = read_node(node);
  cluster.fabric = read_fabric(fabric);
  cluster.num_nodes = static_cast<int>(nodes.integer(1, limits::kMaxNodesOfCluster));
  cluster.name = object.string_or("name", "cluster");
  cluster.overrides = read_overrides(object);
  read_sources(object);
  object.finish();
  check_size(cluster, nodes);
  in_file(where, [&] { check_fabric(cluster); });
  return cluster;
}

namespace {

bool states(const std::vector<std::string>& overrides, std::string_view path) {
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const std::string& text) { return overridden_path(text) == path; });
}

}  // namespace

void apply_overrides(Json& document, const std::vector<std::string>& overrides,
                     const std::string& where) {
  const bool rings_follow = !states_rings(overrides);
  const NodeParts usual = node_parts(document);
  for (const std::string& override_text : overrides) {
    const bool links = rings_follow && overridden_path(override_text) == kLinkPath;
    const double before = links ? link_bandwidth(document, where) : 0;
    const std::int64_t gpus_before = node_parts(document).gpus;
    apply(document, override_text, where);
    if (overridden_path(override_text) == "node.gpus" &&
        !states(overrides, "node.scale_out.nics")) {
      scale_nics(document, gpus_before);
    }
    if (links) {
      scale_rings(document, before, where);
    }
  }
  if (rings_follow) {
    keep_whole_ring(document, usual.gpus);
  }
  if (!states(overrides, "node.scale_up.mesh")) {
    cut_mesh(document, usual.gpus);
  }
  if (!states(overrides, "node.scale_up.boards")) {
    leave_board(document, usual.gpus);
  }
  if (states(overrides, "node.scale_out.nics") && !states(overrides, "fabric.nodes_per_leaf") &&
      !states(overrides, "fabric")) {
    fit_leaves(document, usual);
  }
}

Cluster load_cluster(const std::string& text, const std::vector<std::string>& overrides) {
  const std::string where = is_path(text) ? text : fmt::format("cluster \"{}\"", printable(text));
  Json document = document_of_text(text);
  complete(document, where);
  apply_overrides(document, overrides, where);
  if (!overrides.empty() && document.is_object()) {
    Json list = Json::array();
    for (const std::string& override_text : overrides) {
      list.push(override_text);
    }
    document.set("overrides", std::move(list));
  }
  return read_cluster(document, where);
}

Gpu load_gpu(const std::string& name_or_alias) {
  const Json document = gpu_document(name_or_alias, "GPU");
  return read_gpu(JsonReader(document, fmt::format("GPU \"{}\"", printable(name_or_alias))));
}

std::vector<std::string> gpu_names() { return data_names("topologies/gpus"); }
std::vector<std::string> node_names() { return data_names("topologies/nodes"); }
std::vector<std::string> cluster_names() { return data_names("topologies/clusters"); }

}  // namespace orrery::topologies
