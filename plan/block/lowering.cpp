// SPDX-License-Identifier: Apache-2.0
#include "plan/block/lowering.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/block/eager_kernels.hpp"
#include "plan/block/kept.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/quantised_casts.hpp"

namespace orrery::plan {

using models::Block;
using models::Operator;
using models::OpKind;
using models::Tensor;
using sim::CommKind;
using sim::PassKind;

std::vector<std::size_t> execution_order(const Block& block, bool hoist_shared_experts) {
  std::vector<std::size_t> order;
  std::vector<std::size_t> shared;
  for (std::size_t index = 0; index < block.operators.size(); ++index) {
    const bool is_shared = block.operators[index].role == models::OpRole::SharedExpert;
    (hoist_shared_experts && is_shared ? shared : order).push_back(index);
  }
  if (shared.empty()) {
    return order;
  }
  // Up and activation while tokens are dispatched, down while they return.
  const auto before = [&](const auto& is_it, std::size_t first, std::size_t last) {
    const auto at = std::find_if(order.begin(), order.end(),
                                 [&](std::size_t index) { return is_it(block.operators[index]); });
    order.insert(at, shared.begin() + static_cast<std::ptrdiff_t>(first),
                 shared.begin() + static_cast<std::ptrdiff_t>(last));
  };
  const auto up = [](const Operator& op) { return op.kind == OpKind::GroupedGemm; };
  const auto combine = [](const Operator& op) {
    return op.kind == OpKind::Permute && !op.reduced.empty();
  };
  const auto activation = std::find_if(shared.begin(), shared.end(), [&](std::size_t index) {
    const Operator& op = block.operators[index];
    return op.kind == OpKind::Elementwise && !op.pointwise;
  });
  const auto first_half = static_cast<std::size_t>(activation - shared.begin()) + 1;
  before(up, 0, first_half);
  before(combine, first_half, shared.size());
  return order;
}

namespace {

// Ranks that whole experts are spread over, whatever gives an axis that variable.
int expert_ranks(const BlockContext& context, const BlockRules& rules) {
  const std::vector<Operator>& operators = context.block.operators;
  const auto experts = std::find_if(operators.begin(), operators.end(), [](const Operator& op) {
    return op.kind == OpKind::GroupedGemm;
  });
  if (experts == operators.end()) {
    return 1;
  }
  const Assignment assignment = assign(context.block, *experts, rules.of(*experts));
  int ranks = 1;
  for (const Axis axis : kAxes) {
    const bool spreads = assignment[static_cast<std::size_t>(axis)] == models::Var::Expert;
    ranks *= spreads ? context.mesh.of(axis) : 1;
  }
  return ranks;
}

int summa_pieces(const BlockContext& context) {
  return is_summa(context.layout, Axis::Tensor)
             ? std::max(context.mesh.of(Axis::Tensor), context.mesh.of(Axis::TensorRow))
             : 1;
}

}  // namespace

Lowering::Lowering(const BlockContext& context)
    : context_(context),
      block_(context.block),
      rules_(rules_of(context)),
      produced_(produced_layouts(block_, rules_)),
      order_(execution_order(block_, context.execution.overlap_shared_experts)),
      joint_(block_.tensors.size()),
      copies_(context) {
  const ContextParallel kind = context.layout.context;
  const KernelContext kernels{context.device,
                              context.execution,
                              context.precision,
                              context.mesh,
                              context.extents,
                              context.layout.sequence_parallel,
                              kind == ContextParallel::Ring || kind == ContextParallel::Mix,
                              context.layout.zigzag,
                              context.slice,
                              summa_pieces(context),
                              context.packed,
                              context.layout.recompute == Recompute::Products,
                              expert_ranks(context, rules_),
                              context.forward_only,
                              reruns_norms(block_, context.layout, context.execution)};
  for (const Operator& op : block_.operators) {
    assignments_.push_back(assign(block_, op, rules_.of(op)));
    costs_.push_back(operator_cost(block_, op, assignments_.back(), kernels));
    std::vector<int> partial;
    for (const int output : op.outputs) {
      const bool is_partial = std::any_of(kAxes.begin(), kAxes.end(), [&](Axis axis) {
        return produced_[slot_of(output)][axis].is_partial() && context.mesh.of(axis) > 1;
      });
      if (is_partial && is_read(output)) {
        partial.push_back(output);
      }
    }
    for (const int output : partial) {
      joint_[slot_of(output)] = partial.size() > 1 ? partial : std::vector<int>{};
    }
  }
}

void Lowering::forward(std::vector<Step>& steps, PassKind pass, Part part) const {
  StepList list(context_, steps);
  const bool attention_core_only = part == Part::AttentionCore;
  const bool some = attention_core_only || part == Part::Chosen;
  const auto kept = part == Part::NotKept ? kept_products(context_) : std::vector<int>{};
  const OperatorReplay chosen = part == Part::Chosen ? replay_of(context_) : OperatorReplay();
  std::vector<int> ready(block_.tensors.size(), -1);  // step that produces the tensor
  std::vector<Converted> converted;
  for (const std::size_t index : order_) {
    const Operator& op = block_.operators[index];
    if ((attention_core_only && !op.attention_core) ||
        (part == Part::Chosen && !chosen.runs[index])) {
      continue;
    }
    const auto num_kept = std::count_if(op.outputs.begin(), op.outputs.end(), [&](int output) {
      return std::ranges::find(kept, output) != kept.end();
    });
    // Of products that run as one kernel here, those that were kept do not run again.
    const auto outputs = static_cast<double>(std::max<std::size_t>(1, op.outputs.size()));
    const double share = 1.0 - static_cast<double>(num_kept) / outputs;
    if (share == 0) {
      continue;
    }
    const int first = list.size();
    std::vector<int> after;
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const int tensor = op.inputs[position];
      after.push_back(converted_input(list, converted, tensor, required(index, position), pass,
                                      costs_[index].forward.time * streamed_share(op), ready));
    }
    after.push_back(convert_weights(list, index, CommKind::AllGather, pass, list.last()));
    after.push_back(add_statistics(list, index, pass, after));
    KernelCost cost = costs_[index].forward;
    cost.time = cost.time * share;
    cost.flops = cost.flops * share;
    const int step = list.add_kernel(op, pass, cost, std::move(after));
    if (context_.execution.overlap_tp) {
      list.hide_pieces(first, cost.time);
    }
    for (const int output : op.outputs) {
      ready[slot_of(output)] = step;
    }
    if (!some) {
      reduce_results(list, op, pass, step);
    }
  }
  if (!some && block_.output >= 0) {
    const std::size_t output = slot_of(block_.output);
    const Layout to = stream_layout(rules_);
    list.add_conversion(block_.tensors[output], found(block_.output, to, pass), to, pass,
                        ready[output], Seconds());
  }
}

