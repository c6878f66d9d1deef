// SPDX-License-Identifier: Apache-2.0
#include "studies/row_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/math.hpp"
#include "base/text.hpp"

namespace orrery::studies {
namespace {

using topologies::Cluster;

constexpr auto kUsualNodes = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"a100-sxm4-80gb", "dgx-a100"},
    {"a100-sxm4-40gb", "dgx-a100-40"},
    {"a100-pcie-40gb", "fire-flyer-a100"},
    {"a800-sxm4-80gb", "hgx-a800"},
    {"h100-sxm5-80gb", "hgx-h100"},
    {"h100-sxm5-96gb-hbm2e", "hgx-h100-hbm2e"},
    {"h100-pcie-80gb", "h100-pcie-8"},
    {"h200-sxm5-141gb", "hgx-h200"},
    {"h800-sxm5-80gb", "hgx-h800"},
    {"b200-sxm-180gb", "hgx-b200"},
    {"b300-sxm-288gb", "hgx-b300"},
    {"gb200-186gb", "gb200-nvl72"},
    {"gb300-288gb", "gb300-nvl72"},
    {"gh200-96gb", "gh200-4"},
    {"v100-sxm2-16gb", "p3-16xlarge"},
    {"v100-sxm2-32gb", "dgx-1v"},
    {"v100-sxm3-32gb", "dgx-2"},
    {"l40s", "l40s-8"},
    {"rtx-pro-6000-server", "rtx-pro-6000-8"},
    {"mi250x-gcd", "mi250x-8"},
    {"mi300x", "mi300x-8"},
    {"p40-24gb", "p40-8"},
    {"a40", "a40-8"},
    {"a10g", "a10g-8"},
    {"titan-rtx", "titan-rtx-8"},
    {"rtx-2080", "rtx-2080-8"},
    {"rtx-3090", "rtx-3090-8"},
    {"rtx-4090", "rtx-4090-8"},
});

std::string_view link_of(std::string_view text) {
  constexpr auto kLinks =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"efa", "efa"},
                                                                    {"aws", "efa"},
                                                                    {"roce", "roce"},
                                                                    {"omni-path", "omni-path"},
                                                                    {"infiniband", "ib"},
                                                                    {" ib", "ib"}});
  for (const auto& [phrase, link] : kLinks) {
    if (mentions(text, phrase)) {
      return link;
    }
  }
  return {};
}

// Latency of a 64-byte message between CPUs on one leaf (DeepSeek, arXiv 2505.09343), as the node
// files have it.
std::string_view latency_of(std::string_view link) {
  return link == "ib" ? "2.8 us" : link == "efa" ? "15 us" : "3.6 us";
}

std::vector<std::string> network_overrides(const StatedNetwork& stated,
                                           const topologies::ScaleOut& usual) {
  std::vector<std::string> overrides;
  const int nics = stated.nics > 0 ? stated.nics : std::max(1, usual.nics);
  const double rate = stated.nics > 0 ? stated.gigabits : stated.gigabits / nics;
  overrides.push_back(fmt::format("node.scale_out.nics={}", nics));
  overrides.push_back(fmt::format("node.scale_out.nic_bandwidth={} Gbit/s", rate));
  if (!stated.link.empty() && !mentions(usual.link, stated.link)) {
    overrides.push_back(fmt::format("node.scale_out.link={}", stated.link));
    overrides.push_back(fmt::format("node.scale_out.latency={}", latency_of(stated.link)));
  }
  if (stated.delay_ms > 0) {
    overrides.push_back(fmt::format("node.scale_out.latency={} ms", stated.delay_ms));
  }
  return overrides;
}

// The links that stay when a mesh is cut to its first GPUs.
std::vector<std::string> mesh_overrides(const topologies::ScaleUp& up, int gpus) {
  std::string edges;
  for (const auto& [a, b, links] : up.mesh) {
    if (a < gpus && b < gpus) {
      edges += fmt::format("{}[{},{},{}]", edges.empty() ? "" : ",", a, b, links);
    }
  }
  std::vector<std::string> overrides = {fmt::format("node.scale_up.mesh=[{}]", edges)};
  if (edges.empty()) {
    overrides.emplace_back("node.scale_up.builder=full-mesh");
  }
  return overrides;
}

// NVLink domains span nodes: the largest equal parts that fit into one.
int gpus_of_domain(int gpus, int domain) {
  int best = 1;
  for (const std::int64_t part : divisors(gpus)) {
    best = part <= domain ? static_cast<int>(part) : best;
  }
  return best;
}

