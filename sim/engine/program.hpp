// SPDX-License-Identifier: Apache-2.0
// A program: streams, nodes, dependencies, resource demands and memory effects; knows nothing of
// networks or plans. Three kinds of node (docs/sim.md):
//   Work   occupies one stream of one device,
//   Flow   moves bytes along a route (optionally occupying streams of its two ends: rendezvous),
//   Group  is executed by several devices together and starts when it is at the head of all
//   streams.
// Four dependencies: data (depend), stream order (the order in which nodes are added to a stream),
// counters (wait_for / adjust) and versions (reads_version / writes_version).
// A node takes `latency` and then, when it has demands, `work` units at a rate shared by weighted
// max-min fairness; without demands it is the fixed duration `latency`.
// Flat arrays throughout; build with add_*, then finalize() once; immutable afterwards.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/sim_time.hpp"
#include "base/units.hpp"
#include "sim/engine/tags.hpp"

namespace orrery::sim {

using NodeId = std::uint32_t;
using StreamId = std::uint32_t;
using ResourceId = std::uint32_t;
using PoolId = std::uint32_t;
using BufferId = std::uint32_t;
using CounterId = std::uint32_t;
using VersionedId = std::uint32_t;
inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

enum class NodeKind : std::uint8_t { Work, Flow, Group };
enum class StreamKind : std::uint8_t {
  Compute,
  Collective,
  Send,
  Receive,
  CopyIn,
  CopyOut,
  Host,
  Disk
};
enum class MemoryCategory : std::uint8_t {
  Parameters,
  Gradients,
  Optimizer,
  Activations,
  Workspace,
  Communication,
  Context,
  Other
};
std::string_view to_text(StreamKind kind);
std::string_view to_text(MemoryCategory category);

struct Stream {
  std::uint32_t device;
  StreamKind kind;
  std::uint32_t multiplicity;  // identical streams this one stands for (folding)
  std::string name;
};
struct Resource {
  double capacity;  // units per second
  std::string name;
};
struct Pool {
  std::uint32_t device;
  ByteCount capacity;
  std::string name;
};
struct Demand {
  ResourceId resource;
  double amount;  // units of the resource per unit of the node's work
};
struct Buffer {
  PoolId pool;
  ByteCount bytes;
  MemoryCategory category;
  NodeId producer;  // kNone: lives from time 0
};
struct CounterWait {
  CounterId counter;
  std::int64_t at_least;
};
struct VersionUse {
  VersionedId object;
  std::int64_t version;
  NodeId node;
};
struct CounterChange {
  CounterId counter;
  std::int64_t delta;
  bool at_start;
};

// Compressed rows: items of row i are items[offsets[i] .. offsets[i + 1]); both are empty when all
// rows are.
template <typename T>
struct Rows {
  std::vector<std::uint32_t> offsets;
  std::vector<T> items;
  std::span<const T> operator[](std::size_t row) const {
    if (items.empty()) {
      return {};
    }
    return {items.data() + offsets[row], items.data() + offsets[row + 1]};
  }
};

class Program {
 public:
  StreamId add_stream(std::uint32_t device, StreamKind kind, std::string name,
                      std::uint32_t multiplicity = 1);
  ResourceId add_resource(double capacity_per_second, std::string name);
  PoolId add_pool(std::uint32_t device, ByteCount capacity, std::string name);
  CounterId add_counter(std::int64_t initial);
  VersionedId add_versioned(std::int64_t initial_version);
  std::uint32_t add_name(std::string_view name);  // for Tag::name; equal names share an index

  NodeId add_work(StreamId stream, SimTime duration, const Tag& tag);
  // Work of `seconds` alone, slowed when its demands are not met (rate bound 1).
  NodeId add_shared_work(StreamId stream, SimTime latency, Seconds seconds,
                         std::span<const Demand> demands, const Tag& tag);
  // Bytes along a route; streams may be empty (buffered) or name both ends (rendezvous).
  NodeId add_flow(std::span<const StreamId> streams, SimTime latency, Bytes bytes,
                  std::span<const ResourceId> route, const Tag& tag);
  NodeId add_group(std::span<const StreamId> streams, SimTime duration, const Tag& tag);
  // A collective whose demands are the link loads of its algorithm, `work` units at rate <= bound.
  NodeId add_shared_group(std::span<const StreamId> streams, SimTime latency, double work,
                          double rate_bound, std::span<const Demand> demands, const Tag& tag);

  void depend(NodeId consumer, NodeId producer);
  void wait_for(NodeId node, CounterId counter, std::int64_t at_least);
  void adjust(NodeId node, CounterId counter, std::int64_t delta, bool at_start);
  // Versions: the writer of (object, version) must end before its readers start. Reading the
  // initial version is always satisfied.
  void writes_version(NodeId node, VersionedId object, std::int64_t version);
  void reads_version(NodeId node, VersionedId object, std::int64_t version);