// As what a reader finds a tensor: as it was produced, or, when per-operator checkpointing runs it
// again, as what was communicated on its way, which is kept (saved_activations).
Layout Lowering::found(int tensor, const Layout& to, PassKind pass) const {
  const Layout& produced = produced_[slot_of(tensor)];
  const bool kept = pass == PassKind::Recompute && context_.layout.recompute == Recompute::Products;
  return kept && is_moved(produced, to, context_.mesh) ? kept_layout(produced, to) : produced;
}

// Partial results that no operator of the network reads (the loss) are summed at once.
void Lowering::reduce_results(StepList& list, const Operator& op, PassKind pass, int step) const {
  for (const int output : op.outputs) {
    const std::size_t slot = slot_of(output);
    if (output == block_.output || is_read(output)) {
      continue;
    }
    list.add_conversion(block_.tensors[slot], produced_[slot], gradient_of(produced_[slot]), pass,
                        step, Seconds());
  }
}

bool Lowering::is_read(int tensor) const {
  return std::any_of(
      block_.operators.begin(), block_.operators.end(), [tensor](const Operator& op) {
        return std::find(op.inputs.begin(), op.inputs.end(), tensor) != op.inputs.end();
      });
}

Layout Lowering::required(std::size_t index, std::size_t position) const {
  return needed_input(block_, block_.operators[index], position, assignments_[index], rules_,
                      produced_);
}

