// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/rank_shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/block_rules.hpp"

namespace orrery::plan {

namespace {

using HeldDims = std::vector<std::pair<const models::Dim*, std::int64_t>>;

// The dimensions of a tensor that shares cut, each size of a variable once.
void add_cut_dims(const models::Tensor& tensor, const Layout& layout, const Mesh& mesh,
                  HeldDims& held) {
  for (const models::Dim& dim : tensor.dims) {
    const std::int64_t local = local_extent(dim, layout, mesh, {});
    const bool known = std::any_of(held.begin(), held.end(), [&](const auto& other) {
      return other.first->var == dim.var && other.first->extent == dim.extent;
    });
    if (is_cut_by_shares(dim.var) && layout[Axis::Tensor].is_sharded() && local < dim.extent &&
        !known) {
      held.emplace_back(&dim, local);
    }
  }
}

RankShare share_of(int rank, const BlockContext& context, const BlockRules& rules) {
  RankShare one{rank, context.mesh.shares.of(rank), {}, {}};
  Mesh mesh = context.mesh;
  mesh.tensor_rank = rank;
  HeldDims held;
  for (const models::Operator& op : context.block.operators) {
    const Assignment assignment = assign(context.block, op, rules.of(op));
    for (const int weight : op.weights) {
      const models::Tensor& tensor = context.block.tensors[static_cast<std::size_t>(weight)];
      const Layout layout = stored_weight(op, tensor, assignment, rules.of(op));
      one.weights += ByteCount(local_elements(tensor, layout, mesh, {})) *
                     element_bytes(tensor.element, context.precision);
      add_cut_dims(tensor, layout, mesh, held);
    }
  }
  for (const auto& [dim, local] : held) {
    one.holds += fmt::format("{}{} {} of {}", one.holds.empty() ? "" : ", ", to_text(dim->var),
                             local, dim->extent);
  }
  return one;
}

}  // namespace

std::vector<RankShare> rank_shares(const BlockContext& context) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  std::vector<RankShare> shares;
  for (int rank = 0; rank < context.mesh.shares.ranks(); ++rank) {
    shares.push_back(share_of(rank, context, rules));
  }
  return shares;
}

}  // namespace orrery::plan
