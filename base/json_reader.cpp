// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

// What stands in the document, short enough for a message.
std::string found(const Json& value) {
  if (value.is_array()) {
    return fmt::format("an array of {}", value.as_array().size());
  }
  if (value.is_object()) {
    return "an object";
  }
  return printable(value.dump(-1), 80);
}

[[noreturn]] void fail_kind(const JsonReader& value, std::string_view expected) {
  value.fail(fmt::format("expected {}, found {}", expected, found(value.json())));
}

// A number without a unit takes the same way, so that its message gives the likely meanings.
std::string quantity_source(const JsonReader& value, std::string_view example) {
  if (value.json().is_string()) {
    return value.json().as_string();
  }
  if (value.json().is_number()) {
    return value.json().dump();
  }
  fail_kind(value, fmt::format("a quantity such as \"{}\"", example));
}

template <typename Quantity>
Quantity checked(const JsonReader& value, Quantity quantity, bool zero_allowed) {
  if (quantity.value() == 0.0 && !zero_allowed) {
    value.fail("must be greater than zero");
  }
  return quantity;
}

std::string escaped_step(std::string_view step) {
  std::string result;
  for (const char c : step) {
    result += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return result;
}

std::vector<std::string> not_asked(std::vector<std::string> keys,
                                   const std::vector<std::string>& asked) {
  std::erase_if(keys, [&](const std::string& key) {
    return std::find(asked.begin(), asked.end(), key) != asked.end();
  });
  return keys;
}

}  // namespace

std::string JsonReader::where() const { return pointer_.empty() ? name_ : name_ + ": " + pointer_; }

void JsonReader::fail(std::string_view message, std::string_view hint) const {
  bad_input(where(), message, hint);
}

bool JsonReader::boolean() const {
  if (!value_->is_bool()) {
    fail_kind(*this, "true or false");
  }
  return value_->as_bool();
}

std::int64_t JsonReader::integer(std::int64_t min, std::int64_t max) const {
  if (!value_->is_integer()) {
    fail_kind(*this, "an integer");
  }
  const std::int64_t value = value_->as_integer();
  if (value < min || value > max) {
    fail(fmt::format("{} is out of range", value), fmt::format("{} to {}", min, max));
  }
  return value;
}

double JsonReader::number(double min, double max) const {
  if (!value_->is_number()) {
    fail_kind(*this, "a number");
  }
  const double value = value_->as_number();
  if (!(value >= min && value <= max)) {
    fail(fmt::format("{} is out of range", value), fmt::format("{} to {}", min, max));
  }
  return value;
}

std::string JsonReader::string() const {
  if (!value_->is_string()) {
    fail_kind(*this, "a string");
  }
  return value_->as_string();
}

std::string JsonReader::one_of(std::span<const std::string_view> names) const {
  const std::string value = string();
  if (std::find(names.begin(), names.end(), value) == names.end()) {
    const std::vector<std::string> known(names.begin(), names.end());
    fail(fmt::format("unknown name \"{}\"", printable(value)), nearest_hint(value, known));
  }
  return value;
}

Bytes JsonReader::bytes(bool zero_allowed) const {
  return checked(*this, parse_bytes(quantity_source(*this, "80 GiB"), where()), zero_allowed);
}

ByteCount JsonReader::byte_count(bool zero_allowed) const {
  // "79.6 GiB" is what is printed for a size; of a few bytes a fraction is a mistake.
  constexpr double kRounded = 1024;
  const double value = bytes(zero_allowed).value();
  if (value < kRounded && value != std::floor(value)) {
    fail(fmt::format("{} B is not a whole number of bytes", value));
  }
  return ByteCount(static_cast<std::int64_t>(value));
}

BytesPerSecond JsonReader::bandwidth(bool zero_allowed) const {
  return checked(*this, parse_bandwidth(quantity_source(*this, "450 GB/s"), where()), zero_allowed);
}

Seconds JsonReader::duration(bool zero_allowed) const {
  return checked(*this, parse_duration(quantity_source(*this, "3 us"), where()), zero_allowed);
}

FlopsPerSecond JsonReader::flop_rate(bool zero_allowed) const {
  return checked(*this, parse_flop_rate(quantity_source(*this, "312 TFLOP/s"), where()),
                 zero_allowed);
}

