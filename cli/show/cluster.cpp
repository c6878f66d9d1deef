// SPDX-License-Identifier: Apache-2.0
#include "topologies/cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/common.hpp"
#include "cli/show/show.hpp"
#include "search/problem.hpp"
#include "studies/cluster_picture.hpp"
#include "topologies/builder.hpp"
#include "topologies/graph.hpp"
#include "topologies/mixed_cluster.hpp"
#include "topologies/routing.hpp"
#include "topologies/summary.hpp"

namespace orrery::cli {
namespace {

// Larger graphs are not built to be counted.
constexpr int kMaxGpusOfGraph = 4096;

std::string known(bool is_known, const std::string& text) { return is_known ? text : "not stated"; }

std::string gpu_table(const topologies::Gpu& gpu) {
  TextTable table({{fmt::format("GPU {}", gpu.name)}, {""}});
  table.add_row({"vendor, architecture", fmt::format("{}, {}", gpu.vendor, gpu.architecture)});
  table.add_row({"memory", format_bytes(gpu.memory.bytes())});
  table.add_row({"memory bandwidth", format_bandwidth(gpu.hbm_bandwidth)});
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (gpu.peak_of(dtype).value() > 0) {
      table.add_row(
          {fmt::format("peak {}, dense", to_text(dtype)), format_flop_rate(gpu.peak_of(dtype))});
    }
  }
  table.add_row(
      {"streaming multiprocessors", known(gpu.sm_count > 0, fmt::format("{}", gpu.sm_count))});
  table.add_row(
      {"PCIe", known(gpu.pcie_bandwidth.value() > 0, format_bandwidth(gpu.pcie_bandwidth))});
  table.add_row({"power", known(gpu.power_watts > 0, fmt::format("{:.0f} W", gpu.power_watts))});
  table.add_row({"price", known(gpu.price.value() > 0,
                                fmt::format("{:.2f} USD/h", (gpu.price * kHour).value()))});
  return table.text();
}

std::string node_table(const topologies::Node& node) {
  const topologies::ScaleUp& up = node.scale_up;
  const topologies::ScaleOut& out = node.scale_out;
  TextTable table({{fmt::format("node {}", node.name)}, {""}});
  table.add_row({"GPUs", fmt::format("{}", node.gpus)});
  table.add_row({"scale-up", fmt::format("{}, {}, {} per GPU and direction", up.builder, up.link,
                                         format_bandwidth(up.bandwidth_per_gpu))});
  table.add_row({"NCCL ring", format_bandwidth(up.nccl_bandwidth)});
  table.add_row({"scale-out", out.nics == 0 ? std::string("none")
                                            : fmt::format("{} x {}, {} each", out.nics, out.link,
                                                          format_bandwidth(out.nic_bandwidth))});
  table.add_row(
      {"host memory", known(node.host_memory.value() > 0, format_bytes(node.host_memory.bytes()))});
  table.add_row({"host link per GPU", known(node.host_link_per_gpu.value() > 0,
                                            format_bandwidth(node.host_link_per_gpu))});
  return table.text();
}

// From the first to the last node, and what uplinks leave when all nodes send.
struct Reach {
  int switches = 0;
  Seconds latency;
  double ring_share = 1;
  double all_to_all_share = 1;
};

Reach reach_of(const topologies::Cluster& cluster) {
  Reach reach;
  reach.switches = topologies::switches_between(cluster, 0, cluster.num_nodes - 1);
  reach.latency = topologies::network_latency(cluster, reach.switches);
  const topologies::NodeGroup all{0, cluster.num_nodes, 1};
  reach.ring_share = topologies::uplink_share(cluster, all, topologies::Traffic::Ring);
  reach.all_to_all_share = topologies::uplink_share(cluster, all, topologies::Traffic::AllToAll);
  return reach;
}

Json fabric_json(const topologies::Cluster& cluster) {
  const Reach reach = reach_of(cluster);
  return Json::Object{{"builder", cluster.fabric.builder},
                      {"oversubscription", cluster.fabric.oversubscription},
                      {"switches_to_last_node", reach.switches},
                      {"latency_to_last_node_s", reach.latency.value()},
                      {"ring_share", reach.ring_share},
                      {"all_to_all_share", reach.all_to_all_share}};
}

std::string fabric_table(const topologies::Cluster& cluster) {
  const topologies::Fabric& fabric = cluster.fabric;
  TextTable table({{fmt::format("fabric {}", fabric.builder)}, {""}});
  const topologies::TopologyBuilder& builder =
      topologies::find_builder(fabric.builder, topologies::BuilderKind::Fabric);
  table.add_row({"what it is", std::string(builder.summary)});
  table.add_row({"oversubscription", fmt::format("{:g}", fabric.oversubscription)});
  const Reach reach = reach_of(cluster);
  table.add_row(
      {"first to last node", fmt::format("{}, {}", counted(reach.switches, "switch", "switches"),
                                         format_duration(reach.latency))});
  table.add_row({"share left to a ring of all", percent(reach.ring_share, 0)});
  table.add_row({"share left to an all-to-all", percent(reach.all_to_all_share, 0)});
  return table.text();
}

// Whole cables of the fabric's layers: what a stated oversubscription comes to when it is built.
std::string cables_text(const topologies::Graph& graph) {
  using topologies::VertexKind;
  static constexpr std::array<std::pair<VertexKind, VertexKind>, 4> kLayers = {
      {{VertexKind::Nic, VertexKind::Leaf},
       {VertexKind::Leaf, VertexKind::Leaf},
       {VertexKind::Leaf, VertexKind::Spine},
       {VertexKind::Spine, VertexKind::Core}}};
  std::string text;
  for (const auto& [below, above] : kLayers) {
    const std::int64_t cables = graph.count_cables(below, above);
    if (cables > 0) {
      text += fmt::format("{} {} {}-{}", text.empty() ? "\ncables:" : ",", cables,
                          topologies::to_text(below), topologies::to_text(above));
    }
  }
  return text;
}

// What the built graph holds, and the route between its first and last GPU.
std::string graph_text(const topologies::Cluster& cluster) {
  using topologies::VertexKind;
  if (cluster.num_gpus() > kMaxGpusOfGraph) {
    return "";
  }
  const topologies::Graph graph = topologies::build_graph(cluster);
  std::string text =
      fmt::format("graph: {} vertices, {} links", graph.vertices().size(), graph.links().size());
  for (const VertexKind kind :
       {VertexKind::NvSwitch, VertexKind::Leaf, VertexKind::Spine, VertexKind::Core}) {
    if (graph.count(kind) > 0) {
      text += fmt::format(", {} {}", graph.count(kind), topologies::to_text(kind));
    }
  }
  text += cables_text(graph);
  topologies::Router router(graph, topologies::routing_options(cluster.fabric));
  const topologies::VertexId first = graph.gpus().front();
  const topologies::VertexId last = graph.gpus().back();
  if (first == last) {
    return text + "\n";
  }
  const topologies::Route route = router.route(first, last);
  text += fmt::format("\nroute: {}", graph.name(first));
  for (const topologies::LinkId link : route.links) {
    text += " > " + graph.name(graph.links()[link].to);
  }
  return text + fmt::format("\nroute: {}, {}\n", format_bandwidth(route.bandwidth),
                            format_duration(route.latency));
}

}  // namespace

