// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/admission.hpp"

#include <algorithm>

namespace orrery::plan {

std::int64_t prefix_hits(const ServingOptions& options, const Request& request) {
  const auto hits =
      static_cast<std::int64_t>(options.prefix_hits * static_cast<double>(request.prompt));
  return std::min(hits, request.prompt - 1);
}

namespace {

// Lives so short, beside their number, are counted, not sorted.
constexpr std::int64_t kCountedIterations = 16;

std::int64_t counted_peak(const std::vector<RemainingLife>& requests, std::int64_t longest) {
  thread_local std::vector<RemainingLife> ends;  // by iterations left: requests, what they hold
  ends.assign(static_cast<std::size_t>(longest) + 1, {});
  for (const RemainingLife& request : requests) {
    RemainingLife& end = ends[static_cast<std::size_t>(request.iterations)];
    ++end.iterations;
    end.held += request.held;
  }
  std::int64_t held = 0;
  std::int64_t peak = 0;
  std::int64_t count = 0;
  for (std::int64_t left = longest; left >= 0; --left) {
    const RemainingLife& end = ends[static_cast<std::size_t>(left)];
    if (end.iterations > 0) {
      held += end.held;
      count += end.iterations;
      peak = std::max(peak, held + count * left);
    }
  }
  return peak;
}

}  // namespace

std::int64_t predicted_peak(std::vector<RemainingLife>& requests) {
  std::int64_t longest = 0;
  for (const RemainingLife& request : requests) {
    longest = std::max(longest, request.iterations);
  }
  if (longest <= kCountedIterations * std::ssize(requests)) {
    return counted_peak(requests, longest);
  }
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
