// SPDX-License-Identifier: Apache-2.0
// How the source of a row counts FLOPs (`flops_convention`): by a formula, or in words, and over
// which peak rate it divides them.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "models/network.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Samples of one iteration; 0: not stated.
double global_batch(const Measurement& row);

// Whether the row says, in a formula or in words, what its FLOPs count.
bool states_way_of_counting(const Measurement& row);

// FLOPs of one iteration as the row's source counts them.
tl::expected<double, std::string> counted_flops(const Measurement& row,
                                                const models::Network& network);

// FLOP/s of one GPU that the source divides by: as stated, else as sources of this kind print it,
// else the data sheet's.
tl::expected<double, std::string> reference_peak(const Measurement& row);

}  // namespace orrery::studies
