// SPDX-License-Identifier: Apache-2.0
// What comments of a log say of the whole run. Where they say something else behind rows, two runs
// wrote into the file: the text tells which; else it is empty.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "traces/nccl_log.hpp"

namespace orrery::traces {

// Of collected logs: "key: text  key: text", two spaces between them.
std::string read_notes(std::string_view text, const std::string& where, NcclLog& log);

// Versions may be parts of each other: "2.26.2" of "2.26.2+cuda12.8".
std::string set_version(std::string version, NcclLog& log);

// Ranks that rows are of stay where they were: the lists of two runs would be one of more nodes.
class RankHosts {
 public:
  std::string add(const NcclRank& place, const NcclLog& log);

 private:
  std::map<int, std::string> hosts_;
  std::size_t of_rows_ = 0;  // ranks that were listed before the first row
};

}  // namespace orrery::traces
