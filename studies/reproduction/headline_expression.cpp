// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.hpp"
#include "studies/reproduction/headline.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

const Json& resolve(const JsonReader& expression, const Json& results) {
  const std::string path = expression.string();
  const Json* value = &results;
  for (const std::string_view step : split(path, '.')) {
    const Json* next = nullptr;
    if (value->is_array()) {
      const bool digits = !step.empty() && step.size() < 7 &&
                          step.find_first_not_of("0123456789") == std::string_view::npos;
      const std::size_t index = digits ? std::stoul(std::string(step)) : value->as_array().size();
      next = index < value->as_array().size() ? &value->as_array()[index] : nullptr;
    } else {
      next = value->find(step);
    }
    if (next == nullptr) {
      std::vector<std::string> names;
      if (value->is_object()) {
        for (const auto& [name, member] : value->as_object()) {
          names.push_back(name);
        }
      }
      expression.fail(fmt::format("no result \"{}\" in \"{}\"", printable(step), printable(path)),
                      nearest_hint(step, names));
    }
    value = next;
  }
  return *value;
}

namespace {

double number_of(const Json& value, const JsonReader& expression) {
  if (!value.is_number()) {
    expression.fail("expected a number", "name a member of the result");
  }
  return value.as_number();
}

// The values of an argument: several for an array of numbers.
std::vector<double> values_of(const JsonReader& argument, const Json& results) {
  if (!argument.json().is_string()) {
    return {evaluate(argument, results)};
  }
  const Json& value = resolve(argument, results);
  if (!value.is_array()) {
    return {number_of(value, argument)};
  }
  std::vector<double> values;
  for (const Json& entry : value.as_array()) {
    values.push_back(number_of(entry, argument));
  }
  return values;
}

double apply(const JsonReader& expression, const std::string& op,
             const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (op == "+" || op == "sum") {
    return sum;
  }
  if (op == "*") {
    return std::accumulate(values.begin(), values.end(), 1.0, std::multiplies<>());
  }
  if (op == "min") {
    return *std::min_element(values.begin(), values.end());
  }
  if (op == "max") {
    return *std::max_element(values.begin(), values.end());
  }
  if (op == "mean") {
    return sum / static_cast<double>(values.size());
  }
  if (op == "ceil") {
    return std::ceil(sum - 1e-9);  // of one value; sums of fractions may miss a whole number
  }
  if (values.size() != 2) {
    expression.fail(fmt::format("\"{}\" takes two arguments", op));
  }
  return op == "-" ? values[0] - values[1] : values[0] / values[1];
}

}  // namespace

double evaluate(const JsonReader& expression, const Json& results) {
  if (expression.json().is_number()) {
    return expression.number(-1e300, 1e300);
  }
  if (expression.json().is_string()) {
    return number_of(resolve(expression, results), expression);
  }
  const std::vector<JsonReader> parts = expression.array(64);
  if (parts.size() < 2) {
    expression.fail("expected [\"op\", argument, ...]");
  }
  constexpr std::string_view kOps[] = {"+", "-", "*", "/", "sum", "min", "max", "mean", "ceil"};
  const std::string op = parts.front().one_of(kOps);
  std::vector<double> values;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::vector<double> more = values_of(parts[i], results);
    values.insert(values.end(), more.begin(), more.end());
  }
  if (values.empty()) {
    expression.fail("the result is an empty list");
  }
  const double result = apply(expression, op, values);
  if (!std::isfinite(result)) {
    expression.fail("the result is not finite");
  }
  return result;
}

}  // namespace orrery::studies
