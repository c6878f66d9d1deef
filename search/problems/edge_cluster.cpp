// SPDX-License-Identifier: Apache-2.0
#include "search/problems/edge_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kMostDevices = 4096;

EdgeDevice read_device(const JsonReader& value, std::size_t index) {
  ObjectReader object = value.object();
  EdgeDevice device;
  device.name = object.string_or("name", fmt::format("device {}", index));
  device.share = object.number_or("share", 0, 0, 1);
  if (const auto memory = object.optional("memory")) {
    device.memory = memory->byte_count();
  }
  device.memory_bandwidth = object.required("memory_bandwidth").bandwidth();
  if (const auto disk = object.optional("disk_bandwidth")) {
    device.disk_bandwidth = disk->bandwidth();
  }
  ObjectReader link = object.required("link").object();
  device.latency = link.required("latency").duration();
  device.bandwidth = link.required("bandwidth").bandwidth();
  link.finish();
  object.finish();
  return device;
}

// Links from one device to another: the first one's index and how many of a ring.
struct Way {
  std::size_t first = 0;
  std::size_t links = 0;
};

Way shorter_way(const EdgeCluster& cluster, std::size_t from, std::size_t to) {
  const std::size_t count = cluster.devices.size();
  const std::size_t onward = (to + count - from) % count;
  return 2 * onward <= count ? Way{from, onward} : Way{to, count - onward};
}

// The slowest of messages that are under way at once.
template <typename Pairs>
Seconds slowest(const EdgeCluster& cluster, const Pairs& pairs, Bytes size) {
  Seconds most;
  for (const auto& [from, to] : pairs) {
    most = std::max(most, message_time(cluster, from, to, size));
  }
  return most;
}

}  // namespace

EdgeCluster read_edge_cluster(std::string_view topology, const JsonReader& devices) {
  EdgeCluster cluster;
  cluster.ring = topology == "ring";
  double sum = 0;
  std::size_t stated = 0;
  for (const JsonReader& value : devices.array(kMostDevices)) {
    cluster.devices.push_back(read_device(value, cluster.devices.size()));
    sum += cluster.devices.back().share;
    stated += cluster.devices.back().share > 0 ? 1 : 0;
  }
  if (cluster.devices.empty()) {
    devices.fail("no devices");
  }
  const std::size_t count = cluster.devices.size();
  if (stated != 0 && (stated != count || std::abs(sum - 1) > 1e-6)) {
    devices.fail(fmt::format("{} of {} devices state a share, {:.6g} in sum", stated, count, sum),
                 "state none, or all so that they sum to 1");
  }
  for (EdgeDevice& device : cluster.devices) {
    device.share = stated == 0 ? 1.0 / static_cast<double>(count) : device.share;
  }
  return cluster;
}

Seconds message_time(const EdgeCluster& cluster, std::size_t from, std::size_t to, Bytes size) {
  if (from == to) {
    return {};
  }
  if (!cluster.ring) {
    const EdgeDevice& a = cluster.devices[from];
    const EdgeDevice& b = cluster.devices[to];
    return a.latency + b.latency + size / std::min(a.bandwidth, b.bandwidth);
  }
  const Way way = shorter_way(cluster, from, to);
  Seconds latency;
  BytesPerSecond narrowest = cluster.devices[way.first].bandwidth;
  for (std::size_t step = 0; step < way.links; ++step) {
    const EdgeDevice& link = cluster.devices[(way.first + step) % cluster.devices.size()];
    latency += link.latency;
    narrowest = std::min(narrowest, link.bandwidth);
  }
  return latency + size / narrowest;
}

EdgeReduce edge_reduce(const EdgeCluster& cluster, Bytes size) {
  const std::size_t count = cluster.devices.size();
  EdgeReduce time;
  if (count < 2) {
    return time;
  }
  std::vector<std::pair<std::size_t, std::size_t>> to_master;
  std::vector<std::pair<std::size_t, std::size_t>> to_head;
  std::vector<std::pair<std::size_t, std::size_t>> heads;
  std::vector<std::pair<std::size_t, std::size_t>> next;
  for (std::size_t device = 0; device < count; ++device) {
    next.emplace_back(device, (device + 1) % count);
    if (device > 0) {
      to_master.emplace_back(device, 0);
      (device % 2 == 1 ? to_head : heads).emplace_back(device, device % 2 == 1 ? device - 1 : 0);
    }
  }
  time.star = slowest(cluster, to_master, size) * 2.0;
  time.tree = (slowest(cluster, to_head, size) + slowest(cluster, heads, size)) * 2.0;
  const auto parts = static_cast<double>(count);
  time.ring = slowest(cluster, next, size / parts) * (2 * (parts - 1));
  return time;
}

}  // namespace orrery::search
