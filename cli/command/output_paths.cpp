// SPDX-License-Identifier: Apache-2.0
#include "cli/command/output_paths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/words.hpp"

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

OutputPath json_path(const OutputOptions& output) {
  return {"--json", output.json ? "-" : "", output.quiet};
}

namespace {

// Nothing that is written is one of these, whatever its name says.
void check_format(std::string_view option, const std::string& path) {
  constexpr auto kOthers =
      std::to_array<std::string_view>({".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"});
  fs::path name(path);
  const std::string ending = to_lower(name.extension().string());
  if (is_among(ending, kOthers)) {
    const bool is_picture =
        option.find("picture") != option.npos || option == "--svg" || option == "--plot";
    bad_input(option, fmt::format("{} is not written as {}", printable(path), ending.substr(1)),
              is_picture ? fmt::format("pictures are SVG: call it {}",
                                       printable(name.replace_extension(".svg").string()))
                         : std::string("give the file another ending"));
  }
}

}  // namespace

namespace {

// A document on standard output is all that is there.
void make_room(const std::vector<OutputPath>& outputs) {
  const auto any = [&](auto holds) { return std::any_of(outputs.begin(), outputs.end(), holds); };
  if (any([](const OutputPath& output) { return output.path == "-"; })) {
    const bool quiet = any([](const OutputPath& output) { return output.quiet; });
    set_text_place(quiet ? TextPlace::Nowhere : TextPlace::StandardError);
  }
}

}  // namespace

void check_outputs(const std::vector<OutputPath>& outputs, const std::vector<std::string>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, path, quiet] = outputs[i];
    check_format(option, path);
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
  make_room(outputs);
}

}  // namespace orrery::cli
