// SPDX-License-Identifier: Apache-2.0
#include "base/units.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace orrery {

void byte_count_overflow(std::int64_t a, std::int64_t b) {
  check_failed("byte count within int64", __FILE__, __LINE__,
               fmt::format("operands {} and {}", a, b));
}

}  // namespace orrery
