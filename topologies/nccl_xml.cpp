// SPDX-License-Identifier: Apache-2.0
#include "topologies/nccl_xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topologies/cluster.hpp"
#include "topologies/nccl_xml_reader.hpp"

namespace orrery::topologies {
namespace {

// GB/s of a nominal link and of NCCL's count, by generation (ml-engineering; NCCL topo.h).
struct LinkRate {
  int sm;
  double nominal;
  double nccl;
  const char* name;
};
constexpr std::array<LinkRate, 7> kLinkRates = {{{60, 20, 18, "nvlink1"},
                                                 {70, 25, 20, "nvlink2"},
                                                 {80, 25, 20, "nvlink3"},
                                                 {86, 14.0625, 12, "nvlink3"},
                                                 {89, 25, 20, "nvlink3"},
                                                 {90, 25, 20, "nvlink4"},
                                                 {100, 50, 40, "nvlink5"}}};
constexpr LinkRate kXgmi = {90, 50, 50, "xgmi"};

const LinkRate& link_rate(const NcclGpu& gpu) {
  if (gpu.amd) {
    return kXgmi;
  }
  const LinkRate* best = &kLinkRates[0];
  for (const LinkRate& rate : kLinkRates) {
    if (rate.sm <= gpu.sm) {
      best = &rate;
    }
  }
  return *best;
}

struct Edges {
  Json mesh = Json::array();
  int pairs = 0;
  int fewest = 0;  // links of the GPU with fewest
  int most = 0;
};

Edges direct_links(const NcclSystem& xml) {
  Edges edges;
  std::vector<int> degree(xml.gpus.size(), 0);
  for (std::size_t a = 0; a < xml.gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < xml.gpus.size(); ++b) {
      const auto link = xml.gpus[a].links.find(xml.gpus[b].busid);
      if (link == xml.gpus[a].links.end()) {
        continue;
      }
      edges.mesh.push(Json(Json::Array{static_cast<int>(a), static_cast<int>(b), link->second}));
      ++edges.pairs;
      degree[a] += link->second;
      degree[b] += link->second;
    }
  }
  edges.fewest = *std::min_element(degree.begin(), degree.end());
  edges.most = *std::max_element(degree.begin(), degree.end());
  return edges;
}

std::string rate_text(double gigabytes) { return fmt::format("{} GB/s", gigabytes); }

void set_links(Json& up, const LinkRate& rate, int links, int ring_links) {
  const bool hopper_crossbar = rate.sm == 90 && ring_links == 18;  // 12 x 30 rather than 18 x 20
  up.set("link", rate.name);
  up.set("bandwidth_per_gpu", rate_text(rate.nominal * links));
  up.set("links_per_gpu", links);
  up.set("nccl_bandwidth", rate_text(rate.nccl * ring_links));
  up.set("nccl_channels", hopper_crossbar ? 12 : rate.sm == 100 ? 16 : std::min(ring_links, 64));
  up.set("latency", "0.6 us");
}

Json scale_up(const NcclSystem& xml) {
  const NcclGpu& first = xml.gpus.front();
  const LinkRate& rate = link_rate(first);
  int fewest = first.switch_links;
  for (const NcclGpu& gpu : xml.gpus) {
    fewest = std::min(fewest, gpu.switch_links);
  }
  Json up = Json::object();
  if (fewest > 0) {
    up.set("builder", "nvswitch");
    set_links(up, rate, fewest, fewest);
    up.set("in_switch_reduction", !first.amd && first.sm >= 90);
    return up;
  }
  Edges edges = direct_links(xml);
  const int count = static_cast<int>(xml.gpus.size());
  if (edges.pairs == 0) {
    up.set("builder", "pcie");
    up.set("link", "pcie");
    up.set("bandwidth_per_gpu", rate_text(first.pcie));
    up.set("nccl_bandwidth", rate_text(std::min(first.pcie * 0.75, xml.sockets > 1 ? 10.0 : 48.0)));
    up.set("nccl_channels", 1);
    up.set("latency", "1 us");
    return up;
  }
  up.set("builder", edges.pairs == count * (count - 1) / 2 ? "full-mesh" : "cube-mesh");
  set_links(up, rate, edges.most, std::max(edges.fewest, 1));
  up.set("mesh", std::move(edges.mesh));
  return up;
}

// The fastest NICs; slower ones (management) carry no training traffic.
Json scale_out(const NcclSystem& xml) {
  Json out = Json::object();
  double fastest = 0;
  for (const NcclNet& net : xml.nets) {
    fastest = std::max(fastest, net.speed);
  }
  int count = 0;
  double latency = 0;
  for (const NcclNet& net : xml.nets) {
    if (net.speed == fastest) {
      ++count;
      latency = std::max(latency, net.latency);
    }
  }
  out.set("link", count == 0 ? "none" : "network");
  out.set("nics", count);
  if (count > 0) {
    out.set("nic_bandwidth", fmt::format("{} Mbit/s", fastest));
    out.set("plugin_latency", fmt::format("{} us", latency));
    out.set("latency", "3.6 us");
  }
  return out;
}

Json host(const NcclSystem& xml) {
  std::map<std::string, int> below;
  int most = 0;
  double narrowest = xml.gpus.front().pcie;
  for (const NcclGpu& gpu : xml.gpus) {
    narrowest = std::min(narrowest, gpu.c2c > 0 ? gpu.c2c : gpu.pcie);
    if (!gpu.top_switch.empty()) {
      most = std::max(most, ++below[gpu.top_switch]);
    }
  }
  if (xml.gpus.front().c2c > 0) {
    narrowest = xml.gpus.front().c2c;
  }
  Json host = Json::object();
  host.set("cpu_vendor", xml.cpu_vendor);
  host.set("sockets", xml.sockets);
  host.set("memory", "1 TiB");
  host.set("memory_bandwidth", "200 GB/s");
  host.set("link_per_gpu", rate_text(narrowest));
  host.set("gpus_per_pcie_switch", most);
  return host;
}

// The GPU that lists the device, else the one that stands for those of its compute capability.
std::string gpu_type(const NcclGpu& gpu, std::string_view name) {
  std::string other;
  for (const std::string& known : gpu.amd ? std::vector<std::string>{} : gpu_names()) {
    const Gpu candidate = load_gpu(known);
    if (std::lround(10 * candidate.compute_capability) != gpu.sm) {
      continue;
    }
    const std::vector<std::string>& devices = candidate.pci_devices;
    if (std::find(devices.begin(), devices.end(), gpu.device) != devices.end()) {
      return known;
    }
    other = candidate.stands_for_others ? known : other;
  }
  if (other.empty()) {
    bad_input(name, fmt::format("GPUs of compute capability {} are not known", gpu.sm),
              "name the GPU type");
  }
  return other;
}

// That of all GPUs: a node has one kind of them.
std::string common_gpu_type(const NcclSystem& xml, std::string_view name) {
  const NcclGpu& first = xml.gpus.front();
  std::string type = gpu_type(first, name);
  for (const NcclGpu& gpu : xml.gpus) {
    const bool alike = gpu.sm == first.sm && gpu.device == first.device && gpu.amd == first.amd;
    if (const std::string other = alike ? type : gpu_type(gpu, name); other != type) {
      bad_input(name, fmt::format("the node has GPUs of two kinds, {} and {}", type, other),
                "leave those of one kind in the file");
    }
  }
  return type;
}

}  // namespace

Json node_document_of_nccl_xml(std::string_view text, std::string_view name,
                               const std::string& gpu) {
  const NcclSystem xml = read_nccl_system(text, name);
  Json fabric = Json::object();
  fabric.set("builder", "fat-tree");
  fabric.set("levels", 3);
  fabric.set("switch_latency", "1 us");
  const std::string source = fmt::format("NCCL topology file {}", printable(name));
  Json sources = Json::object();
  sources.set("scale_up", source + "; link rates by generation");
  sources.set("scale_out", source);
  sources.set("host", source + "; memory is not in it, assumption");
  sources.set("fabric", "not in the topology file; a non-blocking fat tree, assumption");
  Json node = Json::object();
  node.set("schema", "orrery-node");
  node.set("version", 1);
  node.set("name", "nccl-topology");
  node.set("gpu", gpu.empty() ? common_gpu_type(xml, name) : gpu);
  node.set("gpus", static_cast<int>(xml.gpus.size()));
  node.set("scale_up", scale_up(xml));
  node.set("scale_out", scale_out(xml));
  node.set("host", host(xml));
  node.set("fabric", std::move(fabric));
  node.set("sources", std::move(sources));
  return node;
}

}  // namespace orrery::topologies
