// SPDX-License-Identifier: Apache-2.0
#include "models/network_names.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"

namespace orrery::models {
namespace {

constexpr std::int64_t kMostAliases = 256;
constexpr std::size_t kLongestAlias = 100;

// Letters and digits in lower case, and what stands between two digits, a point or anything else:
// "gpt2-1b" is not "gpt-21b".
std::string key_of(std::string_view text) {
  std::string key;
  char joint = '\0';
  for (const char c : text) {
    if (!is_letter_or_digit(c)) {
      joint = c == '.' && joint == '\0' ? '.' : '-';
      continue;
    }
    if (joint != '\0' && is_digit(c) && !key.empty() && is_digit(key.back())) {
      key += joint;
    }
    key += c;
    joint = '\0';
  }
  return to_lower(key);
}

class Names {
 public:
  Names() {
    for (const std::string& name : data_names(kZooFolder)) {
      add(name, name, JsonReader(Json(), name));
    }
    for (const std::string& name : data_names(kZooFolder)) {
      const std::string path = data_path(fmt::format("{}/{}.json", kZooFolder, name));
      const Json document = read_json_file(path);
      ObjectReader object = JsonReader(document, path).object();
      for (const JsonReader& alias : read_aliases(object)) {
        add(alias.string(), name, alias);
      }
      object.ignore_rest();
    }
  }

  const std::map<std::string, std::string>& spellings() const { return spellings_; }

  std::string find(std::string_view text) const {
    const auto found = keys_.find(key_of(text));
    return found == keys_.end() ? std::string() : found->second;
  }

 private:
  void add(const std::string& spelling, const std::string& name, const JsonReader& where) {
    const auto [other, first] = keys_.emplace(key_of(spelling), name);
    if (!first) {
      where.fail(fmt::format("\"{}\" is a name of {} already", printable(spelling), other->second),
                 "a name of its own");
    }
    spellings_.emplace(spelling, name);
  }

  std::map<std::string, std::string> spellings_;
  std::map<std::string, std::string> keys_;
};

// Read at the first name that is no file's.
const Names& names() {
  static const Names kNames;
  return kNames;
}

}  // namespace

std::vector<JsonReader> read_aliases(ObjectReader& document) {
  const auto list = document.optional("aliases");
  if (!list) {
    return {};
  }
  std::vector<JsonReader> aliases = list->array(kMostAliases);
  for (const JsonReader& alias : aliases) {
    const std::string text = alias.string();
    const bool path = text.find('/') != std::string::npos;
    if (key_of(text).empty() || text.size() > kLongestAlias || path) {
      alias.fail(
          fmt::format("\"{}\" is not a name", printable(text)),
          fmt::format("1 to {} characters, letters or digits among them, no /", kLongestAlias));
    }
  }
  return aliases;
}

std::vector<std::string> zoo_names() { return data_names(kZooFolder); }

const std::map<std::string, std::string>& network_names() { return names().spellings(); }

std::string find_network(std::string_view text) { return names().find(text); }

}  // namespace orrery::models
