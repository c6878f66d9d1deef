// SPDX-License-Identifier: Apache-2.0
// Exposed communication: for each device, a walk over the instants at which a computation or a
// communication starts or ends.
#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "sim/engine/metrics.hpp"

namespace orrery::sim {
namespace {

struct DeviceNodes {
  std::vector<NodeId> computing;
  std::vector<NodeId> communicating;
};

struct Interval {
  SimTime from;
  SimTime to;
};

using UseKey = std::tuple<std::uint32_t, CommKind, std::uint32_t>;
using UseTable = std::map<UseKey, CommunicationUse>;

std::vector<DeviceNodes> nodes_by_device(const Program& program, const Timeline& timeline) {
  std::uint32_t num_devices = 0;
  for (const Stream& stream : program.streams()) {
    num_devices = std::max(num_devices, stream.device + 1);
  }
  std::vector<DeviceNodes> devices(num_devices);
  std::vector<NodeId> last_added(num_devices, kNone);
  for (NodeId node = 0; node < program.num_nodes(); ++node) {
    if (timeline.end[node].ps < 0) {
      continue;
    }
    const bool communicates = program.tag(node).comm != CommKind::None;
    const auto add = [&](StreamId stream) {
      const std::uint32_t device = program.streams()[stream].device;
      if (communicates && last_added[device] != node) {
        last_added[device] = node;
        devices[device].communicating.push_back(node);
      } else if (!communicates && program.streams()[stream].kind == StreamKind::Compute) {
        devices[device].computing.push_back(node);
      }
    };
    const std::span<const StreamId> streams = program.streams_of(node);
    std::for_each(streams.begin(), streams.end(), add);
    if (communicates && streams.empty()) {
      for (const NodeId consumer : program.successors(node)) {
        const std::span<const StreamId> waiting = program.streams_of(consumer);
        std::for_each(waiting.begin(), waiting.end(), add);
      }
    }
  }
  return devices;
}

void sort_by_start(std::vector<NodeId>& nodes, const Timeline& timeline) {
  std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) {
    return std::pair(timeline.start[a], a) < std::pair(timeline.start[b], b);
  });
}

// The complement, within [0, makespan), of the union of the nodes' intervals.
std::vector<Interval> times_without(std::vector<NodeId> nodes, const Timeline& timeline) {
  sort_by_start(nodes, timeline);
  std::vector<Interval> gaps;
  SimTime covered{0};
  for (const NodeId node : nodes) {
    if (timeline.start[node] > covered) {
      gaps.push_back({covered, timeline.start[node]});
    }
    covered = std::max(covered, timeline.end[node]);
  }
  if (timeline.makespan > covered) {
    gaps.push_back({covered, timeline.makespan});
  }
  return gaps;
}

class DeviceWalk {
 public:
  DeviceWalk(const Program& program, const Timeline& timeline, std::uint32_t device,
             UseTable& table)
      : program_(program), timeline_(timeline), device_(device), table_(table) {}

  void walk(DeviceNodes nodes) {
    const std::vector<Interval> gaps = times_without(std::move(nodes.computing), timeline_);
    std::vector<NodeId>& pending = nodes.communicating;
    sort_by_start(pending, timeline_);
    std::size_t next = 0;
    for (const NodeId node : pending) {
      use_of(node).total += timeline_.end[node] - timeline_.start[node];
    }
    for (const Interval& gap : gaps) {
      SimTime now = gap.from;
      while (now < gap.to) {
        for (; next < pending.size() && timeline_.start[pending[next]] <= now; ++next) {
          running_.push({timeline_.end[pending[next]], pending[next]});
        }
        while (!running_.empty() && running_.top().end <= now) {
          running_.pop();
        }
        SimTime until = gap.to;
        if (next < pending.size()) {
          until = std::min(until, timeline_.start[pending[next]]);
        }
        if (!running_.empty()) {
          until = std::min(until, running_.top().end);
          use_of(running_.top().node).exposed += until - now;
        }
        now = until;
      }
    }
  }

 private:
  struct Running {
    SimTime end;
    NodeId node;
    bool operator<(const Running& other) const {
      return end != other.end ? end < other.end : node > other.node;
    }
  };

  CommunicationUse& use_of(NodeId node) {
    const Tag& tag = program_.tag(node);
    CommunicationUse& use = table_[{device_, tag.comm, tag.name}];
    use.device = device_;
    use.kind = tag.comm;
    use.name = tag.name;
    return use;
  }

  const Program& program_;
  const Timeline& timeline_;
  std::uint32_t device_;
  UseTable& table_;
  std::priority_queue<Running> running_;  // the one that ends last on top
};

}  // namespace

std::vector<CommunicationUse> communication_use(const Program& program, const Timeline& timeline) {
  std::vector<DeviceNodes> devices = nodes_by_device(program, timeline);
  UseTable table;
  for (std::uint32_t device = 0; device < devices.size(); ++device) {
    DeviceWalk(program, timeline, device, table).walk(std::move(devices[device]));
  }
  std::vector<CommunicationUse> uses;
  uses.reserve(table.size());
  for (const auto& [key, use] : table) {
    uses.push_back(use);
  }
  return uses;
}

}  // namespace orrery::sim
