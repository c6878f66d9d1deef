// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/state.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace orrery::search {
namespace {

constexpr std::size_t kNodeBytes = 3 * 8 + 5 * 4 + 1;
constexpr std::size_t kMostText = 4000;

void write(ByteWriter& out, const MixedNode& node) {
  out.real(node.bound.value());
  out.u64(static_cast<std::uint64_t>(node.sequence));
  out.u64(static_cast<std::uint64_t>(node.plans));
  for (const int index : {node.arrangement, node.layout, node.cut, node.schedule, node.zero}) {
    out.u32(static_cast<std::uint32_t>(index + 1));  // -1: not chosen yet
  }
  out.u8(node.listed ? 1 : 0);
}

MixedNode read_node(ByteReader& in, MixedWorker& worker) {
  MixedNode node;
  node.bound = Seconds(in.real());
  node.sequence = static_cast<std::int64_t>(in.u64());
  node.plans = static_cast<std::int64_t>(in.u64());
  for (int* index : {&node.arrangement, &node.layout, &node.cut, &node.schedule, &node.zero}) {
    *index = static_cast<int>(in.u32()) - 1;
  }
  node.listed = in.u8() != 0;
  if (!(node.bound >= Seconds()) || node.sequence < 0 || node.plans < 0 || !worker.has(node)) {
    in.fail("holds a node that is not in this space");
  }
  return node;
}

// By arrangement: what an arrangement chooses from is listed once when they are read.
void write(ByteWriter& out, std::vector<MixedNode> nodes) {
  std::sort(nodes.begin(), nodes.end(), [](const MixedNode& a, const MixedNode& b) {
    return std::tie(a.arrangement, a.sequence) < std::tie(b.arrangement, b.sequence);
  });
  out.u64(nodes.size());
  for (const MixedNode& node : nodes) {
    write(out, node);
  }
}

std::vector<MixedNode> read_nodes(ByteReader& in, MixedWorker& worker) {
  std::vector<MixedNode> nodes(in.count(kNodeBytes));
  for (MixedNode& node : nodes) {
    node = read_node(in, worker);
  }
  return nodes;
}

}  // namespace

void MixedState::rank(const Ranked& found, std::size_t most) {
  const auto slower = std::find_if(ranked.begin(), ranked.end(),
                                   [&](const Ranked& other) { return other.time > found.time; });
  ranked.insert(slower, found);
  if (ranked.size() > most) {
    ranked.pop_back();
  }
}

void MixedState::write(ByteWriter& out) const {
  for (const std::int64_t count :
       {nodes, outcome.plans, outcome.pruned, outcome.infeasible, outcome.simulated}) {
    out.u64(static_cast<std::uint64_t>(count));
  }
  out.u64(work);
  out.u64(static_cast<std::uint64_t>(least_excess.value()));
  out.text(outcome.closest_overflow);
  out.u64(ranked.size());
  for (const Ranked& one : ranked) {
    search::write(out, one.node);
    out.real(one.time.value());
  }
  search::write(out, roots);
  search::write(out, heap.nodes());
}

void MixedState::read(ByteReader& in, MixedWorker& worker) {
  for (std::int64_t* count :
       {&nodes, &outcome.plans, &outcome.pruned, &outcome.infeasible, &outcome.simulated}) {
    *count = static_cast<std::int64_t>(in.u64());
    if (*count < 0) {
      in.fail("holds counts that cannot be");
    }
  }
  work = in.u64();
  least_excess = ByteCount(static_cast<std::int64_t>(in.u64()));
  outcome.closest_overflow = in.text();
  if (least_excess < ByteCount() || outcome.closest_overflow.size() > kMostText) {
    in.fail("holds counts that cannot be");
  }
  ranked.resize(in.count(kNodeBytes + 8));
  for (Ranked& one : ranked) {
    one.node = read_node(in, worker);
    one.time = Seconds(in.real());
    if (one.node.zero < 0 || !(one.time > Seconds())) {
      in.fail("holds a plan that cannot be");
    }
  }
  roots = read_nodes(in, worker);
  for (const MixedNode& node : read_nodes(in, worker)) {
    heap.push(node);
  }
}

}  // namespace orrery::search
