// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/math.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Dim;
using models::Operator;
using models::OpKind;
using models::Tensor;
using sim::CommKind;

// KvHead shards together with Head.
Var canonical(Var var) { return var == Var::KvHead ? Var::Head : var; }

// Variables as bits.
class VarBits {
 public:
  bool has(Var var) const { return (bits_ >> static_cast<unsigned>(canonical(var)) & 1U) != 0; }
  void add(Var var) { bits_ |= 1U << static_cast<unsigned>(canonical(var)); }
  void add(const Tensor& tensor) {
    for (const Dim& dim : tensor.dims) {
      add(dim.var);
    }
  }

 private:
  std::uint32_t bits_ = 0;
};
static_assert(models::kNumVars <= 32);

VarBits vars_of(const Tensor& tensor) {
  VarBits vars;
  vars.add(tensor);
  return vars;
}

// The variable along which an axis assigned to `var` shards a tensor with these, if it does.
std::optional<Var> sharded_along(const Tensor& tensor, VarBits vars, Var var) {
  if (vars.has(var)) {
    return var;
  }
  if (var == Var::Expert && tensor.kind == models::TensorKind::Activation &&
      vars.has(Var::Choice)) {
    return Var::Choice;
  }
  return std::nullopt;
}

// Keys and values are read at every key position, so their Seq is the operator's KeySeq.
bool read_at_all_positions(const Operator& op, int position) {
  return op.kind == OpKind::Attention && position > 0;
}

// Of a tensor, with `along` of its variables by the variable that an axis has; where it has none,
// `otherwise`.
template <typename Along>
Layout layout_by(const Assignment& assignment, Placement otherwise, const Along& along) {
  Layout layout;
  for (const Axis axis : kAxes) {
    if (const std::optional<Var> var = assignment[static_cast<std::size_t>(axis)]) {
      const std::optional<Var> shard = along(*var);
      layout.set(axis, shard ? Placement::sharded(*shard) : otherwise);
    }
  }
  return layout;
}

Layout layout_of_input(const Operator& op, const Tensor& tensor, int position,
                       const Assignment& assignment, Placement otherwise) {
  const VarBits vars = vars_of(tensor);
  const bool all_positions =
      tensor.kind == models::TensorKind::Activation && read_at_all_positions(op, position);
  return layout_by(assignment, otherwise, [&](Var var) -> std::optional<Var> {
    if (all_positions && (var == Var::Seq || var == Var::KeySeq)) {
      return var == Var::KeySeq ? sharded_along(tensor, vars, Var::Seq) : std::nullopt;
    }
    return sharded_along(tensor, vars, var);
  });
}

// The variables of all operands and those summed over, which an operator iterates over.
VarBits iteration_space(const Block& block, const Operator& op) {
  VarBits vars;
  for (const std::vector<int>* operands : {&op.inputs, &op.weights, &op.outputs}) {
    for (const int operand : *operands) {
      vars.add(block.tensors[static_cast<std::size_t>(operand)]);
    }
  }
  for (const Var var : op.reduced) {
    vars.add(var);
  }
  return vars;
}

bool works_on_copies(const Operator& op, VarBits space) {
  return op.kind != OpKind::Permute && op.kind != OpKind::Router && space.has(Var::Choice);
}

bool iterates_over(const Operator& op, VarBits space, Var var) {
  return (var == Var::Expert && works_on_copies(op, space)) || space.has(var);
}

}  // namespace

bool iterates_over(const Block& block, const Operator& op, Var var) {
  return iterates_over(op, iteration_space(block, op), var);
}

bool works_on_copies(const Block& block, const Operator& op) {
  return works_on_copies(op, iteration_space(block, op));
}

namespace {

bool cuts_tokens(Var var) { return var == Var::Batch || var == Var::Seq; }

// The embedding is a product with a one-hot matrix.
bool is_product(const Operator& op) { return models::is_gemm(op) || op.kind == OpKind::Embedding; }

}  // namespace

