// SPDX-License-Identifier: Apache-2.0
// What a collected log of nccl-tests says of its run beyond its rows: the network, NCCL's version
// and how the ranks were launched. From the header lines "# key: value" of the log itself or a
// table index.csv (file, interconnect, nccl_version, launch), where one of them lies beside the
// table of rows; else from the log's name alone.
#pragma once

#include <string>
#include <string_view>

#include "calibrate/collective_log.hpp"

namespace orrery::studies {

struct LogFacts {
  std::string interconnect;
  int nccl = 0;  // 100 x major + minor, 0: unknown
  calibrate::LaunchMode launch = calibrate::LaunchMode::Unknown;
};

// `table` is the path of the table, `log` the cell "file" of a row.
LogFacts log_facts(const std::string& table, std::string_view log);

}  // namespace orrery::studies
