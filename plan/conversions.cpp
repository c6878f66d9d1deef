// SPDX-License-Identifier: Apache-2.0
// Rules 3 and 4 of plan/layout.hpp: the collectives between two layouts.
#include <algorithm>

#include "base/error.hpp"
#include "plan/layout.hpp"

namespace orrery::plan {

using sim::CommKind;

Layout gradient_of(const Layout& forward) {
  Layout layout = forward;
  for (const Axis axis : kAxes) {
    if (forward[axis].is_partial()) {
      layout.set(axis, Placement::replicated());
    }
  }
  return layout;
}

namespace {

// The collective that changes one axis, None for a free slice or no change.
CommKind collective_for(Placement from, Placement to) {
  if (from == to || from.is_replicated()) {
    return CommKind::None;
  }
  if (from.is_partial()) {
    return to.is_sharded() ? CommKind::ReduceScatter : CommKind::AllReduce;
  }
  return to.is_sharded() ? CommKind::AllToAll : CommKind::AllGather;
}

int order_of(CommKind kind) {
  switch (kind) {
    case CommKind::None:
      return 0;  // slices first: they make everything after them smaller
    case CommKind::ReduceScatter:
      return 1;
    case CommKind::AllReduce:
      return 2;
    case CommKind::AllToAll:
      return 3;
    default:
      return 4;
  }
}

}  // namespace

std::vector<Conversion> conversions(const Layout& from, const Layout& to) {
  struct Change {
    CommKind kind;
    Axis axis;
  };
  std::vector<Change> changes;
  for (const Axis axis : kAxes) {
    if (from[axis] != to[axis]) {
      ORRERY_CHECK(!to[axis].is_partial(), "a conversion never makes partial sums");
      changes.push_back({collective_for(from[axis], to[axis]), axis});
    }
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return order_of(a.kind) < order_of(b.kind);
  });
  std::vector<Conversion> result;
  Layout current = from;
  for (const Change& change : changes) {
    Conversion conversion;
    conversion.kind = change.kind;
    conversion.axis = change.axis;
    conversion.before = current;
    current.set(change.axis, to[change.axis]);
    conversion.after = current;
    if (change.kind != CommKind::None) {
      result.push_back(conversion);
    }
  }
  return result;
}

bool cuts_before_gathers(const Layout& from, const Layout& to, Axis axis) {
  const bool gathered = std::any_of(kAxes.begin(), kAxes.end(), [&](Axis other) {
    return from[other].is_sharded() && from[other] != to[other] && from[other] == to[axis];
  });
  return from[axis].is_replicated() || (from[axis].is_partial() && gathered);
}

bool communicates(const Layout& from, const Layout& to, const Mesh& mesh) {
  return std::any_of(kAxes.begin(), kAxes.end(), [&](Axis axis) {
    return mesh.of(axis) > 1 && collective_for(from[axis], to[axis]) != CommKind::None;
  });
}

Layout kept_layout(const Layout& from, const Layout& to) {
  Layout kept = to;
  for (const Axis axis : kAxes) {
    if (collective_for(from[axis], to[axis]) == CommKind::AllGather) {
      kept.set(axis, from[axis]);
    }
  }
  return kept;
}

}  // namespace orrery::plan
