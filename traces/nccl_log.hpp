// SPDX-License-Identifier: Apache-2.0
// Reader of nccl-tests and rccl-tests output in all its column layouts: the header row names the
// columns, so logs of 1.x (bytes, N, op, res; milliseconds) and 2.x, with and without `redop`,
// `root`, `#wrong`, per-iteration columns and time stamps are read alike; the unit row sets the
// unit of time. Lines of other programs between the rows (NCCL INFO, mpirun) are skipped. A row
// that is cut short, holds something else than the header promises, comes from another rank than
// the header or out of the order of sizes is an Error with file and line, or a problem of the log
// when the caller collects them. What the rows mean (wrong results, times of nothing) is left to
// the caller. Linear in the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace orrery::traces {

// Numbers are rounded where they are printed; how far they may be off follows from their digits.
struct NcclTiming {
  Seconds time;
  BytesPerSecond algbw;
  BytesPerSecond busbw;
  Seconds time_rounding;
  BytesPerSecond algbw_rounding;  // 0: not printed
  BytesPerSecond busbw_rounding;
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
  std::string collective;  // of the test this row belongs to; a log may hold several
};

// A line "Rank 3 Group 0 Pid 4711 on host device 3 [0x07] NVIDIA H100 80GB HBM3".
struct NcclRank {
  int rank = 0;
  int group = 0;  // of ranks that were split (NCCL_TESTS_SPLIT); all groups run at once
  std::int64_t pid = 0;
  std::string host;
  std::string device = {};  // as printed; "" where the line ends before it
  int line = 0;
};

// A header row: a log of several tests has one for each.
struct NcclTable {
  int line = 0;
  std::string collective;  // "": not said
};

// A line that says that the run, or a part of it, failed.
struct NcclFailure {
  int line = 0;
  std::string text;
};

struct NcclLog {
  std::string name;        // file
  std::string collective;  // "all_reduce" of the first test; empty when the log does not say
  int ranks = 0;           // 0: not stated
  std::string device;      // of rank 0, as printed
  std::vector<NcclRow> rows;
  std::vector<NcclTable> tables;

  std::vector<NcclRank> places;  // as far as printed
  int gpus_per_thread = 0;       // -g and -t; 0: not stated
  int threads = 0;
  bool host_times = false;   // times of the host's calls (-C 1), not of the collective
  std::string nccl_version;  // "2.26.2+cuda12.8"
  // Facts of annotated logs ("# gpu: X  nodes: 2  gpus_per_node: 8", "# nccl: V  launch: ...").
  std::string gpu;
  int nodes = 0;
  int gpus_per_node = 0;
  std::string interconnect;
  std::string network;  // that NCCL says it uses: "IB", "Socket", "AWS"; "": not said
  std::string launch;
  std::vector<std::string> forced;  // "NCCL_ALGO=Ring", as NCCL_DEBUG=INFO says
  std::vector<NcclFailure> failures;
  std::vector<std::string> problems;  // with NcclFaults::Collect: "file:line: what"
};

enum class NcclFaults { Throw, Collect };

NcclLog parse_nccl_log(std::string_view text, const std::string& name,
                       NcclFaults faults = NcclFaults::Throw);

}  // namespace orrery::traces