  // Allocated when the producer starts, freed when the last consumer ends (never, without one).
  BufferId add_buffer(PoolId pool, ByteCount bytes, MemoryCategory category, NodeId producer);
  void consume(BufferId buffer, NodeId consumer);

  // A node with the times, tag and rate bound of a node of another (finalized) program, on the
  // given streams of this one; demands, dependencies and names are the caller's (folding).
  NodeId add_copy(const Program& other, NodeId node, std::span<const StreamId> streams,
                  std::span<const Demand> demands);

  // Builds the compressed rows. Bad references are bugs; a dependency cycle is found when running.
  void finalize();
  bool finalized() const { return finalized_; }

  std::size_t num_nodes() const { return latency_.size(); }
  std::size_t num_streams() const { return streams_.size(); }
  std::size_t num_dependencies() const { return predecessors_.items.size(); }
  NodeKind kind(NodeId node) const { return kind_[node]; }
  const Tag& tag(NodeId node) const { return tag_[node]; }
  SimTime latency(NodeId node) const { return latency_[node]; }
  double work(NodeId node) const { return work_[node]; }
  double rate_bound(NodeId node) const { return rate_bound_[node]; }
  bool has_shared_demands() const { return !demands_.items.empty(); }
  std::span<const Demand> demands(NodeId node) const { return demands_[node]; }
  std::span<const StreamId> streams_of(NodeId node) const { return node_streams_[node]; }
  std::span<const NodeId> nodes_of(StreamId stream) const { return stream_nodes_[stream]; }
  // Data dependencies (versions included, stream order not).
  std::span<const NodeId> successors(NodeId node) const { return successors_[node]; }
  std::span<const NodeId> predecessors(NodeId node) const { return predecessors_[node]; }
  const std::vector<Stream>& streams() const { return streams_; }
  const std::vector<Resource>& resources() const { return resources_; }
  const std::vector<Pool>& pools() const { return pools_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<std::int64_t>& counters() const { return counters_; }
  const std::vector<std::string>& names() const { return names_; }
  std::span<const NodeId> consumers(BufferId buffer) const { return buffer_consumers_[buffer]; }
  std::span<const BufferId> produced_buffers(NodeId node) const { return produced_[node]; }
  std::span<const BufferId> consumed_buffers(NodeId node) const { return consumed_[node]; }
  std::span<const CounterWait> counter_waits(NodeId node) const { return counter_waits_[node]; }
  std::span<const CounterChange> counter_changes(NodeId node) const {
    return counter_changes_[node];
  }
  bool has_counters() const { return !counters_.empty(); }
  const std::vector<std::int64_t>& initial_versions() const { return versioned_; }
  const std::vector<VersionUse>& version_writes() const { return version_writes_; }
  const std::vector<VersionUse>& version_reads() const { return version_reads_; }

 private:
  template <typename T>
  struct Edge {
    std::uint32_t row;
    T item;
  };
  NodeId add_node(NodeKind kind, SimTime latency, double work, double rate_bound, const Tag& tag,
                  std::span<const StreamId> streams, std::span<const Demand> demands);
  void resolve_versions();

  std::vector<Stream> streams_;
  std::vector<Resource> resources_;
  std::vector<Pool> pools_;
  std::vector<Buffer> buffers_;
  std::vector<std::int64_t> counters_;
  std::vector<std::int64_t> versioned_;
  std::vector<std::string> names_{""};
  std::unordered_map<std::string, std::uint32_t> name_index_;
  std::vector<NodeId> last_of_stream_;

  std::vector<NodeKind> kind_;
  std::vector<Tag> tag_;
  std::vector<SimTime> latency_;
  std::vector<double> work_;
  std::vector<double> rate_bound_;

  std::vector<Edge<NodeId>> data_edges_;  // row = producer
  std::vector<Edge<StreamId>> stream_edges_;
  std::vector<Edge<Demand>> demand_edges_;
  std::vector<Edge<NodeId>> consume_edges_;  // row = buffer
  std::vector<Edge<CounterWait>> wait_edges_;
  std::vector<Edge<CounterChange>> change_edges_;
  std::vector<VersionUse> version_writes_;
  std::vector<VersionUse> version_reads_;

  Rows<NodeId> successors_;
  Rows<NodeId> predecessors_;
  Rows<StreamId> node_streams_;
  Rows<NodeId> stream_nodes_;
  Rows<Demand> demands_;
  Rows<NodeId> buffer_consumers_;
  Rows<BufferId> produced_;
  Rows<BufferId> consumed_;
  Rows<CounterWait> counter_waits_;
  Rows<CounterChange> counter_changes_;
  bool finalized_ = false;
};

// What a node is, in words: its name, or "forward of micro-batch 3", with chunk, slice and layer.
std::string node_text(const Program& program, NodeId node);

}  // namespace orrery::sim
