// SPDX-License-Identifier: Apache-2.0
// The files that a command writes: each can be written, no two are one, and none is read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command/common.hpp"

namespace orrery::cli {

struct OutputPath {
  std::string_view option;
  std::string path;    // "": not asked for; "-": standard output
  bool quiet = false;  // text that gives way to a document on standard output is left out
};

// What --json prints takes standard output. With it goes --quiet.
OutputPath json_path(const OutputOptions& output);

// Error naming the option. `inputs` are names, too: only those of files count. Where a path is "-",
// print() no longer writes to standard output.
void check_outputs(const std::vector<OutputPath>& outputs, const std::vector<std::string>& inputs);

}  // namespace orrery::cli
