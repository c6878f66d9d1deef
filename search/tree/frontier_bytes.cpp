// SPDX-License-Identifier: Apache-2.0
// A frontier as bytes. Nodes are written in their order, so that equal frontiers have equal bytes;
// on reading every index is checked against the space.
#include <cmath>

#include "search/tree/frontier.hpp"
#include "search/tree/tree_check.hpp"
#include "search/tree/work_bytes.hpp"

namespace orrery::search {

void Frontier::write(ByteWriter& out) const {
  out.u64(work_);
  out.u64(nodes_.size() + plans_.size());
  for (MinHeap<Node> nodes : {nodes_, plans_}) {
    for (; !nodes.empty(); nodes.pop()) {
      search::write(out, nodes.top());
    }
  }
  out.u64(ranked_.size());
  for (const Ranked& ranked : ranked_) {
    search::write(out, ranked.node);
    out.real(ranked.time.value());
  }
  search::write(out, closest_);
  search::write(out, closest_replayed_);
  out.u64(static_cast<std::uint64_t>(simulated_));
  out.u64(static_cast<std::uint64_t>(infeasible_));
}

void Frontier::read(ByteReader& in) {
  (void)seeds();  // as they were tried
  bounded_ = true;
  TreeCheck check(tree_);
  work_ = in.u64();
  const std::size_t nodes = in.count(kNodeBytes);
  for (std::size_t index = 0; index < nodes; ++index) {
    const Node node = read_node(in);
    check.node(in, node);
    push(node);
  }
  const std::size_t ranked = in.count(kNodeBytes + 8);
  for (std::size_t index = 0; index < ranked; ++index) {
    const Node node = read_node(in);
    check.node(in, node);
    const Seconds time(in.real());
    if (!node.is_plan() || !std::isfinite(time.value()) || !(time > Seconds(0)) ||
        (!ranked_.empty() && time < ranked_.back().time) || ranked_.size() == keep_) {
      in.fail("holds ranks that cannot be");
    }
    ranked_.push_back({node, time});
  }
  for (Overflow* closest : {&closest_, &closest_replayed_}) {
    *closest = read_overflow(in);
    check.overflow(in, *closest);
  }
  simulated_ = static_cast<std::int64_t>(in.u64());
  infeasible_ = static_cast<std::int64_t>(in.u64());
  const Group& last = groups_.back();
  const auto plans = static_cast<std::int64_t>(first_order_.back()) + space_.num_members(last);
  if (simulated_ < 0 || infeasible_ < 0 || simulated_ > plans || infeasible_ > plans - simulated_ ||
      simulated_ < static_cast<std::int64_t>(ranked_.size())) {
    in.fail("holds counts that cannot be");
  }
}

}  // namespace orrery::search