// Takes a number of at most `most` digits off the end of a text, which may end in blanks.
std::optional<int> take_number(std::string_view& text, std::size_t most) {
  text = trim(text);
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin < most && text[begin - 1] >= '0' &&
         text[begin - 1] <= '9') {
    --begin;
  }
  if (begin == text.size()) {
    return std::nullopt;
  }
  const int number = std::stoi(std::string(text.substr(begin)));
  text.remove_suffix(text.size() - begin);
  return number;
}

int delay_of(std::string_view text) {
  const std::size_t unit = text.find("ms");
  if (!mentions(text, "delay ") || unit == text.npos) {
    return 0;
  }
  std::string_view before = text.substr(0, unit);
  return take_number(before, 4).value_or(0);
}

}  // namespace

std::optional<StatedNetwork> parse_network(std::string_view text) {
  text = trim(text);  // so that no later trim has to pass the leading blanks again
  for (std::size_t unit = text.find("Gb"); unit != text.npos; unit = text.find("Gb", unit + 1)) {
    std::string_view before = text.substr(0, unit);
    StatedNetwork network;
    const std::optional<int> gigabits = take_number(before, 5);
    if (!gigabits) {
      continue;
    }
    network.gigabits = *gigabits;
    before = trim(before);
    if (before.ends_with('x') || before.ends_with('X')) {
      before.remove_suffix(1);
      network.nics = take_number(before, 4).value_or(0);
    }
    network.link = link_of(text);
    network.delay_ms = delay_of(text);
    return network.gigabits > 0 ? std::optional(network) : std::nullopt;
  }
  return std::nullopt;
}

std::string_view usual_node(std::string_view gpu_name) {
  for (const auto& [gpu, node] : kUsualNodes) {
    if (gpu == gpu_name) {
      return node;
    }
  }
  return {};
}

tl::expected<Cluster, std::string> make_cluster(const ClusterRequest& request) {
  std::string gpu;
  try {
    gpu = topologies::load_gpu(request.gpu).name;
  } catch (const Error&) {
    return tl::unexpected(fmt::format("unknown GPU \"{}\"", printable(request.gpu, 80)));
  }
  const std::string node(usual_node(gpu));
  if (node.empty()) {
    return tl::unexpected(fmt::format("no node type is known for the GPU {}", gpu));
  }
  const Cluster usual = topologies::load_cluster(node + ":1");
  const bool domain = usual.node.scale_up.builder == "nvl-domain";
  int per_node = request.gpus_per_node > 0 ? request.gpus_per_node : usual.node.gpus;
  per_node =
      domain ? gpus_of_domain(request.gpus, usual.node.gpus) : std::min(per_node, request.gpus);
  if (per_node < 1 || request.gpus % per_node != 0) {
    return tl::unexpected(fmt::format("{} GPUs do not fill nodes of {}", request.gpus, per_node));
  }
  std::vector<std::string> overrides;
  const std::optional<StatedNetwork> stated = parse_network(request.inter_node);
  if (domain) {
    overrides.push_back(fmt::format("node.scale_out.nics={}", per_node));
  } else if (stated && request.gpus > per_node) {
    overrides = network_overrides(*stated, usual.node.scale_out);
  }
  if (per_node != usual.node.gpus) {
    overrides.push_back(fmt::format("node.gpus={}", per_node));
    if (!usual.node.scale_up.mesh.empty()) {
      const auto cut = mesh_overrides(usual.node.scale_up, per_node);
      overrides.insert(overrides.end(), cut.begin(), cut.end());
    }
    const int boards = usual.node.scale_up.boards;
    if (boards > 1 && per_node <= usual.node.gpus / boards) {
      overrides.push_back("node.scale_up.boards=1");
      overrides.push_back("node.scale_up.board_links=0");
      overrides.push_back(
          fmt::format("node.scale_up.switches={}", usual.node.scale_up.switches / boards));
    }
  }
  return topologies::load_cluster(fmt::format("{}:{}", node, request.gpus / per_node), overrides);
}

tl::expected<Cluster, std::string> row_cluster(const Measurement& row) {
  if (!row.gpus || *row.gpus == 0) {
    return tl::unexpected(std::string("gpus is not stated"));
  }
  return make_cluster({row.gpu, static_cast<int>(*row.gpus),
                       static_cast<int>(row.gpus_per_node.value_or(0)), row.inter_node});
}

}  // namespace orrery::studies
