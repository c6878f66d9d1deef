// SPDX-License-Identifier: Apache-2.0
// Which measured kernels take part in an interpolated surface. Interpolation follows every point,
// so one time that was disturbed (or taken in another mode of the library) spoils all shapes around
// it: in the fp8 table of B200 equal kernels differ by up to four times. A point that the others
// contradict is left out; errors still count it. Where a set is dense, a difference of
// kContradiction is one; in a smaller set a shape may stand for its surroundings alone, so that it
// takes a factor of two, and more where the others contradict each other, too. Of fewer than
// kFewestToContradict none is left out.
//
// Each eighth of the points is predicted from the rest, twice, so that what was found in the first
// pass speaks no more in the second. Deterministic, O(points) lookups.
#pragma once

#include <span>
#include <vector>

#include "costmodel/kernel_residuals.hpp"

namespace orrery::calibrate {

inline constexpr double kContradiction = 0.3;  // ln of the time
inline constexpr std::size_t kPointsOfDenseSet = 1000;
inline constexpr std::size_t kFewestToContradict = 24;

struct SurfacePoint {
  costmodel::KernelPoint point;
  double formula_s = 0;  // of the kernel
  double beside_s = 0;   // measured with it: casts
  double measured_s = 0;
};

// From which absolute deviation of the logarithm on one of few is contradicted by the others.
double contradiction_of_few(std::vector<double> absolute_deviations);

// `points` are sorted by sizes.
std::vector<costmodel::KernelPoint> consistent_points(const costmodel::ResidualKey& key,
                                                      std::span<const SurfacePoint> points,
                                                      int sms);

}  // namespace orrery::calibrate
