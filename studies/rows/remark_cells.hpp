// SPDX-License-Identifier: Apache-2.0
// What remarks state of cells that are blank.
#pragma once

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Recomputation ("gradient_checkpointing=True"), the attention kernel ("FA3") and the stage of ZeRO
// ("ZeRO-2"); each is listed among the row's remarks.
void read_stated_cells(Measurement& row);

}  // namespace orrery::studies
