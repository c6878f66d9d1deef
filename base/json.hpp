// SPDX-License-Identifier: Apache-2.0
// A JSON document: what all native and foreign documents are parsed into and printed from.
// Parsing is strict (RFC 8259; duplicate keys, depth, string and array sizes are checked against
// limits.hpp; 64-bit integers stay exact) and every failure is an Error naming file and line.
// Typed, checked access is in json_reader.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace orrery {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order written; keys are unique

  Json() = default;                                             // null
  Json(bool value) : value_(value) {}                           // NOLINT: literals convert
  Json(int value) : value_(std::int64_t{value}) {}              // NOLINT
  Json(std::int64_t value) : value_(value) {}                   // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT
  // Compiled once: most files make and copy documents.
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  static Json object() { return Json(Object{}); }
  static Json array() { return Json(Array{}); }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // Unchecked kinds are bugs (ORRERY_CHECK): read user documents through json_reader.hpp.
  bool as_bool() const;
  std::int64_t as_integer() const;
  double as_number() const;  // integers convert
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  const Json* find(std::string_view key) const;  // null when absent or not an object
  Json* find(std::string_view key);
  Json& set(std::string_view key, Json value);  // inserts or replaces; returns the member
  void push(Json value);                        // appends to an array

  bool operator==(const Json&) const = default;

  // Two-space indentation, members in order, doubles in the shortest form that reads back equal;
  // non-finite doubles are bugs. indent < 0 prints one line.
  std::string dump(int indent = 2) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

// `name` is the file or option that messages cite.
Json parse_json(std::string_view text, std::string_view name);
// Reads a file of at most limits::kMaxConfigFileBytes; "-" is standard input.
Json read_json_file(const std::string& path);

// Sets the member at a dotted path ("gpu.hbm_bandwidth", "fabric.levels.0.oversubscription"),
// the mechanism behind --set. The value text is read as JSON when it is valid JSON, else as a
// string. Throws Error when the path passes through a missing member (nearest name suggested);
// the last name must exist unless `may_add`.
void set_path(Json& document, std::string_view path, std::string_view value_text, bool may_add);

}  // namespace orrery
