// SPDX-License-Identifier: Apache-2.0
// Which part of a dimension a rank holds where several axes cut it. Inputs and weights are cut by
// the outermost axis first; an axis that begins to cut a dimension later cuts what is left of it,
// whichever axis it is, as those that cut heads around attention alone do. So one layout may stand
// for different tokens on a rank, and tensors that an operator reads together, or the gradients of
// one tensor, must have been cut in one order.
#pragma once

#include <optional>
#include <string_view>

#include "plan/block/steps.hpp"

namespace orrery::plan {

struct CutConflict {
  std::string_view op;
  std::string_view tensor;  // cut in another order than what it meets there
  Var var;
};

// The first conflict of a block, forward, then backward; none where every operator finds the same
// parts. Copies of tokens are told apart by their experts instead and have no order.
// O(operators^2).
std::optional<CutConflict> find_cut_conflict(const models::Block& block, const BlockRules& rules,
                                             const Mesh& mesh);

}  // namespace orrery::plan
