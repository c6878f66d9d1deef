// SPDX-License-Identifier: Apache-2.0
#include "base/math.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace orrery {

std::vector<std::int64_t> divisors(std::int64_t n) {
  ORRERY_CHECK(n >= 1, fmt::format("divisors of {}", n));
  std::vector<std::int64_t> small;
  std::vector<std::int64_t> large;
  for (std::int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) {
      continue;
    }
    small.push_back(d);
    if (d != n / d) {
      large.push_back(n / d);
    }
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

}  // namespace orrery
