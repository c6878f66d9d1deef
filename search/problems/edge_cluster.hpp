// SPDX-License-Identifier: Apache-2.0
// Slow devices of unlike kinds, as a document states them: shares, memory, rates of memory and
// disk, and the link of each. In a star all links meet in one router, so that a message crosses the
// sender's and the receiver's; in a ring link i joins device i to the next one, and a message
// takes the shorter way around. The bytes of a message cross its links once, at the slowest of
// them; ports do not queue, as in TPI-LLM (Li et al. 2024, arXiv 2410.00531, section 3.3).
// O(devices^2) at most; deterministic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.hpp"

namespace orrery::search {

struct EdgeDevice {
  std::string name;
  double share = 0;  // of heads and FFN columns
  ByteCount memory;  // 0: not stated
  BytesPerSecond memory_bandwidth;
  BytesPerSecond disk_bandwidth;  // 0: not stated
  Seconds latency;                // of its link
  BytesPerSecond bandwidth;
};

struct EdgeCluster {
  bool ring = false;
  std::vector<EdgeDevice> devices;  // the first is the master
};

// "topology" ("star" or "ring") and "devices", a list; shares are equal or all stated.
EdgeCluster read_edge_cluster(std::string_view topology, const JsonReader& devices);

// Time of a message from one device to another.
Seconds message_time(const EdgeCluster& cluster, std::size_t from, std::size_t to, Bytes size);

struct EdgeReduce {
  Seconds star;  // all send to the master, which sends the sum back
  Seconds tree;  // pairs first, then their heads to the master, and back
  Seconds ring;  // 2 (n - 1) steps of 1/n of the bytes
};
EdgeReduce edge_reduce(const EdgeCluster& cluster, Bytes size);

}  // namespace orrery::search
