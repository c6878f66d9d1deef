// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

// In the order of search. A folder that was asked for and is not there is an error: silence would
// answer with other data than the user meant.
std::vector<fs::path> data_roots() {
  std::vector<fs::path> roots;
  std::error_code error;
  if (const char* chosen = std::getenv("ORRERY_DATA"); chosen != nullptr && *chosen != '\0') {
    if (!fs::is_directory(chosen, error)) {
      bad_input("ORRERY_DATA", fmt::format("\"{}\" is not a folder", printable(chosen)),
                "name a folder with topologies/, models/zoo/ or costmodel/profiles/, or unset it");
    }
    roots.emplace_back(chosen);
  }
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path prefix = executable.parent_path().parent_path();
    roots.push_back(prefix / "share" / "orrery");
    roots.push_back(prefix / ORRERY_INSTALL_DATADIR);
  }
  roots.emplace_back(ORRERY_SOURCE_DIR);
  return roots;
}

std::vector<fs::path> existing(std::string_view relative) {
  const fs::path path(relative);
  const bool leaves_root = std::find(path.begin(), path.end(), "..") != path.end();
  if (relative.empty() || relative.find('\0') != std::string_view::npos || path.is_absolute() ||
      leaves_root) {
    bad_input("", fmt::format("\"{}\" is not the name of a data file", printable(relative)));
  }
  std::vector<fs::path> found;
  for (const fs::path& root : data_roots()) {
    std::error_code error;
    if (fs::exists(root / path, error)) {
      found.push_back(root / path);
    }
  }
  return found;
}

[[noreturn]] void fail_missing(std::string_view relative) {
  std::string places;
  for (const fs::path& root : data_roots()) {
    places += (places.empty() ? "" : ", ") + printable(root.string());
  }
  throw Error(ErrorKind::InputOutput, relative, "no such data file",
              fmt::format("searched in {}; ORRERY_DATA names another folder", places));
}

}  // namespace

std::string data_path(std::string_view relative) {
  const std::vector<fs::path> found = existing(relative);
  if (found.empty()) {
    fail_missing(relative);
  }
  return found.front().string();
}

bool is_data(std::string_view relative) { return !existing(relative).empty(); }

std::vector<std::string> data_names(std::string_view folder) {
  const std::vector<fs::path> folders = existing(folder);
  if (folders.empty()) {
    fail_missing(folder);
  }
  std::set<std::string> names;
  for (const fs::path& path : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().extension() == ".json") {
        names.insert(entry->path().stem().string());
      }
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace orrery
