// SPDX-License-Identifier: Apache-2.0
// What the picture of a sweep says of all its points and of one.
#pragma once

#include <cstddef>
#include <string>

#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {

// What the points share, as far as the document says it: "llama3-8b on hgx-h100:1, batch 64".
std::string subject_of(const Sweep& sweep);

// Lines of XML text, for who points at a point.
std::string hover_text(const Sweep& sweep, std::size_t index, const SweepPoint& point);

// Its throughput, or why there is none.
std::string cell_label(const SweepPoint& point);

}  // namespace orrery::studies
