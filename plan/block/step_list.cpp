// SPDX-License-Identifier: Apache-2.0
#include "plan/block/step_list.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/math.hpp"
#include "plan/block/crossing_share.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/dispatchers.hpp"

namespace orrery::plan {

namespace {

using sim::CommKind;
using sim::PassKind;

// Keys and values, of which attention on the context ranks reads part after part for its queries.
bool is_read_in_parts(const BlockContext& context, const models::Tensor& tensor) {
  const ContextParallel kind = context.layout.context;
  if ((kind != ContextParallel::Ring && kind != ContextParallel::Mix) ||
      context.mesh.of(Axis::Context) == 1) {
    return false;
  }
  const auto index = static_cast<int>(&tensor - context.block.tensors.data());
  return std::any_of(
      context.block.operators.begin(), context.block.operators.end(), [&](const auto& op) {
        if (op.kind != models::OpKind::Attention ||
            std::find(op.inputs.begin() + 1, op.inputs.end(), index) == op.inputs.end()) {
          return false;
        }
        const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
        const Assignment assignment = assign(context.block, op, rules.of(op));
        return assignment[static_cast<std::size_t>(Axis::Context)] == models::Var::Seq;
      });
}

// The axis that a collective counts for: the first, but of all context ranks that of the ring.
Axis axis_of(const MergedConversion& merged) {
  return std::ranges::equal(merged.axes, kContextAxes) ? Axis::Context : merged.axes.front();
}

// Keys, values and their gradients on their way round the context ranks.
bool rides_ring(const Conversions& conversions, const MergedConversion& merged) {
  return conversions.read_in_parts && axis_of(merged) == Axis::Context &&
         (merged.kind == CommKind::AllGather || merged.kind == CommKind::ReduceScatter);
}

bool streams_pieces(const BlockContext& context, const Conversions& conversions,
                    const MergedConversion& merged) {
  return axis_of(merged) == Axis::Context
             ? rides_ring(conversions, merged) && context.execution.overlap_context
             : streams_tensor_ranks(context.execution, context.precision, merged.kind,
                                    merged.axes.front());
}

// Time beyond the kernel when a collective runs in n pieces under it (user-buffer overlap,
// "TP communication overlap"): x/n + (n-1) max(x/n, y) - x, y = one piece of the collective.
Seconds streamed_excess(Seconds kernel, Seconds collective, int pieces) {
  if (pieces <= 1) {
    return Seconds();
  }
  const Seconds share = kernel / static_cast<double>(pieces);
  const Seconds piece = collective / static_cast<double>(pieces - 1);
  return share + std::max(share, piece) * static_cast<double>(pieces - 1) - kernel;
}

const models::Dim* find_dim(const models::Tensor& tensor, models::Var var) {
  const auto found = std::find_if(tensor.dims.begin(), tensor.dims.end(),
                                  [var](const models::Dim& dim) { return dim.var == var; });
  return found == tensor.dims.end() ? nullptr : &*found;
}

// Query heads for each head of the keys and values that attention reads; 1 for other tensors, or
// where heads are not repeated.
double repetitions(const BlockContext& context, const models::Tensor& tensor,
                   const Layout& layout) {
  const models::Dim* keys = find_dim(tensor, models::Var::KvHead);
  if (!context.execution.repeated_heads || keys == nullptr) {
    return 1;
  }
  const auto index = static_cast<int>(&tensor - context.block.tensors.data());
  for (const models::Operator& op : context.block.operators) {
    const bool reads = std::find(op.inputs.begin(), op.inputs.end(), index) != op.inputs.end();
    if (op.kind == models::OpKind::Attention && reads) {
      const models::Dim* queries =
          find_dim(tensor_at(context.block, op.inputs.front()), models::Var::Head);
      const auto heads = [&](const models::Dim& dim) {
        return static_cast<double>(local_extent(dim, layout, context.mesh, context.extents));
      };
      return queries == nullptr ? 1 : heads(*queries) / heads(*keys);
    }
  }
  return 1;
}

// Keys and values of earlier slices stay on the context ranks that made them, so every slice
// gathers theirs with its own, and scatters gradients of all of them.
void gather_earlier_slices(const BlockContext& context, const models::Tensor& tensor,
                           std::vector<MergedConversion>& steps) {
  const std::vector<int> read = read_by_later_slices(context);
  const auto index = static_cast<int>(&tensor - context.block.tensors.data());
  if (std::find(read.begin(), read.end(), index) == read.end()) {
    return;
  }
  for (MergedConversion& step : steps) {
    const bool over_context =
        std::find(step.axes.begin(), step.axes.end(), Axis::Context) != step.axes.end();
    if (over_context && step.kind != CommKind::AllToAll) {
      step.elements = step.elements / context.extents.sequence * context.extents.keys;
    }
  }
}

std::vector<int> clean(std::vector<int> after) {
  std::erase_if(after, [](int step) { return step < 0; });
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  return after;
}

}  // namespace

// PyTorch does not fuse gathers of what gets one fp8 scale a row (pytorch/pytorch issue 149990).
bool streams_tensor_ranks(const Execution& execution, DType precision, CommKind kind, Axis axis) {
  const bool gathers =
      kind == CommKind::AllGather && (!is_quantised(precision) || execution.fp8_gathers);
  return axis == Axis::Tensor && execution.stream_tp &&
         (gathers || kind == CommKind::ReduceScatter);
}

bool is_summa(const BlockPlan& layout, Axis axis) {
  return (layout.tensor_parallel == TensorMesh::TwoD ||
          layout.tensor_parallel == TensorMesh::TwoAndHalfD) &&
         (axis == Axis::Tensor || axis == Axis::TensorRow);
}

Conversions conversions_of(const BlockContext& context, const models::Tensor& tensor,
                           const Layout& from, const Layout& to) {
  const double bytes =
      element_bytes(tensor.element, context.precision) * repetitions(context, tensor, to);
  std::vector<MergedConversion> steps =
      merged_conversions(tensor, from, to, context.mesh, context.extents);
  gather_earlier_slices(context, tensor, steps);
  return {tensor.name,
          std::move(steps),
          bytes,
          gathered_quantised(context.block, tensor, context.execution, context.precision),
          context.execution.quantised_dispatch && tensor.element == models::Element::Compute,
          is_read_in_parts(context, tensor)};
}

void Conversions::join(const Conversions& other) {
  if (name.empty()) {
    name = other.name;
    bytes_per_element = other.bytes_per_element;
    gathers_fp8 = other.gathers_fp8;
    quantised_tokens = other.quantised_tokens;
  }
  read_in_parts = read_in_parts || other.read_in_parts;
  for (const MergedConversion& step : other.steps) {
    const auto same = std::find_if(steps.begin(), steps.end(), [&](const MergedConversion& known) {
      return known.kind == step.kind && known.axes == step.axes;
    });
    if (same == steps.end()) {
      steps.push_back(step);
    } else {
      same->elements += step.elements;
    }
  }
}

int StepList::add_kernel(const models::Operator& op, PassKind pass, const KernelCost& cost,
                         std::vector<int> after) {
  after = clean(std::move(after));
  const bool takes_time = cost.time.value() > 0;
  if (!takes_time && after.size() < 2) {
    return after.empty() ? -1 : after.back();
  }
  Step step;
  step.name = op.name;
  step.pass = pass;
  step.time = cost.time;
  step.launches = takes_time ? cost.launches : 0;  // without: who waits for it waits for all before
  step.cost_class = cost.cost_class;
  step.flops = cost.flops;
  step.after = std::move(after);
  steps_.push_back(std::move(step));
  return last();
}

int StepList::add_conversion(const models::Tensor& tensor, const Layout& from, const Layout& to,
                             PassKind pass, int after_step, Seconds kernel) {
  if (!communicates(from, to, context_.mesh)) {
    return after_step;
  }
  return add_conversions(conversions_of(context_, tensor, from, to), pass, after_step, kernel);
}

namespace {

// Of an element.
double sent_bytes(const Conversions& conversions, const MergedConversion& merged, DType precision) {
  if (conversions.quantised_tokens && merged.to_experts) {
    return kQuantisedTokenBytes;
  }
  const bool fp8 = conversions.gathers_fp8 && merged.kind == CommKind::AllGather &&
                   merged.axes.front() == Axis::Tensor;
  return fp8 ? bytes_per_element(precision) : conversions.bytes_per_element;
}

}  // namespace

int StepList::add_conversions(const Conversions& conversions, PassKind pass, int after_step,
                              Seconds kernel) {
  // What one of unequal ranks hides another may not: their steps are compared one by one.
  const bool has_uneven_shares = !context_.layout.tensor_shares.empty();
  int previous = after_step;
  for (const MergedConversion& merged : conversions.steps) {
    Step step = collective(conversions.name, merged,
                           sent_bytes(conversions, merged, context_.precision), pass);
    const bool rides = rides_ring(conversions, merged);
    step.in_hops =
        rides && (!context_.execution.gathered_ring || merged.kind == CommKind::ReduceScatter);
    if (context_.execution.gathered_ring && rides) {
      gather_round_ring(step, kernel);
    } else if (streams_pieces(context_, conversions, merged)) {
      step.time = streamed_excess(kernel, step.time, step.group.ranks);
    }
    if (step.time.value() <= 0 && !has_uneven_shares) {
      continue;
    }
    step.after = clean({previous});
    steps_.push_back(std::move(step));
    previous = last();
  }
  return previous;
}

int StepList::add_statistics(const models::Operator& op, const std::vector<Axis>& axes,
                             double elements, PassKind pass, const std::vector<int>& after) {
  MergedConversion merged{CommKind::AllReduce, {}, static_cast<std::int64_t>(elements), false};
  for (const Axis axis : axes) {
    if (context_.mesh.of(axis) > 1) {
      merged.axes.push_back(axis);
    }
  }
  if (merged.axes.empty()) {
    return -1;
  }
  Step step = collective(op.name, merged, 4.0, pass);
  step.after = clean(after);
  steps_.push_back(std::move(step));
  return last();
}

Step StepList::collective(std::string_view name, const MergedConversion& merged,
                          double bytes_per_element, PassKind pass) const {
  Step step;
  step.name = name;
  step.pass = pass;
  step.collective = true;
  step.comm = merged.kind;
  // Tokens on their way to experts are expert parallelism, whichever ranks hold those.
  step.axis = merged.routed ? Axis::Expert : axis_of(merged);
  for (const Axis axis : merged.axes) {
    step.axes = static_cast<std::uint8_t>(step.axes | (1U << static_cast<unsigned>(axis)));
  }
  step.bytes = Bytes(static_cast<double>(merged.elements) * bytes_per_element);
  if (merged.routed && merged.kind == CommKind::AllToAll) {
    // An exchange ends when the rank that gets most, or gives most back, has done so.
    step.bytes = step.bytes * context_.execution.routing_imbalance;
  }
  const RankNetwork network = network_of(merged);
  step.group = group_of(context_.mesh, merged.axes, network.gpus_per_node);
  step.cost_class = class_of(merged.kind, step.group);
  if (is_summa(context_.layout, step.axis) && merged.kind != CommKind::AllReduce) {
    step.pieces = step.group.ranks;
    step.time =
        broadcast_time(step.bytes / step.pieces, step.group) * static_cast<double>(step.pieces);
  } else if (is_sent_once(step, context_.execution)) {
    step.time = routed_time(step, *network.collectives) + token_time(merged);
  } else {
    step.time = network.collectives->time(merged.kind, step.bytes, step.group);
  }
  return step;
}

RankNetwork StepList::network_of(const MergedConversion& merged) const {
  const bool crosses =
      context_.experts.collectives != nullptr &&
      std::find(merged.axes.begin(), merged.axes.end(), Axis::Expert) != merged.axes.end();
  return crosses ? context_.experts : RankNetwork{&context_.collectives, context_.gpus_per_node};
}

bool is_sent_once(const Step& step, const Execution& execution) {
  return step.comm == CommKind::AllToAll && is_routed(step) &&
         dispatcher_facts(execution).once_a_rank;
}

Seconds StepList::token_time(const MergedConversion& merged) const {
  const models::Block& block = context_.block;
  const Seconds token = dispatcher_facts(context_.execution).token_time;
  if (token == Seconds() || block.input < 0) {
    return {};
  }
  const auto hidden = static_cast<double>(tensor_at(block, block.input).dims.back().extent);
  const auto copies = static_cast<double>(std::max<std::int64_t>(1, block.top_k));
  const double tokens = static_cast<double>(merged.elements) / (hidden * copies);
  return token * (tokens * context_.execution.routing_imbalance);
}

// The copies inside a node, one for each rank that has experts of the token, travel while others
// cross.
Seconds StepList::routed_time(const Step& step,
                              const costmodel::CollectiveModel& collectives) const {
  const costmodel::GroupShape& group = step.group;
  const Bytes once = step.bytes * crossing_share(context_.block, group.ranks);
  if (group.nodes < 2) {
    return collectives.time(CommKind::AllToAll, once, group);
  }
  const Seconds across = collectives.time(
      CommKind::AllToAll, step.bytes * crossing_share(context_.block, group.nodes), group);
  costmodel::GroupShape inside = group;
  inside.ranks = group.ranks_per_node;
  inside.nodes = 1;
  return std::max(across, collectives.time(CommKind::AllToAll, once, inside));
}

// A binomial tree doubles the holders of the piece in every round, nodes first: ceil(log2 nodes)
// rounds in which each group on a node sends one message across, then ceil(log2 ranks of a node)
// inside. Reductions go the same way back.
Seconds StepList::broadcast_time(Bytes piece, const costmodel::GroupShape& group) const {
  if (context_.layout.broadcasts == Broadcasts::Pipelined) {
    return context_.collectives.time(CommKind::Broadcast, piece, group);
  }
  const auto rounds = [](int holders) {
    return static_cast<double>(std::bit_width(static_cast<unsigned>(std::max(1, holders) - 1)));
  };
  const Seconds inside = context_.collectives.send_receive(piece, true, 1);
  if (group.nodes < 2) {
    return inside * rounds(group.ranks);
  }
  const Seconds across = context_.collectives.send_receive(piece, false, group.groups_per_node,
                                                           std::max(1, group.node_stride));
  return across * rounds(group.nodes) + inside * rounds(group.ranks_per_node);
}

// One gather that hides under the first of n parts (pytorch/pytorch, distributed/tensor/
// experimental/_attention.py, _AllGatherRotater), or n messages of gradients in fp32, a part of the
// keys each, that hide under the part after (the same file, dkv_rotater): the last hides under
// none.
void StepList::gather_round_ring(Step& step, Seconds kernel) const {
  const double parts = step.group.ranks;
  const Seconds part = context_.execution.overlap_context ? kernel / parts : Seconds();
  if (step.comm != CommKind::ReduceScatter) {
    step.time = std::max(Seconds(), step.time - part);
    return;
  }
  const costmodel::GroupShape& group = step.group;
  const double widened = 4.0 / element_bytes(models::Element::Compute, context_.precision);
  const Bytes message = step.bytes * widened / parts;
  // Every group of a node sends one message to the next node.
  const Seconds time = context_.collectives.send_receive(
      message, group.nodes < 2, group.groups_per_node, std::max(1, group.node_stride));
  step.comm = CommKind::SendReceive;
  step.bytes = message * parts;
  step.time = time + std::max(Seconds(), time - part) * (parts - 1);
}

void StepList::hide_pieces(int first, Seconds kernel) {
  Seconds piece;
  int pieces = 1;
  const auto is_streamed = [](const Step& step) { return step.collective && step.pieces > 1; };
  for (auto index = static_cast<std::size_t>(first); index < steps_.size(); ++index) {
    if (is_streamed(steps_[index])) {
      piece += steps_[index].time / steps_[index].pieces;
      pieces = std::max(pieces, steps_[index].pieces);
    }
  }
  if (pieces == 1) {
    return;
  }
  const Seconds share = kernel / static_cast<double>(pieces);
  const Seconds excess =
      piece + std::max(share, piece) * static_cast<double>(pieces - 1) + share - kernel;
  for (auto index = static_cast<std::size_t>(first); index < steps_.size(); ++index) {
    if (is_streamed(steps_[index])) {
      steps_[index].time =
          excess * (steps_[index].time.value() / steps_[index].pieces / piece.value());
    }
  }
}

}  // namespace orrery::plan