namespace {

std::string size_text(const std::string& name, const topologies::Cluster& cluster) {
  const DType precision = search::default_precision(cluster.gpu);
  return fmt::format("{}: {}, {}, {} of GPU memory, {} {}\n\n", name,
                     counted(cluster.num_nodes, "node"), counted(cluster.num_gpus(), "GPU"),
                     format_bytes(cluster.gpu.memory.bytes() * cluster.num_gpus()),
                     format_flop_rate(cluster.gpu.peak_of(precision) * cluster.num_gpus()),
                     to_text(precision));
}

// The network between the pools, and nodes that several share; a line each.
std::vector<std::string> between_pools(const topologies::MixedCluster& cluster) {
  std::vector<int> all;
  while (std::ssize(all) < std::ssize(cluster.pools)) {
    all.push_back(static_cast<int>(all.size()));
  }
  const topologies::Node across =
      topologies::network_across(cluster, all, std::numeric_limits<int>::max()).node;
  std::vector<std::string> lines = {
      fmt::format("between pools: {} a node and direction, {}",
                  format_bandwidth(across.scale_out.nic_bandwidth * across.scale_out.nics),
                  format_duration(across.scale_out.latency))};
  for (const std::vector<int>& group : cluster.same_nodes) {
    std::string names;
    for (const int pool : group) {
      names += names.empty() ? "" : " and ";
      names += cluster.pools[static_cast<std::size_t>(pool)].name;
    }
    const topologies::Node joined =
        topologies::network_across(cluster, group, std::numeric_limits<int>::max()).node;
    lines.push_back(fmt::format("{} are in the same nodes: {} GPUs over {}, {} each", names,
                                joined.gpus, joined.scale_up.link,
                                format_bandwidth(joined.scale_up.bandwidth_per_gpu)));
  }
  return lines;
}

Shown show_mixed_cluster(const ShowRequest& request) {
  const topologies::MixedCluster cluster =
      topologies::load_mixed_cluster(request.name, request.settings);
  Shown shown;
  shown.text =
      fmt::format("{}: {}, {}\n\n", cluster.name, counted(std::ssize(cluster.pools), "pool"),
                  counted(cluster.num_gpus(), "GPU"));
  for (const topologies::Pool& pool : cluster.pools) {
    shown.text += size_text("pool " + pool.name, pool.cluster) + node_table(pool.cluster.node) +
                  "\n" + gpu_table(pool.cluster.gpu) + "\n";
  }
  const std::vector<std::string> between = between_pools(cluster);
  shown.text += fmt::format("{}\n", fmt::join(between, "\n"));
  if (request.picture) {
    std::vector<topologies::Cluster> pools;
    for (const topologies::Pool& pool : cluster.pools) {
      pools.push_back(pool.cluster);
      pools.back().name = pool.name;
    }
    shown.svg = studies::cluster_svg(cluster.name, pools, between);
  }
  shown.json = Json::Object{
      {"name", cluster.name}, {"num_gpus", cluster.num_gpus()}, {"cluster", cluster.document}};
  return shown;
}

}  // namespace