bool sums_over(const Operator& op, Var var) {
  return std::any_of(op.reduced.begin(), op.reduced.end(),
                     [var](Var reduced) { return canonical(reduced) == canonical(var); });
}

Assignment assign(const Block& block, const Operator& op, const AxisRules& rules) {
  const VarBits space = iteration_space(block, op);
  const bool on_copies = works_on_copies(op, space);
  Assignment assignment;
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    for (const Var var : rules.preference[axis]) {
      const bool summed = rules.outputs_only[axis] && is_product(op) && sums_over(op, var);
      const bool whole = rules.copies_experts[axis] && on_copies && !cuts_tokens(var);
      if (!summed && !whole && iterates_over(op, space, var)) {
        assignment[axis] = var;
        break;
      }
    }
  }
  return assignment;
}

Layout required_input(const Operator& op, const Tensor& tensor, int position,
                      const Assignment& assignment) {
  return layout_of_input(op, tensor, position, assignment, Placement::replicated());
}

Layout produced_output(const Operator& op, const Tensor& tensor, const Assignment& assignment) {
  (void)op;
  const VarBits vars = vars_of(tensor);
  return layout_by(assignment, Placement::partial(),
                   [&](Var var) { return sharded_along(tensor, vars, var); });
}

Layout produced_gradient(const Operator& op, const Tensor& tensor, int position,
                         const Assignment& assignment) {
  return layout_of_input(op, tensor, position, assignment, Placement::partial());
}

Layout stored_weight(const Operator& op, const Tensor& weight, const Assignment& assignment,
                     const AxisRules& rules) {
  Layout layout = required_input(op, weight, 0, assignment);
  const bool is_matrix = is_product(op)
                             ? std::any_of(weight.dims.begin(), weight.dims.end(),
                                           [&](const Dim& dim) { return sums_over(op, dim.var); })
                             : weight.dims.size() > 1;
  if (!is_matrix) {
    return layout;
  }
  for (const Axis axis : kAxes) {
    if (!rules.shards_weights[static_cast<std::size_t>(axis)] || layout[axis].is_sharded()) {
      continue;
    }
    Var along = weight.dims.back().var;
    for (const Dim& dim : weight.dims) {
      const bool taken = std::any_of(kAxes.begin(), kAxes.end(), [&](Axis other) {
        return layout[other].is_sharded() && canonical(layout[other].var()) == canonical(dim.var);
      });
      if (!taken) {
        along = dim.var;
        break;
      }
    }
    layout.set(axis, Placement::sharded(along));
  }
  return layout;
}

std::array<bool, kNumAxes> summed_axes(const Operator& op, const Tensor& weight,
                                       const Assignment& assignment, const AxisRules& rules,
                                       const Layout& read) {
  const Layout gradient = produced_gradient(op, weight, 0, assignment);
  const Layout stored = stored_weight(op, weight, assignment, rules);
  const auto is_reduced = [&](Var var) {
    return std::find(op.reduced.begin(), op.reduced.end(), var) != op.reduced.end();
  };
  const bool is_bias =
      !op.reduced.empty() && std::none_of(weight.dims.begin(), weight.dims.end(),
                                          [&](const Dim& dim) { return is_reduced(dim.var); });
  std::array<bool, kNumAxes> summed{};
  for (const Axis axis : kAxes) {
    const auto slot = static_cast<std::size_t>(axis);
    const bool after_sum =
        is_bias && assignment[slot] && is_reduced(*assignment[slot]) && !read[axis].is_sharded();
    summed[slot] = gradient[axis].is_partial() && !stored[axis].is_sharded() && !after_sum;
  }
  return summed;
}

