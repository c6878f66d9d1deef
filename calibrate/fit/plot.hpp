// SPDX-License-Identifier: Apache-2.0
// Measured against fitted times as an SVG picture: both axes logarithmic, the diagonal and 10 % to
// each side, one colour for each class of kernel. Deterministic text; points that would cover one
// another within a pixel are drawn once.
#pragma once

#include <span>
#include <string>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

std::string fit_plot(std::span<const LeftOut> points, const std::string& title);

}  // namespace orrery::calibrate
