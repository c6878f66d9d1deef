// SPDX-License-Identifier: Apache-2.0
// A frontier (search/pareto.hpp) as a picture: iteration time over memory, GPUs or price, a step
// for every point, since what costs more can do what costs less; plans by number below.
#pragma once

#include <string>

#include "search/pareto.hpp"

namespace orrery::studies {

std::string pareto_svg(const search::ParetoFrontier& frontier);

}  // namespace orrery::studies
