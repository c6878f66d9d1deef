// SPDX-License-Identifier: Apache-2.0
// Measurements on nodes of different GPUs: "mixed: nodes 2xRTX-2080+1xRTX-3090" in the column of
// the GPU, and in the notes "nodes in stage order: RTX-3090 | RTX-2080+RTX-2080", by stage the
// nodes of its replicas. A replica of a stage fills a node.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "studies/rows/measurement.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::studies {

bool is_mixed_row(const Measurement& row);

// GPUs by stage and replica as the notes state them; empty when they do not.
std::vector<std::vector<std::string>> stated_nodes(const std::string& notes);

// Fills prediction and labels, or says why the row is skipped. What the row leaves open is assumed
// as for a run of this shape on nodes of its first GPU alone.
void predict_mixed_row(const Measurement& stated, int interval_draws, RowResult& result);

}  // namespace orrery::studies
