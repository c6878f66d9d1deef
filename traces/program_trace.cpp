// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "traces/adapters.hpp"

namespace orrery::traces {
namespace {

using sim::NodeId;

class ProgramTrace {
 public:
  ProgramTrace(const sim::Program& program, const sim::Timeline& timeline,
               const std::vector<std::string>& device_names)
      : program_(program), timeline_(timeline), device_names_(device_names) {}

  Trace build() {
    add_tracks();
    first_span_.assign(program_.num_nodes(), sim::kNone);
    for (NodeId node = 0; node < program_.num_nodes(); ++node) {
      add_spans(node);
    }
    for (NodeId node = 0; node < program_.num_nodes(); ++node) {
      add_arrows(node);
    }
    add_counters();
    return std::move(trace_);
  }

 private:
  bool ran(NodeId node) const { return timeline_.end[node].ps >= 0; }

  void add_tracks() {
    for (const sim::Stream& stream : program_.streams()) {
      add_device(stream.device);
    }
    for (const sim::Pool& pool : program_.pools()) {
      add_device(pool.device);
    }
    for (auto& [device, process] : process_of_device_) {
      process = trace_.add_process(
          device < device_names_.size() ? device_names_[device] : fmt::format("device {}", device));
    }
    for (const sim::Stream& stream : program_.streams()) {
      trace_.add_track(process_of_device_.at(stream.device), stream.name);
    }
  }
  void add_device(std::uint32_t device) { process_of_device_.emplace(device, 0); }

  Json::Object args_of(NodeId node) const {
    const sim::Tag& tag = program_.tag(node);
    Json::Object args;
    if (tag.micro_batch != sim::kAllMicroBatches) {
      args.emplace_back("micro_batch", std::int64_t{tag.micro_batch});
    }
    args.emplace_back("chunk", std::int64_t{tag.chunk});
    args.emplace_back("layer", std::int64_t{tag.layer});
    if (tag.comm != sim::CommKind::None) {
      args.emplace_back("communication", to_text(tag.comm));
    }
    if (!timeline_.bottleneck.empty() && timeline_.bottleneck[node] != sim::kNone) {
      args.emplace_back("bound_by", program_.resources()[timeline_.bottleneck[node]].name);
    }
    return args;
  }

  // A group or a rendezvous occupies several streams and shows on each.
  void add_spans(NodeId node) {
    if (!ran(node)) {
      return;
    }
    for (const sim::StreamId stream : program_.streams_of(node)) {
      if (first_span_[node] == sim::kNone) {
        first_span_[node] = static_cast<std::uint32_t>(trace_.spans.size());
      }
      trace_.spans.push_back({.track = stream,
                              .start = timeline_.start[node],
                              .end = timeline_.end[node],
                              .name = node_text(program_, node),
                              .category = std::string(to_text(program_.tag(node).pass)),
                              .args = args_of(node)});
    }
  }

  // A buffered flow has no stream of its own: it is the arrow itself.
  void add_arrows(NodeId node) {
    if (program_.kind(node) != sim::NodeKind::Flow || !ran(node)) {
      return;
    }
    const std::string name = node_text(program_, node);
    if (program_.streams_of(node).size() > 1) {
      trace_.arrows.push_back({first_span_[node], first_span_[node] + 1, name});
      return;
    }
    for (const NodeId from : program_.predecessors(node)) {
      for (const NodeId to : program_.successors(node)) {
        if (first_span_[from] != sim::kNone && first_span_[to] != sim::kNone) {
          trace_.arrows.push_back({first_span_[from], first_span_[to], name});
        }
      }
    }
  }

  struct Change {
    sim::PoolId pool;
    SimTime at;
    sim::MemoryCategory category;
    std::int64_t bytes;
    auto key() const { return std::tuple(pool, at, category, bytes); }
  };

  std::vector<Change> memory_changes() const {
    std::vector<Change> changes;
    for (sim::BufferId id = 0; id < program_.buffers().size(); ++id) {
      const sim::Buffer& buffer = program_.buffers()[id];
      SimTime begin;
      if (buffer.producer != sim::kNone) {
        if (!ran(buffer.producer)) {
          continue;
        }
        begin = timeline_.start[buffer.producer];
      }
      changes.push_back({buffer.pool, begin, buffer.category, buffer.bytes.value()});
      const auto consumers = program_.consumers(id);
      if (consumers.empty() || !std::ranges::all_of(consumers, [&](NodeId n) { return ran(n); })) {
        continue;
      }
      SimTime end = begin;
      for (const NodeId consumer : consumers) {
        end = std::max(end, timeline_.end[consumer]);
      }
      changes.push_back({buffer.pool, end, buffer.category, -buffer.bytes.value()});
    }
    std::ranges::sort(changes, {}, &Change::key);
    return changes;
  }

  // One sample per pool and instant: the state after everything that happens then.
  void add_counters() {
    const std::vector<Change> changes = memory_changes();
    std::map<sim::MemoryCategory, std::int64_t> bytes;
    for (std::size_t index = 0; index < changes.size(); ++index) {
      const Change& change = changes[index];
      if (index > 0 && changes[index - 1].pool != change.pool) {
        bytes.clear();
      }
      bytes[change.category] += change.bytes;
      const bool last = index + 1 == changes.size() || changes[index + 1].pool != change.pool ||
                        changes[index + 1].at != change.at;
      if (!last) {
        continue;
      }
      const sim::Pool& pool = program_.pools()[change.pool];
      Counter counter{process_of_device_.at(pool.device), change.at, pool.name, {}};
      for (const auto& [category, size] : bytes) {
        counter.series.emplace_back(to_text(category), static_cast<double>(size));
      }
      trace_.counters.push_back(std::move(counter));
    }
  }

  const sim::Program& program_;
  const sim::Timeline& timeline_;
  const std::vector<std::string>& device_names_;
  std::map<std::uint32_t, std::uint32_t> process_of_device_;
  std::vector<std::uint32_t> first_span_;  // per node
  Trace trace_;
};

}  // namespace

Trace trace_of(const sim::Program& program, const sim::Timeline& timeline,
               const std::vector<std::string>& device_names) {
  ORRERY_CHECK(timeline.start.size() == program.num_nodes(), "a timeline of another program");
  return ProgramTrace(program, timeline, device_names).build();
}

}  // namespace orrery::traces
