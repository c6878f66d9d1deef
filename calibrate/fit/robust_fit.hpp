// SPDX-License-Identifier: Apache-2.0
// Robust least squares: Levenberg-Marquardt (Eigen) with numeric derivatives and Huber weights, so
// that a few points the formula cannot describe do not pull it. Deterministic.
#pragma once

#include <functional>
#include <vector>

namespace orrery::calibrate {

// A positive parameter within bounds; the fit works on its logarithm.
struct FitParameter {
  double start = 1;
  double min = 0;
  double max = 0;
};

// Minimises the Huber loss of the residuals (width `huber`) over the parameters and returns them.
// `residuals` gives as many values each time.
std::vector<double> robust_fit(
    const std::vector<FitParameter>& parameters,
    const std::function<std::vector<double>(const std::vector<double>&)>& residuals,
    double huber = 0.05);

}  // namespace orrery::calibrate
