// SPDX-License-Identifier: Apache-2.0
#include "plan/block/relayout.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "plan/block/saved.hpp"

namespace orrery::plan {

namespace {

using sim::CommKind;

// Distances at which the digits of both meshes begin, ascending: between two of them lies a factor
// that belongs to one axis of each. A distance that does not divide the next one is left out, so
// that its axis is part of a larger factor.
std::vector<std::int64_t> cuts_of(const Mesh& a, const Mesh& b) {
  std::vector<std::int64_t> cuts = {1};
  for (const Mesh* mesh : {&a, &b}) {
    for (const Axis axis : kAxes) {
      cuts.push_back(std::int64_t{mesh->stride(axis)} * mesh->of(axis));
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<std::int64_t> chain;
  for (const std::int64_t cut : cuts) {
    if (chain.empty() || cut % chain.back() == 0) {
      chain.push_back(cut);
    }
  }
  return chain;
}

// The axis that a factor lies in and what it does to the stream.
struct Cut {
  Axis axis = Axis::Tensor;
  Placement placement = Placement::replicated();
};

Cut cut_at(const Mesh& mesh, const Layout& layout, std::int64_t stride) {
  for (const Axis axis : kAxes) {
    const std::int64_t begin = mesh.stride(axis);
    if (mesh.of(axis) > 1 && stride >= begin && stride < begin * mesh.of(axis)) {
      return {axis, layout[axis]};
    }
  }
  return {};
}

struct Factor {
  Extent extent;
  Cut from;
  Cut to;
};

std::vector<Factor> common_factors(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh,
                                   const Layout& to) {
  const std::vector<std::int64_t> cuts = cuts_of(from_mesh, to_mesh);
  std::vector<Factor> factors;
  for (std::size_t index = 0; index + 1 < cuts.size(); ++index) {
    const std::int64_t stride = cuts[index];
    factors.push_back({{static_cast<int>(cuts[index + 1] / stride), stride},
                       cut_at(from_mesh, from, stride),
                       cut_at(to_mesh, to, stride)});
  }
  return factors;
}

// Several factors of one dimension cut it one after the other: later axes first, whichever of their
// ranks are neighbours, and of an axis the outer factors. Those that cut this one, in that order.
std::vector<std::size_t> order_of_cuts(const std::vector<Factor>& factors, Placement placement,
                                       Cut Factor::*side) {
  std::vector<std::size_t> order;
  for (std::size_t index = factors.size(); index-- > 0;) {
    if ((factors[index].*side).placement == placement) {
      order.push_back(index);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return (factors[a].*side).axis > (factors[b].*side).axis;
  });
  return order;
}

// Those before this one.
std::vector<std::size_t> cut_before(const std::vector<Factor>& factors, std::size_t index,
                                    Cut Factor::*side) {
  std::vector<std::size_t> order = order_of_cuts(factors, (factors[index].*side).placement, side);
  order.erase(std::find(order.begin(), order.end(), index), order.end());
  return order;
}

// Pieces stay where they are only as far as both sides begin with the same factors; behind the
// first that differs everything moves. Context ranks of which one side alone balances the causal
// triangle hold other tokens.
bool stays(const std::vector<Factor>& factors, std::size_t index, bool reordered) {
  const Factor& factor = factors[index];
  const std::vector<std::size_t> before = cut_before(factors, index, &Factor::from);
  const auto moves = [&](const Factor& one) {
    return reordered && one.from.axis == Axis::Context && one.from.placement.is_sharded();
  };
  return factor.from.placement.is_sharded() && factor.from.placement == factor.to.placement &&
         before == cut_before(factors, index, &Factor::to) && !moves(factor) &&
         std::none_of(before.begin(), before.end(),
                      [&](std::size_t other) { return moves(factors[other]); });
}

// Whether some rank needs nothing of what it has. Behind the factors with which both sides begin a
// dimension, one that both cut is cut by different ones first: the last part of the one side is
// apart from the first one of the other. Of two balanced halves of a sequence each has a chunk of
// either half in order.
bool scatters_all(const std::vector<Factor>& factors, const Factor& exchanged, bool reordered) {
  const auto parts_ways = [&](Placement placement) {
    const std::vector<std::size_t> from = order_of_cuts(factors, placement, &Factor::from);
    const std::vector<std::size_t> to = order_of_cuts(factors, placement, &Factor::to);
    std::size_t same = 0;
    while (same < from.size() && same < to.size() && from[same] == to[same] &&
           stays(factors, from[same], reordered)) {
      ++same;
    }
    const bool halves =
        from == to && from.size() == same + 1 && factors[from[same]].extent.size == 2;
    return same < from.size() && same < to.size() && !halves;
  };
  return parts_ways(exchanged.from.placement) || parts_ways(exchanged.to.placement);
}

// Whether both blocks cut the sequence for attention that reads it in order, one of them balanced.
// Ulysses gathers all of it and takes either order.
bool reorders(const Plan& plan, const BlockPlan& from, const BlockPlan& to) {
  const auto may_balance = [](BlockPlan layout) {
    layout.zigzag = true;
    return balances_causal(layout);
  };
  return plan.network.spec.causal && from.zigzag != to.zigzag && may_balance(from) &&
         may_balance(to);
}

CommKind kind_of(const Factor& factor, bool stays) {
  if (stays || !factor.from.placement.is_sharded()) {
    return CommKind::None;
  }
  return factor.to.placement.is_sharded() ? CommKind::AllToAll : CommKind::AllGather;
}

// Ranks that slice a dimension before they exchange parts of it do not have their slice of the
// whole dimension yet, and the same backward: of those that gather a dimension after an exchange of
// it.
bool is_uneven(const Factor& exchanged, const std::vector<Factor>& factors) {
  return std::any_of(factors.begin(), factors.end(), [&](const Factor& other) {
    const bool slices = !other.from.placement.is_sharded();
    const bool gathers = !other.to.placement.is_sharded();
    return (slices && other.to.placement == exchanged.from.placement) ||
           (gathers && other.from.placement == exchanged.to.placement);
  });
}

}  // namespace

int StreamConversion::ranks() const {
  return std::accumulate(factors.begin(), factors.end(), 1,
                         [](int product, const Extent& factor) { return product * factor.size; });
}

Bytes StreamConversion::bytes(Bytes before, Bytes after) const {
  if (kind != CommKind::AllToAll) {
    return after;
  }
  return uneven ? std::max(before, after) : before / slices;
}

Bytes StreamConversion::sent(Bytes buffer) const {
  const double n = ranks();
  return kind == CommKind::AllToAll && scatters ? buffer : buffer * ((n - 1) / n);
}

std::vector<StreamConversion> stream_conversions(const Mesh& from_mesh, const Layout& from,
                                                 const Mesh& to_mesh, const Layout& to,
                                                 bool reordered) {
  const std::vector<Factor> factors = common_factors(from_mesh, from, to_mesh, to);
  StreamConversion exchange{CommKind::AllToAll, {}};
  StreamConversion gather{CommKind::AllGather, {}};
  for (std::size_t index = 0; index < factors.size(); ++index) {
    const Factor& factor = factors[index];
    const CommKind kind = kind_of(factor, stays(factors, index, reordered));
    if (kind == CommKind::AllToAll) {
      exchange.factors.push_back(factor.extent);
      exchange.uneven = exchange.uneven || is_uneven(factor, factors);
      exchange.scatters = exchange.scatters || scatters_all(factors, factor, reordered);
    } else if (kind == CommKind::AllGather) {
      gather.factors.push_back(factor.extent);
    } else if (!factor.from.placement.is_sharded() && factor.to.placement.is_sharded()) {
      exchange.slices *= factor.extent.size;
    }
  }
  std::vector<StreamConversion> conversions;
  for (const StreamConversion& conversion : {exchange, gather}) {
    if (!conversion.factors.empty()) {
      conversions.push_back(conversion);
    }
  }
  return conversions;
}

std::vector<StreamConversion> stream_conversions(const Plan& plan, const BlockPlan& from,
                                                 const BlockPlan& to) {
  const auto stream_of = [&](const BlockPlan& layout) {
    return stream_layout(rules_of(layout, plan.execution.vocab_parallel));
  };
  return stream_conversions(mesh_of(from, plan.data_ranks(from)), stream_of(from),
                            mesh_of(to, plan.data_ranks(to)), stream_of(to),
                            reorders(plan, from, to));
}

std::vector<Crossing> crossings(const Plan& plan, const BlockCosts& costs,
                                const Neighbours& neighbours, const Slice& slice) {
  const auto& blocks = plan.network.blocks;
  const auto held = [&](int block, int tensor, const BlockPlan& layout) {
    const std::int64_t items =
        plan.micro_batch_of(layout) * blocks[static_cast<std::size_t>(block)].items;
    const BlockContext context = costs.block_context(block, layout, items, slice);
    return tensor_bytes(context, tensor,
                        stream_layout(rules_of(layout, plan.execution.vocab_parallel)));
  };
  std::vector<Crossing> result;
  const auto cross = [&](int block, int tensor) {
    const models::Tensor& crossing =
        blocks[static_cast<std::size_t>(block)].tensors[static_cast<std::size_t>(tensor)];
    result.push_back({crossing.name, held(block, tensor, neighbours.from),
                      held(block, tensor, neighbours.to), !crossing.frozen});
  };
  cross(neighbours.block, blocks[static_cast<std::size_t>(neighbours.block)].output);
  const models::Block& next = blocks[static_cast<std::size_t>(neighbours.next)];
  if (takes_carried(next)) {
    cross(neighbours.next, next.memory);
  }
  return result;
}

Relayout relayout(const Plan& plan, const BlockPlan& from, ByteCount before, const BlockPlan& to,
                  ByteCount after, const BlockCosts& costs) {
  const auto time = [&](const BlockPlan& source, ByteCount held, const BlockPlan& target,
                        ByteCount needed) {
    Seconds total;
    for (const StreamConversion& step : stream_conversions(plan, source, target)) {
      const auto group = group_of(step.factors, costs.cluster().node.gpus);
      const double n = step.ranks();
      // Of the rank that sends most, as a buffer of ranks that all keep an n-th.
      const Bytes bytes = step.sent(step.bytes(held.bytes(), needed.bytes())) * (n / (n - 1));
      total += costs.scaled(group, costs.collectives().time(step.kind, bytes, group));
    }
    return total;
  };
  return {time(from, before, to, after), time(to, after, from, before)};
}

Relayout relayout(const Plan& plan, const BlockCosts& costs, const Neighbours& neighbours,
                  const Slice& slice) {
  Relayout total;
  for (const Crossing& one : crossings(plan, costs, neighbours, slice)) {
    const Relayout change =
        relayout(plan, neighbours.from, one.before, neighbours.to, one.after, costs);
    total.forward += change.forward;
    total.backward += one.trained ? change.backward : Seconds();
  }
  return total;
}

}  // namespace orrery::plan
