// SPDX-License-Identifier: Apache-2.0
// Cross-validation: a fifth of the samples is left out in turn.
#pragma once

#include <cstddef>
#include <functional>

#include "calibrate/fit/kernel_points.hpp"
#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

inline constexpr std::size_t kFolds = 5;

// Seconds that a fit predicts of a point.
using Predict = std::function<double(const KernelPointOf& point)>;

// Seconds of each point by a fit without its fold, as `tell` is called with them.
void predict_left_out(const KernelPoints& points,
                      const std::function<Predict(const KernelPoints& kept)>& fit_to,
                      const std::function<void(const KernelPointOf& point, double seconds)>& tell);

// What each fold takes by a fit to the others: the errors of fit.profile's kernels, and its points
// in fit.left_out.
void test_in_folds(const KernelPoints& points,
                   const std::function<Predict(const KernelPoints& kept)>& fit_to, KernelFit& fit);

}  // namespace orrery::calibrate
