// SPDX-License-Identifier: Apache-2.0
// Cells that state how much a step or a micro-batch holds, in sequences or in tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "studies/rows/measurement.hpp"
#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

// 4K is 4096.
constexpr auto kBinary = std::to_array<NumberUnit>({{'k', 1024}});

// A count that units may round: "4K", "1M". A remark says what it is taken as.
OptionalCount round_count(const Cells& cells, std::string_view column, std::int64_t max,
                          NumberUnits units, Measurement& row);

// Sequences, or as many as hold what the cell states: "4M tokens", "524,288 tokens/step", "3.2
// million tokens", of a global batch also "4M". "128 seqs x 4096" are 128.
OptionalCount read_batch(const Cells& cells, std::string_view column, Measurement& row);

}  // namespace orrery::studies
