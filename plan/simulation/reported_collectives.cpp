// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/reported_collectives.hpp"

#include <algorithm>
#include <utility>

#include "plan/block/crossing_share.hpp"
#include "plan/block/step_list.hpp"
#include "plan/simulation/layout_text.hpp"

namespace orrery::plan {

using sim::CommKind;
using sim::PassKind;

Bytes ring_bytes(CommKind kind, Bytes buffer, int ranks) {
  const double n = ranks;
  const double share = kind == CommKind::SendReceive ? 1 : (n - 1) / n;
  return buffer * (kind == CommKind::AllReduce ? 2 * share : share);
}

void add_collective(ReportedCollective one, std::vector<ReportedCollective>& list) {
  const auto same = std::find_if(list.begin(), list.end(), [&](const ReportedCollective& known) {
    return known.pass == one.pass && known.kind == one.kind && known.axes == one.axes &&
           known.bytes.value() == one.bytes.value() && known.pieces == one.pieces;
  });
  if (same == list.end()) {
    list.push_back(std::move(one));
  } else {
    same->count += one.count;
    same->sent += one.sent;
  }
}

namespace {

ReportedCollective reported(const Step& step, const Execution& execution, DType precision) {
  ReportedCollective one;
  one.pass = step.pass == PassKind::WeightGrad ? PassKind::InputGrad : step.pass;
  one.kind = step.comm;
  one.axes = axes_text(step.axes);
  one.ranks = step.group.ranks;
  one.tensor = step.name;
  const bool streams =
      step.in_hops || streams_tensor_ranks(execution, precision, step.comm, step.axis);
  one.pieces = streams ? step.group.ranks : step.pieces;
  one.bytes = step.bytes;
  return one;
}

}  // namespace

void add_collectives_of(const std::vector<Step>& steps, const models::Block& block,
                        const Execution& execution, DType precision,
                        std::vector<ReportedCollective>& list) {
  const auto add = [&list](ReportedCollective one) {
    one.sent = ring_bytes(one.kind, one.bytes, one.ranks);
    add_collective(std::move(one), list);
  };
  for (const Step& step : steps) {
    if (!step.collective) {
      continue;
    }
    ReportedCollective one = reported(step, execution, precision);
    if (!is_sent_once(step, execution)) {
      add(std::move(one));
      continue;
    }
    ReportedCollective inside = one;
    inside.bytes = step.bytes * crossing_share(block, step.group.ranks);
    if (step.group.nodes < 2) {
      add(std::move(inside));
      continue;
    }
    one.axes += ", across nodes";
    one.ranks = step.group.nodes;
    one.bytes = step.bytes * crossing_share(block, step.group.nodes);
    add(std::move(one));
    if (step.group.ranks_per_node > 1) {
      inside.axes += ", inside a node";
      inside.ranks = step.group.ranks_per_node;
      add(std::move(inside));
    }
  }
}

}  // namespace orrery::plan