Copies copies_of_heads(const Tensor& weight, const Layout& stored, const Mesh& mesh) {
  Copies copies;
  copies.fill(1);
  const auto heads = std::find_if(weight.dims.begin(), weight.dims.end(),
                                  [](const Dim& dim) { return dim.var == Var::KvHead; });
  if (heads == weight.dims.end() || !mesh.shares.empty()) {
    return copies;  // shares keep the query heads of a key and value head together
  }
  const auto cuts = [&](Axis axis) {
    return stored[axis].is_sharded() && canonical(stored[axis].var()) == Var::Head;
  };
  std::int64_t parts = 1;
  for (const Axis axis : kAxes) {
    parts *= cuts(axis) ? mesh.of(axis) : 1;
  }
  // The outermost axis is cut first, so that the innermost has the same heads.
  std::int64_t left = parts / std::min(parts, heads->extent);
  for (const Axis axis : kAxes) {
    if (cuts(axis)) {
      const std::int64_t here = std::gcd(left, std::int64_t{mesh.of(axis)});
      copies[static_cast<std::size_t>(axis)] = static_cast<int>(here);
      left /= here;
    }
  }
  return copies;
}

std::vector<Axis> statistics_axes(const Block& block, const Operator& op,
                                  const Assignment& assignment) {
  std::vector<Axis> axes;
  if (op.kind != OpKind::Norm) {
    return axes;
  }
  const VarBits scale = vars_of(block.tensors[static_cast<std::size_t>(op.weights.front())]);
  for (const Axis axis : kAxes) {
    const std::optional<Var> var = assignment[static_cast<std::size_t>(axis)];
    if (var && scale.has(*var)) {
      axes.push_back(axis);
    }
  }
  return axes;
}

std::int64_t local_extent(const Dim& dim, const Layout& layout, const Mesh& mesh,
                          const Extents& extents) {
  std::int64_t extent = dim.extent;
  if (extent == models::kFromWorkload) {
    const bool keys = dim.var == Var::KeySeq && extents.keys > 0;
    extent = dim.var == Var::Batch ? extents.batch : keys ? extents.keys : extents.sequence;
  }
  if (dim.scale != 1.0) {
    extent = std::max<std::int64_t>(1, std::llround(static_cast<double>(extent) * dim.scale));
  }
  std::int64_t parts = 1;
  for (const Axis axis : kAxes) {
    const Placement placement = layout[axis];
    if (!placement.is_sharded() || placement.var() == Var::Choice ||
        canonical(placement.var()) != canonical(dim.var)) {
      continue;
    }
    if (axis == Axis::Tensor && !mesh.shares.empty() && is_cut_by_shares(dim.var)) {
      extent = share_extent(mesh.shares, mesh.tensor_rank, dim, extent);
    } else {
      parts *= mesh.of(axis);
    }
  }
  return ceil_div(extent, parts);
}

std::int64_t local_elements(const Tensor& tensor, const Layout& layout, const Mesh& mesh,
                            const Extents& extents) {
  std::int64_t elements = 1;
  for (const Dim& dim : tensor.dims) {
    elements *= local_extent(dim, layout, mesh, extents);
  }
  return ceil_div(elements, copy_shards(layout, mesh));
}

std::int64_t copy_shards(const Layout& layout, const Mesh& mesh) {
  std::int64_t shards = 1;
  for (const Axis axis : kAxes) {
    if (layout[axis].is_sharded() && layout[axis].var() == Var::Choice) {
      shards *= mesh.of(axis);
    }
  }
  return shards;
}

std::int64_t collective_elements(const Tensor& tensor, const Conversion& conversion,
                                 const Mesh& mesh, const Extents& extents) {
  // All-to-all moves the local shard, or what becomes of it where every head goes to several ranks;
  // the others are named by the unsharded side.
  if (conversion.kind == CommKind::AllToAll) {
    return std::max(local_elements(tensor, conversion.before, mesh, extents),
                    local_elements(tensor, conversion.after, mesh, extents));
  }
  const bool unsharded_after = conversion.kind == CommKind::AllGather;
  const Layout& layout = unsharded_after ? conversion.after : conversion.before;
  return local_elements(tensor, layout, mesh, extents);
}

}  // namespace orrery::plan
