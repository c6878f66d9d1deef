// SPDX-License-Identifier: Apache-2.0
// What the backward of a block finds under recomputation by operators, and what runs again. Of a
// slice keys and values stay whatever makes them, as later slices read them.
#pragma once

#include <vector>

#include "plan/block/steps.hpp"

namespace orrery::plan {

// Of a slice the tensors that attention reads as keys and values, as that of later slices does.
std::vector<int> read_by_later_slices(const BlockContext& context);

// Tensors that per-operator checkpointing keeps (Recompute::Products): the output of the attention
// core and of the first, third, ... product of two matrices (pytorch/torchtitan, _save_list). An
// fp8 product counts, too: torchao's linear is aten.mm of tensors that hold fp8. Of a slice what
// later ones read, too.
std::vector<int> kept_products(const BlockContext& context);

// Whether per-operator checkpointing keeps of a product what its reduction gives, in its place: on
// a mesh both are one function (Colossal-AI legacy/nn/layer/parallel_3d/_operation.py,
// Matmul_AB_3D), in one dimension two operators, whose results are kept both (torchtitan's
// _save_list).
bool keeps_reduced_alone(const BlockContext& context, int tensor);

// What the backward of a block finds when the operators of a set are recomputed: a tensor is needed
// when an operator keeps it for its backward or a recomputed operator reads it; it is kept when it
// is needed and nothing recomputes it. Operators whose results nobody needs are not run again.
struct OperatorReplay {
  std::vector<bool> runs;   // by operator
  std::vector<bool> kept;   // by tensor
  std::vector<bool> loses;  // by operator: what it keeps for itself is dropped
};
// Under Recompute::Operators; otherwise everything is kept and nothing runs.
OperatorReplay replay_of(const BlockContext& context);

// By operator: whether the backward runs it again, under any recomputation. Of a product that makes
// several outputs as soon as one of them was not kept.
std::vector<bool> runs_again(const BlockContext& context);
// By operator: the share of it that does, in outputs; those that were kept are not made again.
std::vector<double> shares_run_again(const BlockContext& context);

}  // namespace orrery::plan
