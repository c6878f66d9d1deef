// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMaxPathSteps = 64;

Json parse_value(std::string_view text) {
  try {
    return parse_json(text, "value");
  } catch (const Error&) {
    return Json(text);
  }
}

[[noreturn]] void fail(std::string_view path, std::string_view message, std::string_view hint) {
  bad_input(fmt::format("path \"{}\"", printable(path)), message, hint);
}

// The element that a step names; null when the member is absent.
Json* step_into(Json& value, std::string_view step, std::string_view path) {
  if (value.is_object()) {
    return value.find(step);
  }
  if (!value.is_array()) {
    fail(path, fmt::format("\"{}\" is a member of a value that is no object", printable(step)),
         "the path ends before it");
  }
  Json::Array& array = value.as_array();
  std::size_t index = 0;
  const char* end = step.data() + step.size();
  const auto [stop, error] = std::from_chars(step.data(), end, index);
  if (error != std::errc() || stop != end || index >= array.size()) {
    fail(path, fmt::format("\"{}\" is not an index of the array", printable(step)),
         array.empty() ? "the array is empty" : fmt::format("0 to {}", array.size() - 1));
  }
  return &array[index];
}

// The paths to members of this name below a value. Documents nest 64 levels at most.
void find_below(const Json& value, std::string_view name, const std::string& prefix,
                std::vector<std::string>& found) {
  if (!value.is_object()) {
    return;
  }
  for (const Json::Member& member : value.as_object()) {
    const std::string path = prefix + member.first;
    if (member.first == name) {
      found.push_back(path);
    }
    find_below(member.second, name, path + ".", found);
  }
}

// `prefix`: the steps that led to the value, each with its dot.
[[noreturn]] void fail_missing(const Json& value, std::string_view step, std::string_view path,
                               const std::string& prefix) {
  std::vector<std::string> below;
  find_below(value, step, prefix, below);
  if (below.size() == 1) {
    fail(path, fmt::format("no member \"{}\"", printable(step)),
         fmt::format("did you mean \"{}\"?", printable(below.front())));
  }
  std::vector<std::string> names;
  for (const Json::Member& member : value.as_object()) {
    names.push_back(member.first);
  }
  fail(path, fmt::format("no member \"{}\"", printable(step)), nearest_hint(step, names));
}

}  // namespace

void set_path(Json& document, std::string_view path, std::string_view value_text, bool may_add) {
  const std::vector<std::string_view> steps = split(path, '.');
  if (steps.size() > kMaxPathSteps) {
    fail(path, "too many steps", fmt::format("at most {}", kMaxPathSteps));
  }
  Json* value = &document;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].empty()) {
      fail(path, "empty name", "names are separated by single dots, as in gpu.memory");
    }
    Json* next = step_into(*value, steps[i], path);
    if (next == nullptr && (i + 1 < steps.size() || !may_add)) {
      fail_missing(
          *value, steps[i], path,
          std::string(path.substr(0, static_cast<std::size_t>(steps[i].data() - path.data()))));
    }
    value = next == nullptr ? &value->set(steps[i], Json()) : next;
  }
  *value = parse_value(value_text);
}

}  // namespace orrery
