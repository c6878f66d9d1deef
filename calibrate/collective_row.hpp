// SPDX-License-Identifier: Apache-2.0
// Whether a row of nccl-tests is consistent with itself. It states the same thing several times
// (size = count x type, algbw = size / time, busbw = algbw x a factor of the collective), so a row
// that was edited, or that two runs wrote, mostly contradicts itself. Printed numbers are rounded:
// what rounding can explain is no contradiction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/csv.hpp"
#include "base/units.hpp"
#include "sim/engine/tags.hpp"
#include "traces/nccl_log.hpp"

namespace orrery::calibrate {

struct CollectiveRow {
  sim::CommKind kind = sim::CommKind::None;
  std::int64_t ranks = 0;
  std::int64_t bytes = 0;
  std::int64_t count = 0;      // 0: not printed
  std::string_view type = {};  // "float"; one that is not known is not checked
};

// What contradicts what, with both numbers; empty for a sound row.
std::string size_contradiction(const CollectiveRow& row);
std::string rate_contradiction(const CollectiveRow& row, const traces::NcclTiming& timing);
// Error where a row of a table has a cell busbw_GBps that contradicts its microseconds.
void check_busbw(const CsvTable& table, std::size_t index, const CollectiveRow& row,
                 std::string_view time_column);

}  // namespace orrery::calibrate
