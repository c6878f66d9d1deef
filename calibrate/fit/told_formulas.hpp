// SPDX-License-Identifier: Apache-2.0
// Which formulas points tell the parameters of. Decided once, on all points: the folds of the
// cross-validation then test the fit that is made, also where a fold leaves fewer than a formula
// would ask for.
#pragma once

#include <array>

#include "calibrate/fit/kernel_points.hpp"

namespace orrery::calibrate {

// Products of one format, forward and in bursts.
KernelPoints forward_bursts(const KernelPoints& points, DType dtype);

// One pass of attention, timed by itself, in the format that most points have.
KernelPoints attention_points(const KernelPoints& points, costmodel::KernelKind pass,
                              costmodel::Load load);

class ToldFormulas {
 public:
  explicit ToldFormulas(const KernelPoints& all);
  bool product(DType dtype) const { return products_[static_cast<std::size_t>(dtype)]; }
  bool attention() const { return attention_; }

 private:
  std::array<bool, kNumDTypes> products_{};
  bool attention_ = false;
};

}  // namespace orrery::calibrate