Shown show_cluster(const ShowRequest& request) {
  if (topologies::names_mixed_cluster(request.name)) {
    return show_mixed_cluster(request);
  }
  const search::Overrides overrides = search::split_overrides(request.settings);
  if (!overrides.network.empty()) {
    bad_input("--set",
              fmt::format("\"{}\" is no field of a cluster", printable(overrides.network.front())),
              "paths begin with gpu., node. or fabric., or are nodes");
  }
  const topologies::Cluster cluster = topologies::load_cluster(request.name, overrides.cluster);
  Shown shown;
  shown.text = size_text(cluster.name, cluster);
  shown.text += node_table(cluster.node) + "\n" + gpu_table(cluster.gpu) + "\n";
  if (cluster.num_nodes > 1) {
    shown.text += fabric_table(cluster) + "\n";
  }
  shown.text += graph_text(cluster);
  shown.svg = request.picture ? studies::cluster_svg(cluster.name, {cluster}) : std::string();
  const DType precision = search::default_precision(cluster.gpu);
  shown.json = Json::Object{
      {"name", cluster.name},
      {"num_nodes", cluster.num_nodes},
      {"num_gpus", cluster.num_gpus()},
      {"memory_bytes", cluster.gpu.memory.bytes().value() * cluster.num_gpus()},
      {"precision", std::string(to_text(precision))},
      {"peak_flops_per_s", cluster.gpu.peak_of(precision).value() * cluster.num_gpus()},
      {"fabric", cluster.num_nodes > 1 ? fabric_json(cluster) : Json()},
      {"cluster", cluster.document}};
  return shown;
}

Shown show_gpu(const ShowRequest& request) {
  const topologies::Gpu gpu = topologies::load_gpu(request.name);
  Json aliases = Json::array();
  std::string names;
  for (const std::string& alias : gpu.aliases) {
    aliases.push(alias);
    names += (names.empty() ? "" : ", ") + alias;
  }
  Json peaks = Json::object();
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (gpu.peak_of(dtype).value() > 0) {
      peaks.set(to_text(dtype), gpu.peak_of(dtype).value());
    }
  }
  Shown shown;
  shown.text = gpu_table(gpu) + (names.empty() ? "" : fmt::format("also called {}\n", names));
  shown.json = Json::Object{{"name", gpu.name},
                            {"aliases", std::move(aliases)},
                            {"vendor", gpu.vendor},
                            {"architecture", gpu.architecture},
                            {"memory_bytes", gpu.memory.value()},
                            {"hbm_bandwidth_bytes_per_s", gpu.hbm_bandwidth.value()},
                            {"peak_flops_per_s", std::move(peaks)},
                            {"sm_count", gpu.sm_count},
                            {"pcie_bandwidth_bytes_per_s", gpu.pcie_bandwidth.value()},
                            {"power_w", gpu.power_watts},
                            {"price_usd_per_s", gpu.price.value()}};
  return shown;
}

}  // namespace orrery::cli
