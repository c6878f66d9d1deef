// SPDX-License-Identifier: Apache-2.0
// A body without overlap (sim/orders/periodic_body.hpp): all blocks of a micro-batch before the
// next one.
#pragma once

#include "sim/orders/body_facts.hpp"
#include "sim/orders/periodic_body.hpp"

namespace orrery::sim {

// Gives the body starts and period, one block after the other, where an order of them fits the
// memory: as they are listed, or any other.
bool fits_in_series(const BodyFacts& facts, PeriodicBody& body);

}  // namespace orrery::sim
