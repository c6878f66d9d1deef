// SPDX-License-Identifier: Apache-2.0
// The compressed rows of a program: one stable counting sort for each kind of edge.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>

#include "base/error.hpp"
#include "sim/engine/program.hpp"

namespace orrery::sim {
namespace {

template <typename T, typename Edges, typename RowOf, typename ItemOf>
Rows<T> to_rows(const Edges& edges, std::size_t num_rows, RowOf row_of, ItemOf item_of) {
  ORRERY_CHECK(edges.size() < kNone, "more than 2^32 - 2 edges in a program");
  Rows<T> rows;
  if (edges.empty()) {
    return rows;
  }
  rows.offsets.assign(num_rows + 1, 0);
  for (const auto& edge : edges) {
    ORRERY_CHECK(row_of(edge) < num_rows, "reference to something that was never added");
    ++rows.offsets[row_of(edge) + 1];
  }
  for (std::size_t row = 0; row < num_rows; ++row) {
    rows.offsets[row + 1] += rows.offsets[row];
  }
  rows.items.resize(edges.size());
  // The offsets of the rows serve as write cursors and are moved back by one row afterwards.
  for (const auto& edge : edges) {
    rows.items[rows.offsets[row_of(edge)]++] = item_of(edge);
  }
  for (std::size_t row = num_rows; row > 0; --row) {
    rows.offsets[row] = rows.offsets[row - 1];
  }
  rows.offsets[0] = 0;
  return rows;
}

template <typename T, typename Edges>
Rows<T> forward_rows(const Edges& edges, std::size_t num_rows) {
  return to_rows<T>(
      edges, num_rows, [](const auto& edge) { return edge.row; },
      [](const auto& edge) { return edge.item; });
}

template <typename Edges>
Rows<std::uint32_t> reverse_rows(const Edges& edges, std::size_t num_rows) {
  return to_rows<std::uint32_t>(
      edges, num_rows, [](const auto& edge) { return edge.item; },
      [](const auto& edge) { return edge.row; });
}

}  // namespace

void Program::resolve_versions() {
  if (version_reads_.empty()) {
    return;
  }
  const auto key = [](const VersionUse& use) { return std::tie(use.object, use.version); };
  std::vector<VersionUse> writes = version_writes_;
  std::stable_sort(writes.begin(), writes.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  for (const VersionUse& read : version_reads_) {
    if (read.version <= versioned_[read.object]) {
      continue;
    }
    auto write = std::lower_bound(writes.begin(), writes.end(), read,
                                  [&](const auto& a, const auto& b) { return key(a) < key(b); });
    ORRERY_CHECK(write != writes.end() && key(*write) == key(read),
                 "a version is read that nothing writes");
    for (; write != writes.end() && key(*write) == key(read); ++write) {
      data_edges_.push_back({write->node, read.node});
    }
  }
}

void Program::finalize() {
  ORRERY_CHECK(!finalized_, "a program is finalized once");
  resolve_versions();
  const std::size_t n = num_nodes();
  successors_ = forward_rows<NodeId>(data_edges_, n);
  predecessors_ = reverse_rows(data_edges_, n);
  data_edges_ = {};
  node_streams_ = forward_rows<StreamId>(stream_edges_, n);
  stream_nodes_ = reverse_rows(stream_edges_, streams_.size());
  stream_edges_ = {};
  demands_ = forward_rows<Demand>(demand_edges_, n);
  demand_edges_ = {};
  buffer_consumers_ = forward_rows<NodeId>(consume_edges_, buffers_.size());
  consumed_ = reverse_rows(consume_edges_, n);
  consume_edges_ = {};
  counter_waits_ = forward_rows<CounterWait>(wait_edges_, n);
  wait_edges_ = {};
  counter_changes_ = forward_rows<CounterChange>(change_edges_, n);
  change_edges_ = {};

  std::vector<Edge<BufferId>> produced;
  for (BufferId buffer = 0; buffer < buffers_.size(); ++buffer) {
    if (buffers_[buffer].producer != kNone) {
      produced.push_back({buffers_[buffer].producer, buffer});
    }
  }
  produced_ = forward_rows<BufferId>(produced, n);
  finalized_ = true;
}

std::string_view to_text(StreamKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "compute", "collective", "send", "receive", "copy-in", "copy-out", "host", "disk"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_text(MemoryCategory category) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "parameters", "gradients",     "optimizer", "activations",
      "workspace",  "communication", "context",   "other"};
  return kNames[static_cast<std::size_t>(category)];
}

std::string node_text(const Program& program, NodeId node) {
  const Tag& tag = program.tag(node);
  std::string text;
  if (tag.name != 0) {
    text = program.names()[tag.name];
  } else if (tag.comm != CommKind::None) {
    text = fmt::format("{} ({})", to_text(tag.pass), to_text(tag.comm));
  } else {
    text = to_text(tag.pass);
  }
  if (tag.micro_batch != kAllMicroBatches) {
    text += fmt::format(" of micro-batch {}", tag.micro_batch);
  }
  if (tag.chunk != 0) {
    text += fmt::format(", chunk {}", tag.chunk);
  }
  if (tag.slice != 0) {
    text += fmt::format(", slice {}", tag.slice);
  }
  if (tag.layer != 0) {
    text += fmt::format(", layer {}", tag.layer);
  }
  return text;
}

}  // namespace orrery::sim
