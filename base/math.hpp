// SPDX-License-Identifier: Apache-2.0
// Integer helpers.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery {

constexpr double as_double(std::int64_t value) { return static_cast<double>(value); }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}
std::vector<std::int64_t> divisors(std::int64_t n);  // ascending

}  // namespace orrery
