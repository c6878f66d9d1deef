// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/files.hpp"
#include "base/text.hpp"
#include "studies/reproduction/headline.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

constexpr std::int64_t kMaxValues = 1'000'000;  // of one run

class Filler {
 public:
  explicit Filler(const Json& results) : results_(results) {}

  Json fill(const JsonReader& value) {
    if (++values_ > kMaxValues) {
      value.fail(fmt::format("the run has more than {} values", kMaxValues));
    }
    if (value.json().is_array()) {
      Json list = Json::array();
      for (const JsonReader& entry : value.array()) {
        append(entry, list);
      }
      return list;
    }
    return value.json().is_object() ? fill_object(value) : value.json();
  }

 private:
  void append(const JsonReader& entry, Json& list) {
    if (entry.json().find("repeat") == nullptr) {
      list.push(fill(entry));
      return;
    }
    ObjectReader reader = entry.object();
    const JsonReader times = reader.required("repeat");
    const Json filled = fill(times);
    const std::int64_t count = JsonReader(filled, times.where()).integer(0, kMaxValues);
    const JsonReader of = reader.required("of");
    reader.finish();
    for (std::int64_t i = 0; i < count; ++i) {
      for (const JsonReader& inner : of.array()) {
        append(inner, list);
      }
    }
  }

  Json fill_object(const JsonReader& value) {
    ObjectReader reader = value.object();
    if (reader.has("=")) {
      const JsonReader expression = reader.required("=");
      const std::string unit = reader.string_or("unit", "");
      reader.finish();
      const bool is_path = expression.json().is_string();
      if (unit.empty()) {
        return is_path ? resolve(expression, results_) : number(evaluate(expression, results_));
      }
      return fmt::format("{} {}", evaluate(expression, results_), unit);
    }
    if (reader.has("data")) {
      const JsonReader name = reader.required("data");
      reader.finish();
      if (!is_kebab_case(name.string())) {
        name.fail("expected the name of a file in studies/data");
      }
      return read_json_file(data_path("studies/data/" + name.string() + ".json"));
    }
    Json object = Json::object();
    for (const std::string& key : reader.keys()) {
      object.set(key, fill(reader.required(key)));
    }
    return object;
  }

  // Whole numbers may stand where integers are asked for.
  static Json number(double value) {
    const bool whole = std::abs(value) < 1e15 && std::floor(value) == value;
    return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  }

  const Json& results_;
  std::int64_t values_ = 0;
};

}  // namespace

const Json& object_of(const JsonReader& value) {
  (void)value.object();  // refuses other kinds
  return value.json();
}

Json fill_values(const JsonReader& run, const Json& results) { return Filler(results).fill(run); }

}  // namespace orrery::studies
