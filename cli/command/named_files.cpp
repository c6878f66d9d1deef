// SPDX-License-Identifier: Apache-2.0
#include "cli/command/named_files.hpp"

#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.hpp"

namespace orrery::cli {
namespace {

class NamedFiles {
 public:
  void add(const Json& document) {
    if (document.is_string()) {
      add_text(document.as_string());
    } else if (document.is_array()) {
      for (const Json& element : document.as_array()) {
        add(element);
      }
    } else if (document.is_object()) {
      for (const auto& [key, value] : document.as_object()) {
        add(value);
      }
    }
  }
  std::vector<std::string> sorted() const { return {files_.begin(), files_.end()}; }

 private:
  void add_text(const std::string& text) {
    std::error_code error;
    if (std::filesystem::is_regular_file(text, error)) {
      add_file(text);
      return;
    }
    const std::size_t sign = text.find_first_of(",=@+");
    if (sign != std::string::npos) {
      add_text(text.substr(0, sign));
      add_text(text.substr(sign + 1));
    }
  }

  void add_file(const std::string& path) {
    if (!files_.insert(path).second || !path.ends_with(".json")) {
      return;
    }
    try {
      add(read_json_file(path));
    } catch (const Error&) {
      return;  // whoever reads it says what is wrong
    }
  }

  std::set<std::string> files_;
};

}  // namespace

std::vector<std::string> named_files(const Json& document) {
  NamedFiles files;
  files.add(document);
  return files.sorted();
}

}  // namespace orrery::cli
