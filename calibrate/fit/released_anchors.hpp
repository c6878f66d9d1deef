// SPDX-License-Identifier: Apache-2.0
// Which dense tables of the base stay below points of one's own: those that predict left-out points
// no worse than a fit to the points alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/fit/anchors.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/kernel_fitter.hpp"

namespace orrery::calibrate {

// Predictions by fits to parts of the points. Refers to its arguments.
std::function<Predict(const KernelPoints& kept)> fits_of(const KernelFitter& fitter,
                                                         const Anchors& anchors);

// Lets go of the anchors where a fit to the points alone predicts left-out ones clearly better:
// these kernels are not those of the table. What went is said.
void release_anchors(const KernelFitter& fitter, const KernelPoints& points, Anchors& anchors,
                     std::vector<std::string>& remarks);

}  // namespace orrery::calibrate
