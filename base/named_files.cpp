// SPDX-License-Identifier: Apache-2.0
#include "base/named_files.hpp"

#include <filesystem>
#include <system_error>

#include "base/error.hpp"

namespace orrery {
namespace {

void add_named(const Json& document, std::set<std::string>& files);

void add_file(const std::string& path, std::set<std::string>& files) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || !files.insert(path).second) {
    return;
  }
  try {
    add_named(read_json_file(path), files);
  } catch (const Error&) {
    return;  // no document: it names nothing
  }
}

void add_named(const Json& document, std::set<std::string>& files) {
  if (document.is_string()) {
    add_file(document.as_string(), files);
  } else if (document.is_array()) {
    for (const Json& element : document.as_array()) {
      add_named(element, files);
    }
  } else if (document.is_object()) {
    for (const auto& [key, value] : document.as_object()) {
      add_named(value, files);
    }
  }
}

}  // namespace

std::set<std::string> named_files(const Json& document) {
  std::set<std::string> files;
  add_named(document, files);
  return files;
}

}  // namespace orrery
