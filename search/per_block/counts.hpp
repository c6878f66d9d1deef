// SPDX-License-Identifier: Apache-2.0
// How many plans there are: exact while 63 bits hold it, negative beyond.
#pragma once

#include <cstdint>

namespace orrery::search {

inline std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result) ? -1 : result;
}

// n over k.
inline std::int64_t combinations(std::int64_t n, std::int64_t k) {
  std::int64_t result = k > n ? 0 : 1;
  for (std::int64_t i = 1; i <= k && result > 0; ++i) {
    result = product(result, n - k + i);
    result = result < 0 ? -1 : result / i;
  }
  return result;
}

inline std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent && result >= 0; ++i) {
    result = product(result, base);
  }
  return result;
}

}  // namespace orrery::search
