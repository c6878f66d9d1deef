// SPDX-License-Identifier: Apache-2.0
// Cells that tables of several kinds of kernels have.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/dtype.hpp"
#include "base/units.hpp"
#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

// Of a word: "float", "torch.bfloat16", "fp8_e4m3"; mxfp8 is timed as fp8, as in training runs.
tl::expected<DType, std::string> dtype_named(std::string_view text);

// Of the row, or of the file's name where the table has no such column; or why there is none.
// "fp16_mixed_tensorcore" is fp16 as training runs it, "fp16_storage_fp32_math"
// is not.
tl::expected<DType, std::string> dtype_of(const Cells& cells);

// Why a cell says that nothing was measured (blank, "n/a", zero); "" where it says a figure.
std::string unmeasured(const Cells& cells, std::string_view column);

Seconds microseconds(const Cells& cells, std::string_view column);

Seconds at_rate(double flops, double teraflops);

}  // namespace orrery::studies
