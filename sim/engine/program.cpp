// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/program.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

template <typename T>
std::uint32_t next_id(const std::vector<T>& items) {
  ORRERY_CHECK(items.size() < kNone, "more than 2^32 - 2 entries in a program");
  return static_cast<std::uint32_t>(items.size());
}

}  // namespace

StreamId Program::add_stream(std::uint32_t device, StreamKind kind, std::string name,
                             std::uint32_t multiplicity) {
  const StreamId id = next_id(streams_);
  streams_.push_back({device, kind, multiplicity, std::move(name)});
  last_of_stream_.push_back(kNone);
  return id;
}

ResourceId Program::add_resource(double capacity_per_second, std::string name) {
  ORRERY_CHECK(capacity_per_second > 0.0 && std::isfinite(capacity_per_second), name);
  const ResourceId id = next_id(resources_);
  resources_.push_back({capacity_per_second, std::move(name)});
  return id;
}

PoolId Program::add_pool(std::uint32_t device, ByteCount capacity, std::string name) {
  const PoolId id = next_id(pools_);
  pools_.push_back({device, capacity, std::move(name)});
  return id;
}

CounterId Program::add_counter(std::int64_t initial) {
  const CounterId id = next_id(counters_);
  counters_.push_back(initial);
  return id;
}

VersionedId Program::add_versioned(std::int64_t initial_version) {
  const VersionedId id = next_id(versioned_);
  versioned_.push_back(initial_version);
  return id;
}

std::uint32_t Program::add_name(std::string_view name) {
  if (name.empty()) {
    return 0;
  }
  const auto [entry, added] = name_index_.try_emplace(std::string(name), next_id(names_));
  if (added) {
    names_.emplace_back(name);
  }
  return entry->second;
}

NodeId Program::add_node(NodeKind kind, SimTime latency, double work, double rate_bound,
                         const Tag& tag, std::span<const StreamId> streams,
                         std::span<const Demand> demands) {
  ORRERY_CHECK(!finalized_, "nodes are added before finalize");
  ORRERY_CHECK(latency.ps >= 0, "negative duration");
  ORRERY_CHECK(work >= 0.0 && std::isfinite(work) && rate_bound > 0.0, "bad amount of work");
  const NodeId id = next_id(latency_);
  if (demands.empty() && work > 0.0) {  // nothing is shared: a fixed duration
    latency += to_sim_time(Seconds(work / rate_bound));
    work = 0.0;
  }
  kind_.push_back(kind);
  tag_.push_back(tag);
  latency_.push_back(latency);
  work_.push_back(work);
  rate_bound_.push_back(rate_bound);
  for (const StreamId stream : streams) {
    ORRERY_CHECK(stream < streams_.size() && last_of_stream_[stream] != id, "bad stream of a node");
    last_of_stream_[stream] = id;
    stream_edges_.push_back({id, stream});
  }
  for (const Demand& demand : demands) {
    ORRERY_CHECK(demand.resource < resources_.size() && demand.amount >= 0.0, "bad demand");
    demand_edges_.push_back({id, demand});
  }
  return id;
}

NodeId Program::add_work(StreamId stream, SimTime duration, const Tag& tag) {
  return add_node(NodeKind::Work, duration, 0.0, 1.0, tag, {&stream, 1}, {});
}

NodeId Program::add_shared_work(StreamId stream, SimTime latency, Seconds seconds,
                                std::span<const Demand> demands, const Tag& tag) {
  return add_node(NodeKind::Work, latency, seconds.value(), 1.0, tag, {&stream, 1}, demands);
}

NodeId Program::add_flow(std::span<const StreamId> streams, SimTime latency, Bytes bytes,
                         std::span<const ResourceId> route, const Tag& tag) {
  std::vector<Demand> demands;
  demands.reserve(route.size());
  for (const ResourceId resource : route) {
    demands.push_back({resource, 1.0});
  }
  return add_node(NodeKind::Flow, latency, bytes.value(), std::numeric_limits<double>::infinity(),
                  tag, streams, demands);
}

NodeId Program::add_group(std::span<const StreamId> streams, SimTime duration, const Tag& tag) {
  return add_node(NodeKind::Group, duration, 0.0, 1.0, tag, streams, {});
}

NodeId Program::add_shared_group(std::span<const StreamId> streams, SimTime latency, double work,
                                 double rate_bound, std::span<const Demand> demands,
                                 const Tag& tag) {
  return add_node(NodeKind::Group, latency, work, rate_bound, tag, streams, demands);
}

NodeId Program::add_copy(const Program& other, NodeId node, std::span<const StreamId> streams,
                         std::span<const Demand> demands) {
  return add_node(other.kind(node), other.latency(node), other.work(node), other.rate_bound(node),
                  other.tag(node), streams, demands);
}

void Program::depend(NodeId consumer, NodeId producer) {
  data_edges_.push_back({producer, consumer});
}

void Program::wait_for(NodeId node, CounterId counter, std::int64_t at_least) {
  ORRERY_CHECK(counter < counters_.size(), "unknown counter");
  wait_edges_.push_back({node, {counter, at_least}});
}

void Program::adjust(NodeId node, CounterId counter, std::int64_t delta, bool at_start) {
  ORRERY_CHECK(counter < counters_.size(), "unknown counter");
  change_edges_.push_back({node, {counter, delta, at_start}});
}

void Program::writes_version(NodeId node, VersionedId object, std::int64_t version) {
  ORRERY_CHECK(object < versioned_.size(), "unknown versioned object");
  version_writes_.push_back({object, version, node});
}

void Program::reads_version(NodeId node, VersionedId object, std::int64_t version) {
  ORRERY_CHECK(object < versioned_.size(), "unknown versioned object");
  version_reads_.push_back({object, version, node});
}

BufferId Program::add_buffer(PoolId pool, ByteCount bytes, MemoryCategory category,
                             NodeId producer) {
  ORRERY_CHECK(pool < pools_.size() && bytes.value() >= 0, "bad buffer");
  const BufferId id = next_id(buffers_);
  buffers_.push_back({pool, bytes, category, producer});
  return id;
}

void Program::consume(BufferId buffer, NodeId consumer) {
  consume_edges_.push_back({buffer, consumer});
}

}  // namespace orrery::sim
