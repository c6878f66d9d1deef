// SPDX-License-Identifier: Apache-2.0
// Tables that time attention's forward and backward together (bars of figures): each pass gets the
// share of the time that the formula gives it, so that both have the same error against it.
#pragma once

#include <vector>

#include "calibrate/fit/kernel_points.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// Two points for each of `points` that times both passes, in its order, `slower` times as long as
// stated; none for others. `formula` holds the rates of both passes and no residuals.
std::vector<KernelPointOf> passes_apart(const topologies::Gpu& gpu,
                                        const costmodel::Profile& formula,
                                        const std::vector<const KernelPointOf*>& points,
                                        double slower);

// How much slower 16-bit products (TN) are under sustained load than in bursts, in the median of
// what was measured; 1 where nothing was.
double slower_when_sustained(const std::vector<costmodel::ResidualSet>& sets);

// `points` of one kernel each and `apart`, in the order of points. A shape whose passes were timed
// by themselves stands for itself.
std::vector<const KernelPointOf*> each_pass(const std::vector<const KernelPointOf*>& points,
                                            const std::vector<KernelPointOf>& apart);

}  // namespace orrery::calibrate
