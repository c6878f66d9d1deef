// SPDX-License-Identifier: Apache-2.0
// The error of a fit as an SVG picture: predicted over measured time against the measured one, both
// axes logarithmic, 10 % to each side shaded, one colour for each class of kernel, the classes with
// few points on top. Points beyond a factor of three are drawn at the edge. Deterministic text;
// points of a class that would cover one another within a pixel are drawn once.
#pragma once

#include <span>
#include <string>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

// `points`: positive times in seconds; none gives an empty frame.
std::string fit_plot(std::span<const LeftOut> points, const std::string& title);

}  // namespace orrery::calibrate
