// SPDX-License-Identifier: Apache-2.0
// Collectives of a serving plan whose devices send each other messages over links that are slow to
// start, not through NCCL (TPI-LLM, arXiv 2410.00531, section 3.2): all-reduces by star, by a tree
// of depth 2 or by ring, others by ring or directly (sim/collectives), message by message between
// the ports of the group. A message takes the latency of the links between its ends; the receiver
// adds at the rate of its memory. Groups over several nodes are timed as if every message left its
// node.
#pragma once

#include "costmodel/device_model.hpp"
#include "costmodel/group_shape.hpp"
#include "plan/serving/serving.hpp"
#include "sim/engine/tags.hpp"
#include "topologies/cluster.hpp"

namespace orrery::plan {

// Whether a message between two nodes takes so long to begin that NCCL's latencies, which are of
// networks of microseconds, say nothing of it.
bool has_slow_links(const topologies::Cluster& cluster);

struct MessageLinks {
  const topologies::Cluster& cluster;
  const costmodel::DeviceModel& device;
  AllReduce all_reduce;  // not Nccl
  // `bytes` as nccl-tests prints them.
  Seconds collective(sim::CommKind kind, Bytes bytes, const costmodel::GroupShape& group) const;
  Seconds send(Bytes bytes, bool same_node, int senders) const;
};

}  // namespace orrery::plan
