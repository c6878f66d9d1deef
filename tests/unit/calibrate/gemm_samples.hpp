// SPDX-License-Identifier: Apache-2.0
// For tests of sample documents: small products with a time.
#pragma once

#include <cstdint>
#include <string>

#include "calibrate/samples.hpp"

namespace orrery::calibrate {

// m x 8 x 8, `seconds` in the median and both quartiles.
inline Sample gemm_of(std::int64_t m, double seconds, const std::string& source) {
  const Seconds time(seconds);
  return {.shape = GemmSample{.m = m, .n = 8, .k = 8},
          .time = {.median = time, .p25 = time, .p75 = time, .repetitions = 1},
          .implementation = "",
          .source = source,
          .flags = {}};
}

}  // namespace orrery::calibrate
