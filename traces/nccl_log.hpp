// SPDX-License-Identifier: Apache-2.0
// Reader of nccl-tests and rccl-tests output. The header row names the columns, so logs with and
// without `redop`, `root` and `#wrong` are read alike; the unit row sets the unit of time. Lines of
// other programs between the rows (NCCL INFO, mpirun) are skipped; a row that is cut short or holds
// something else than the header promises is an Error with file and line. Linear in the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace orrery::traces {

struct NcclTiming {
  Seconds time;
  BytesPerSecond algbw;  // as printed, two decimals of GB/s
  BytesPerSecond busbw;
  std::optional<std::int64_t> wrong;
};

struct NcclRow {
  ByteCount size;
  std::int64_t count = 0;
  std::string type;  // "float", "half", ...
  std::string op;    // "sum", "none"; empty in logs without the column
  int root = -1;
  std::optional<NcclTiming> out_of_place;
  std::optional<NcclTiming> in_place;
  int line = 0;
};

struct NcclLog {
  std::string name;        // file
  std::string collective;  // "all_reduce"; empty when the log does not say
  int ranks = 0;           // 0: not stated
  std::string device;      // of rank 0, as printed
  std::vector<NcclRow> rows;
  std::optional<BytesPerSecond> average_busbw;
};

NcclLog parse_nccl_log(std::string_view text, const std::string& name);
NcclLog read_nccl_log(const std::string& path);

}  // namespace orrery::traces
