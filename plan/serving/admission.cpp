// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/admission.hpp"

#include <algorithm>

namespace orrery::plan {

std::int64_t prefix_hits(const ServingOptions& options, const Request& request) {
  const auto hits =
      static_cast<std::int64_t>(options.prefix_hits * static_cast<double>(request.prompt));
  return std::min(hits, request.prompt - 1);
}

std::int64_t predicted_peak(std::vector<RemainingLife>& requests) {
  std::sort(requests.begin(), requests.end(),
            [](const auto& a, const auto& b) { return a.iterations > b.iterations; });
  std::int64_t held = 0;
  std::int64_t peak = 0;
  std::int64_t count = 0;
  for (const RemainingLife& request : requests) {
    held += request.held;
    ++count;
    peak = std::max(peak, held + count * request.iterations);
  }
  return peak;
}

}  // namespace orrery::plan
