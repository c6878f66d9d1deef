// SPDX-License-Identifier: Apache-2.0
// In which bits the remarks of a row say that gradients are accumulated and reduced: "bf16
// gradients", "reduce_dtype=fp32", "grad_reduce_in_fp32=False". Linear in the length of the text.
#pragma once

#include <optional>
#include <string_view>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// True for 32 bits, false for 16; no value where the text does not say.
std::optional<bool> stated_fp32_gradients(std::string_view text);

// Composer's mixed_precision=PURE: parameters, reductions and buffers in 16 bits.
bool has_pure_precision(const Measurement& row);

}  // namespace orrery::studies
