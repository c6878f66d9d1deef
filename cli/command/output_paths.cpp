// SPDX-License-Identifier: Apache-2.0
#include "cli/command/output_paths.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;

// /dev/null and the like take any number of results.
bool is_special(const std::string& path) {
  std::error_code error;
  return path != "-" && fs::exists(path, error) && !fs::is_regular_file(path, error);
}

// A path that does not exist stays relative without fs::absolute.
fs::path place_of(const std::string& path) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(path, error), error);
}

bool is_one_file(const std::string& a, const std::string& b) {
  return a == b || place_of(a) == place_of(b);
}

}  // namespace

OutputPath json_path(const OutputOptions& output) { return {"--json", output.json ? "-" : ""}; }

void check_outputs(const std::vector<OutputPath>& outputs, const std::vector<std::string>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, path] = outputs[i];
    check_writable(path);
    if (path.empty() || is_special(path)) {
      continue;
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (!outputs[j].path.empty() && is_one_file(path, outputs[j].path)) {
        bad_input(option, fmt::format("{} writes {}, too", outputs[j].option, printable(path)),
                  "give each a file of its own");
      }
    }
    std::error_code error;
    for (const std::string& input : inputs) {
      if (path != "-" && fs::is_regular_file(input, error) && is_one_file(path, input)) {
        bad_input(option, fmt::format("{} is read by this command", printable(path)),
                  "the result would replace it: give another name");
      }
    }
  }
}

}  // namespace orrery::cli
