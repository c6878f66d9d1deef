// SPDX-License-Identifier: Apache-2.0
// Which of the inputs and weights that products gathered wait for the backward, and since when:
// both under BlockPlan::keep_gathered, inputs alone without Execution::regathers_inputs. What the
// lowering does not gather again, memory holds.
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

  // Whether any copy waits; O(1).
  static bool wait(const BlockContext& context) {
    return context.layout.keep_gathered || !context.execution.regathers_inputs;
  }

  GatheredCopy of_weights(std::size_t index) const {
    return weights_wait_ ? by_operator_[index] : GatheredCopy::Dropped;
  }
  // An input that is made anew is gathered anew, unless the product runs again itself.
  GatheredCopy of_input(std::size_t index, int tensor) const;

 private:
  bool weights_wait_;
  std::vector<GatheredCopy> by_operator_;
  std::vector<bool> made_anew_;  // by tensor, under Recompute::Operators
};

}  // namespace orrery::plan