Lowering::Use Lowering::first_use(int tensor) const {
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    const std::vector<int>& inputs = block_.operators[index].inputs;
    const auto found = std::find(inputs.begin(), inputs.end(), tensor);
    if (found != inputs.end()) {
      return {index, static_cast<std::size_t>(found - inputs.begin())};
    }
  }
  ORRERY_CHECK(false, "no operator reads " + tensor_of(tensor).name);
}

Conversions Lowering::conversions_of(int tensor, const Layout& from, const Layout& to) const {
  return plan::conversions_of(context_, tensor_of(tensor), from, to);
}

// Converts an input once per target layout; operators that need the same one share it.
int Lowering::converted_input(StepList& list, std::vector<Converted>& converted, int tensor,
                              const Layout& to, PassKind pass, Seconds kernel,
                              const std::vector<int>& ready) const {
  for (const Converted& known : converted) {
    if (known.tensor == tensor && known.to == to) {
      return known.step;
    }
  }
  const int before = ready[slot_of(tensor)];
  const std::vector<int>& joint = joint_outputs(tensor);
  if (joint.empty()) {
    const int step =
        list.add_conversion(tensor_of(tensor), found(tensor, to, pass), to, pass, before, kernel);
    converted.push_back({tensor, to, step});
    return step;
  }
  Conversions all;
  std::vector<Converted> results;
  for (const int output : joint) {
    const Use use = first_use(output);
    const Layout needed = output == tensor ? to : required(use.index, use.position);
    all.join(conversions_of(output, found(output, needed, pass), needed));
    results.push_back({output, needed, 0});
  }
  const int step = list.add_conversions(all, pass, before, kernel);
  for (Converted& result : results) {
    result.step = step;
    converted.push_back(result);
  }
  return step;
}

int Lowering::convert_weights(StepList& list, std::size_t index, CommKind kind, PassKind pass,
                              int after) const {
  const Operator& op = block_.operators[index];
  if (op.weights.empty() || !rules_.shards_weights()) {
    return -1;
  }
  Conversions all;
  for (const int weight : op.weights) {
    const Tensor& tensor = tensor_of(weight);
    Conversions one =
        conversions_of(weight, stored_weight(op, tensor, assignments_[index], rules_.of(op)),
                       required_input(op, tensor, 0, assignments_[index]));
    for (MergedConversion& step : one.steps) {
      step.kind = kind;
    }
    if (kind == CommKind::ReduceScatter) {
      one.bytes_per_element = context_.gradient_bytes();
    }
    all.join(one);
  }
  return list.add_conversions(all, pass, after, Seconds());
}

int Lowering::add_statistics(StepList& list, std::size_t index, PassKind pass,
                             const std::vector<int>& after) const {
  const Operator& op = block_.operators[index];
  const std::vector<Axis> axes = statistics_axes(block_, op, assignments_[index]);
  if (axes.empty()) {
    return -1;
  }
  const Tensor& input = tensor_of(op.inputs.front());
  const Layout layout = required(index, 0);
  double rows = 1;
  for (std::size_t dim = 0; dim + 1 < input.dims.size(); ++dim) {
    rows *=
        static_cast<double>(local_extent(input.dims[dim], layout, context_.mesh, context_.extents));
  }
  return list.add_statistics(op, axes, rows * static_cast<double>(op.weights.size()), pass, after);
}

}  // namespace orrery::plan
