// SPDX-License-Identifier: Apache-2.0
// Layouts of the tensors of a block and the collectives between them.
#include <algorithm>

#include "plan/block/steps.hpp"

namespace orrery::plan {

using models::Block;
using models::Operator;
using models::OpKind;
using models::Tensor;

namespace {

// Inputs of the network and of the block arrive as the residual stream does. Token ids, which the
// loader hands to every tensor rank, are whole there whatever the stream is cut into.
Layout arriving_layout(const Tensor& tensor, const Layout& stream) {
  Layout layout = stream;
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    const Placement placement = stream[static_cast<Axis>(axis)];
    const bool has = placement.is_sharded() && std::any_of(tensor.dims.begin(), tensor.dims.end(),
                                                           [&](const models::Dim& dim) {
                                                             return dim.var == placement.var();
                                                           });
    const bool ids =
        tensor.element == models::Element::Int64 && is_tensor_axis(static_cast<Axis>(axis));
    if (!has || ids) {
      layout.set(static_cast<Axis>(axis), Placement::replicated());
    }
  }
  return layout;
}

// Inputs that an operator adds up, whatever it weighs them with: all of an addition or a scaling,
// of a combination the copies that it sums over.
std::size_t num_added(const Operator& op) {
  const bool adds = op.kind == OpKind::Elementwise && op.pointwise && op.saved.empty() &&
                    op.weights.empty() && op.role != models::OpRole::Rotary;
  const bool combines = op.kind == OpKind::Permute && !op.reduced.empty();
  return adds ? op.inputs.size() : combines ? 1 : 0;
}

// Where ranks along an axis have parts of what an operator adds up, as `parts` says, their results
// are parts of its output. Replicated: it needs the axis as its assignment says.
Placement passed_parts(const Operator& op, Axis axis, const Assignment& assignment,
                       const std::vector<Layout>& produced) {
  const std::size_t added = num_added(op);
  if (added == 0 || assignment[static_cast<std::size_t>(axis)]) {
    return Placement::replicated();
  }
  const auto of = [&](int tensor) { return produced[static_cast<std::size_t>(tensor)][axis]; };
  const Placement parts = of(op.inputs.front());
  const bool all =
      std::all_of(op.inputs.begin(), op.inputs.begin() + static_cast<std::ptrdiff_t>(added),
                  [&](int tensor) { return of(tensor) == parts; });
  const bool summed = parts.is_partial() || (parts.is_sharded() && sums_over(op, parts.var()));
  return all && summed ? parts : Placement::replicated();
}

}  // namespace

BlockRules rules_of(const BlockContext& context) {
  BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  rules.passes_sums = context.forward_only;
  return rules;
}

Layout needed_input(const Block& block, const Operator& op, std::size_t position,
                    const Assignment& assignment, const BlockRules& rules,
                    const std::vector<Layout>& produced) {
  const Tensor& tensor = block.tensors[static_cast<std::size_t>(op.inputs[position])];
  Layout layout = required_input(op, tensor, static_cast<int>(position), assignment);
  if (!rules.passes_sums) {
    return layout;
  }
  for (const Axis axis : kAxes) {
    const Placement parts = passed_parts(op, axis, assignment, produced);
    const bool has =
        parts.is_sharded()
            ? std::any_of(tensor.dims.begin(), tensor.dims.end(),
                          [&](const models::Dim& dim) { return dim.var == parts.var(); })
            : parts.is_partial() && position < num_added(op);
    if (has) {
      layout.set(axis, parts);
    }
  }
  return layout;
}

std::vector<Layout> produced_layouts(const Block& block, const BlockRules& rules) {
  const Layout stream = stream_layout(rules);
  std::vector<Layout> layouts;
  for (const Tensor& tensor : block.tensors) {
    layouts.push_back(arriving_layout(tensor, stream));
  }
  for (const Operator& op : block.operators) {
    const Assignment assignment = assign(block, op, rules.of(op));
    for (const int output : op.outputs) {
      const auto slot = static_cast<std::size_t>(output);
      layouts[slot] = produced_output(op, block.tensors[slot], assignment);
      for (const Axis axis : kAxes) {
        if (rules.passes_sums && !passed_parts(op, axis, assignment, layouts).is_replicated()) {
          layouts[slot].set(axis, Placement::partial());
        }
      }
    }
  }
  return layouts;
}

Layout read_layout(const Block& block, const Operator& op, int weight, const BlockRules& rules) {
  // Of every output first the matrix, then the biases in the same order.
  const auto place = std::find(op.weights.begin(), op.weights.end(), weight) - op.weights.begin();
  const int output = op.outputs[static_cast<std::size_t>(place) % op.outputs.size()];
  for (const Operator& reader : block.operators) {
    const auto input = std::find(reader.inputs.begin(), reader.inputs.end(), output);
    if (input != reader.inputs.end()) {
      return required_input(reader, block.tensors[static_cast<std::size_t>(output)],
                            static_cast<int>(input - reader.inputs.begin()),
                            assign(block, reader, rules.of(reader)));
    }
  }
  return stream_layout(rules);
}

std::vector<MergedConversion> merged_conversions(const Tensor& tensor, const Layout& from,
                                                 const Layout& to, const Mesh& mesh,
                                                 const Extents& extents) {
  std::vector<MergedConversion> result;
  for (const Conversion& conversion : conversions(from, to)) {
    if (mesh.of(conversion.axis) == 1) {
      continue;
    }
    const std::int64_t elements = collective_elements(tensor, conversion, mesh, extents);
    const auto on_copies = [&](const Layout& layout) {
      const Placement placement = layout[conversion.axis];
      return placement.is_sharded() && placement.var() == Var::Choice;
    };
    const bool exchange = conversion.kind == sim::CommKind::AllToAll;
    const bool to_experts =
        exchange && on_copies(conversion.after) && !on_copies(conversion.before);
    const bool routed = exchange && (to_experts || on_copies(conversion.before));
    if (!result.empty() && result.back().kind == conversion.kind) {
      // A gather grows the buffer, a reduction starts from the largest one.
      result.back().elements = std::max(result.back().elements, elements);
      result.back().axes.push_back(conversion.axis);
    } else {
      result.push_back({conversion.kind, {conversion.axis}, elements, routed, to_experts});
    }
  }
  return result;
}

}  // namespace orrery::plan