Hertz JsonReader::frequency() const {
  return checked(*this, parse_frequency(quantity_source(*this, "1.83 GHz"), where()), false);
}

DollarsPerSecond JsonReader::price() const {
  return checked(*this, parse_price(quantity_source(*this, "2.69 USD/h"), where()), true);
}

std::vector<JsonReader> JsonReader::array(std::int64_t max_length) const {
  if (!value_->is_array()) {
    fail_kind(*this, "an array");
  }
  const Json::Array& elements = value_->as_array();
  if (std::ssize(elements) > max_length) {
    fail(fmt::format("array of {} elements", elements.size()),
         fmt::format("at most {}", max_length));
  }
  std::vector<JsonReader> readers;
  readers.reserve(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i) {
    readers.push_back(child(elements[i], fmt::format("{}", i)));
  }
  return readers;
}

ObjectReader JsonReader::object() const { return ObjectReader(*this); }

JsonReader JsonReader::child(const Json& value, std::string_view step) const {
  return {value, name_, pointer_ + "/" + escaped_step(step)};
}

ObjectReader::ObjectReader(const JsonReader& value) : value_(value) {
  if (!value.json().is_object()) {
    fail_kind(value, "an object");
  }
}

JsonReader ObjectReader::required(std::string_view key) {
  std::optional<JsonReader> member = optional(key);
  if (!member) {
    const bool is_null = value_.json().find(key) != nullptr;
    std::vector<std::string> given = not_asked(keys(), asked_);
    // Documents are completed with nulls, which nobody wrote.
    std::erase_if(given, [this](const std::string& name) { return !has(name); });
    const std::string meant = is_null ? std::string() : nearest_name(key, given);
    value_.fail(fmt::format("{} key \"{}\"", is_null ? "null for required" : "missing", key),
                meant.empty() ? meant : fmt::format("there is \"{}\"", printable(meant)));
  }
  return *member;
}

std::optional<JsonReader> ObjectReader::optional(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
    asked_.emplace_back(key);
  }
  const Json* member = value_.json().find(key);
  if (member == nullptr || member->is_null()) {
    return std::nullopt;
  }
  return value_.child(*member, key);
}

bool ObjectReader::has(std::string_view key) const {
  const Json* member = value_.json().find(key);
  return member != nullptr && !member->is_null();
}

std::vector<std::string> ObjectReader::keys() const {
  std::vector<std::string> names;
  for (const Json::Member& member : value_.json().as_object()) {
    names.push_back(member.first);
  }
  return names;
}

void ObjectReader::finish() {
  if (finished_) {
    return;
  }
  finished_ = true;
  if (const std::vector<std::string> unknown = not_asked(keys(), asked_); !unknown.empty()) {
    value_.fail(fmt::format("unknown key \"{}\"", printable(unknown.front())),
                nearest_hint(unknown.front(), asked_));
  }
}

std::int64_t ObjectReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                      std::int64_t max) {
  const std::optional<JsonReader> member = optional(key);
  return member ? member->integer(min, max) : fallback;
}

double ObjectReader::number_or(std::string_view key, double fallback, double min, double max) {
  const std::optional<JsonReader> member = optional(key);
  return member ? member->number(min, max) : fallback;
}

bool ObjectReader::boolean_or(std::string_view key, bool fallback) {
  const std::optional<JsonReader> member = optional(key);
  return member ? member->boolean() : fallback;
}

std::string ObjectReader::string_or(std::string_view key, std::string_view fallback) {
  const std::optional<JsonReader> member = optional(key);
  return member ? member->string() : std::string(fallback);
}

void ObjectReader::expect_schema(std::string_view schema, std::int64_t version) {
  const JsonReader found_schema = required("schema");
  if (found_schema.string() != schema) {
    found_schema.fail(fmt::format("schema \"{}\"", printable(found_schema.string())),
                      fmt::format("\"{}\" is expected here", schema));
  }
  const JsonReader found_version = required("version");
  if (found_version.integer(0, std::numeric_limits<std::int64_t>::max()) != version) {
    found_version.fail(fmt::format("version {} of {}", found_version.json().as_integer(), schema),
                       fmt::format("version {} is read here", version));
  }
}

}  // namespace orrery
