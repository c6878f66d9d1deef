// SPDX-License-Identifier: Apache-2.0
// Which of the inputs and weights that products gathered wait for the backward, and since when
// (BlockPlan::keep_gathered). What the lowering does not gather again, memory holds.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/block/steps.hpp"

namespace orrery::plan {

enum class GatheredCopy : std::uint8_t {
  Dropped,      // the backward gathers again
  FromForward,  // held between the passes
  FromReplay,   // made by the recomputation, held to the backward of its operator
};

// By operator; O(operators) to make.
class GatheredCopies {
 public:
  explicit GatheredCopies(const BlockContext& context);

  GatheredCopy of_weights(std::size_t index) const { return by_operator_[index]; }
  // An input that is made anew is gathered anew, unless the product runs again itself.
  GatheredCopy of_input(std::size_t index, int tensor) const;

 private:
  std::vector<GatheredCopy> by_operator_;
  std::vector<bool> made_anew_;  // by tensor, under Recompute::Operators
};

}  // namespace orrery::plan
