// SPDX-License-Identifier: Apache-2.0
// Strict typed reading of a Json document. Every failure is an Error that names the document, the
// JSON pointer, what was found, what was expected and, for names, the nearest valid one.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/units.hpp"

namespace orrery {

class ObjectReader;

// One value of a document together with where it stands. Does not own the Json.
class JsonReader {
 public:
  JsonReader(const Json& value, std::string name) : JsonReader(value, std::move(name), "") {}

  const Json& json() const { return *value_; }
  std::string where() const;  // "name: /pointer"
  [[noreturn]] void fail(std::string_view message, std::string_view hint = {}) const;

  bool boolean() const;
  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  double number(double min, double max) const;  // finite
  std::string string() const;
  std::string one_of(std::span<const std::string_view> names) const;
  // Quantities are strings with a unit ("450 GB/s"); finite, > 0 unless zero_allowed, <= 1e18.
  Bytes bytes(bool zero_allowed = false) const;
  ByteCount byte_count(bool zero_allowed = false) const;
  BytesPerSecond bandwidth(bool zero_allowed = false) const;
  Seconds duration(bool zero_allowed = true) const;
  FlopsPerSecond flop_rate(bool zero_allowed = false) const;
  Hertz frequency() const;
  DollarsPerSecond price() const;  // "2.69 USD/h"

  std::vector<JsonReader> array(std::int64_t max_length = 1'000'000) const;
  ObjectReader object() const;

 private:
  friend class ObjectReader;
  JsonReader(const Json& value, std::string name, std::string pointer)
      : value_(&value), name_(std::move(name)), pointer_(std::move(pointer)) {}
  JsonReader child(const Json& value, std::string_view step) const;

  const Json* value_;
  std::string name_;
  std::string pointer_;
};

// The members of an object. Call finish() at the end: members never asked for are errors (unknown
// key, nearest known name suggested). Foreign documents end with ignore_rest() instead.
class ObjectReader {
 public:
  explicit ObjectReader(const JsonReader& value);
  JsonReader required(std::string_view key);
  std::optional<JsonReader> optional(std::string_view key);  // null counts as absent
  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;
  void finish();
  void ignore_rest() { finished_ = true; }
  const JsonReader& value() const { return value_; }

  // Shorthands: the default when absent.
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                          std::int64_t max);
  double number_or(std::string_view key, double fallback, double min, double max);
  bool boolean_or(std::string_view key, bool fallback);
  std::string string_or(std::string_view key, std::string_view fallback);

  // Checks "schema": "<schema>" and "version": <version> of a native document.
  void expect_schema(std::string_view schema, std::int64_t version);

 private:
  JsonReader value_;
  std::vector<std::string> asked_;
  bool finished_ = false;
};

}  // namespace orrery
