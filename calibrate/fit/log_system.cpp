// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/log_system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "base/math.hpp"
#include "base/text.hpp"
#include "calibrate/gpu_names.hpp"
#include "topologies/documents.hpp"
#include "topologies/network_words.hpp"

namespace orrery::calibrate {
namespace {

constexpr int kMostAdapters = 64;
constexpr double kMostGigabits = 10'000;
constexpr int kMaxSingleNode = 16;  // larger "nodes" are NVLink domains of many trays

// The adapters that the log states, of the whole node: a log of fewer GPUs a node states those that
// it used. NCCL lays a channel over each, so their number counts. The node's type knows its link.
void add_adapters(const topologies::StatedNetwork& stated, const LogSetup& setup,
                  const topologies::Cluster& type, std::vector<std::string>& overrides) {
  const topologies::Node& node = type.node;
  const bool whole = setup.ranks_per_node == node.gpus || stated.nics >= node.gpus;
  if (!whole || node.scale_out.nics <= 0) {
    return;
  }
  for (std::string& change : topologies::network_overrides(stated, type, node.gpus)) {
    if (!change.starts_with("node.scale_out.l")) {  // link, latency
      overrides.push_back(std::move(change));
    }
  }
}

// "8x RoCE NICs": of the rate that the node's have.
std::optional<topologies::StatedNetwork> counted_adapters(std::string_view words,
                                                          const topologies::Node& node) {
  const std::size_t times = words.find('x');
  std::size_t begin = std::min(times, words.size());
  while (begin > 0 && words[begin - 1] >= '0' && words[begin - 1] <= '9') {
    --begin;
  }
  topologies::StatedNetwork stated;
  stated.gigabits = node.scale_out.nic_bandwidth.value() * 8 / 1e9;
  stated.of = topologies::StatedNetwork::RateOf::Nic;
  const bool counted = times != words.npos && words.find("nics") != words.npos;
  const auto read = counted
                        ? std::from_chars(words.data() + begin, words.data() + times, stated.nics)
                        : std::from_chars_result{words.data(), std::errc::invalid_argument};
  return read.ec == std::errc() && stated.nics >= 1 && stated.nics <= kMostAdapters
             ? std::optional(stated)
             : std::nullopt;
}

std::vector<std::string> network_overrides(const LogSetup& setup, const topologies::Cluster& type) {
  std::vector<std::string> overrides;
  const std::string words = to_lower(setup.fabric);
  std::optional<topologies::StatedNetwork> stated = topologies::parse_network(setup.fabric);
  stated = stated ? stated : counted_adapters(words, type.node);
  if (stated && stated->nics <= kMostAdapters && stated->gigabits <= kMostGigabits) {
    add_adapters(*stated, setup, type, overrides);
  }
  if (words.find("roce") != std::string::npos) {
    overrides.emplace_back("node.scale_out.link=roce");
  }
  if (words.find("sharp") != std::string::npos) {
    overrides.emplace_back("node.scale_out.in_network_reduction=true");
  }
  return overrides;
}

// NVLink domains hold several trays: the largest equal part that fits into one.
int trays_of_domain(int trays, int most) {
  int best = 1;
  for (const std::int64_t part : divisors(trays)) {
    best = part <= most ? static_cast<int>(part) : best;
  }
  return best;
}

}  // namespace

tl::expected<LogSystem, std::string> log_system(const LogSetup& setup) {
  const std::string words = to_lower(setup.fabric);
  if (words.find("ip over ib") != std::string::npos || words.find("socket") != std::string::npos) {
    return tl::unexpected(std::string("TCP sockets are not modelled"));
  }
  const std::string gpu = topologies::find_gpu_name(setup.gpu);
  if (gpu.empty()) {
    return tl::unexpected(fmt::format("unknown GPU \"{}\"", printable(setup.gpu, 80)));
  }
  const std::string node = setup.node.empty() ? node_of(gpu, setup.fabric) : setup.node;
  if (node.empty()) {
    return tl::unexpected(fmt::format("no node type is known for the GPU {}", gpu));
  }
  const topologies::Cluster type = topologies::load_cluster(node + ":1");
  const int domain = type.node.gpus;
  LogSystem system;
  costmodel::GroupShape& group = system.group;
  if (setup.ranks_per_node > domain || setup.ranks_per_node < 1) {
    return tl::unexpected(
        fmt::format("{} has {} GPUs, not {}", node, domain, setup.ranks_per_node));
  }
  if (std::int64_t{setup.nodes} * setup.ranks_per_node > limits::kMaxDevices) {
    return tl::unexpected(fmt::format("more than {} ranks", limits::kMaxDevices));
  }
  group.ranks = setup.nodes * setup.ranks_per_node;
  const bool spans = setup.nodes > 1 && setup.ranks_per_node < domain && domain > kMaxSingleNode;
  group.ranks_per_node = setup.ranks_per_node *
                         (spans ? trays_of_domain(setup.nodes, domain / setup.ranks_per_node) : 1);
  group.nodes = group.ranks / group.ranks_per_node;
  system.cluster = topologies::load_cluster(
      fmt::format("{}:{}", node, group.nodes),
      group.nodes > 1 ? network_overrides(setup, type) : std::vector<std::string>{});
  return system;
}

int nccl_version(std::string_view text) {
  int major = 0;
  int minor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') {
    return 0;
  }
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  return second.ec == std::errc() && major > 0 && major < 100 && minor >= 0 && minor < 100
             ? major * 100 + minor
             : 0;
}

}  // namespace orrery::calibrate
