// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/log_system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/limits.hpp"
#include "base/math.hpp"
#include "base/text.hpp"
#include "calibrate/gpu_names.hpp"
#include "topologies/documents.hpp"

namespace orrery::calibrate {
namespace {

constexpr int kMaxAdapters = 64;
constexpr int kMaxGigabits = 10'000;
constexpr int kMaxSingleNode = 16;  // larger "nodes" are NVLink domains of many trays

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The number that ends right before `end`; nullopt when there is none.
std::optional<int> number_before(std::string_view text, std::size_t end, int max) {
  std::size_t begin = end;
  while (begin > 0 && is_digit(text[begin - 1])) {
    --begin;
  }
  int value = 0;
  const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
  return begin < end && error == std::errc() && value >= 1 && value <= max ? std::optional(value)
                                                                           : std::nullopt;
}

// A log of fewer GPUs a node states the adapters it used, not those of the node. NCCL lays a
// channel over each, so their number counts.
void add_adapters(std::optional<int> adapters, std::optional<int> gigabits,
                  const topologies::Node& node, std::vector<std::string>& overrides) {
  if (!adapters || !gigabits || *adapters < node.gpus || node.scale_out.nics <= 0) {
    return;
  }
  overrides.push_back(fmt::format("node.scale_out.nics={}", *adapters));
  overrides.push_back(fmt::format("node.scale_out.nic_bandwidth={} Gbit/s", *gigabits));
  if (*adapters > node.gpus) {
    overrides.emplace_back("fabric.nodes_per_leaf=0");  // that of one adapter a GPU does not hold
  }
}

std::vector<std::string> network_overrides(const std::string& fabric,
                                           const topologies::Node& node) {
  std::vector<std::string> overrides;
  const std::string words = to_lower(fabric);
  const std::size_t times = words.find('x');
  const std::size_t unit = words.find("gb/s");
  if (times != std::string::npos && unit != std::string::npos && times < unit) {
    const auto adapters = number_before(words, times, kMaxAdapters);
    const auto gigabits = number_before(words, unit, kMaxGigabits);
    add_adapters(adapters, gigabits, node, overrides);
  } else if (times != std::string::npos && words.find("nics") != std::string::npos) {
    // "8x RoCE NICs": of the rate that the node's have
    const double rate = node.scale_out.nic_bandwidth.value() * 8 / 1e9;
    add_adapters(number_before(words, times, kMaxAdapters), static_cast<int>(std::lround(rate)),
                 node, overrides);
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
  const topologies::Node type = topologies::load_cluster(node + ":1").node;
  const int domain = type.gpus;
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
      group.nodes > 1 ? network_overrides(setup.fabric, type) : std::vector<std::string>{});
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
