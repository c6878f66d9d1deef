// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "calibrate/fit/anchors.hpp"
#include "calibrate/fit/kernel_points.hpp"
#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

// The base's residual sets of families that have no points, on formulas that are still the base's,
// and the errors of what was not measured again.
void keep_unmeasured(const costmodel::Profile& base, const KernelPoints& points,
                     const Anchors& anchors, KernelFit& fit);

}  // namespace orrery::calibrate
