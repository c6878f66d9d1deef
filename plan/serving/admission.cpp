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

// Ends in order of time, and the requests that have grown beyond the window by then.
std::int64_t sliding_peak(std::vector<RemainingLife>& requests, SlidingLayers sliding) {
  thread_local std::vector<RemainingLife> beyond;  // `iterations` until they are
  beyond.clear();
  std::int64_t held = 0;
  for (const RemainingLife& request : requests) {
    held += request.held;
    if (const std::int64_t until = sliding.window - request.held; until < request.iterations) {
      beyond.push_back({until, request.held});
    }
  }
  const auto sooner = [](const auto& a, const auto& b) { return a.iterations < b.iterations; };
  std::sort(requests.begin(), requests.end(), sooner);
  std::sort(beyond.begin(), beyond.end(), sooner);
  auto next = beyond.begin();
  std::int64_t count = std::ssize(requests);
  std::int64_t freeing = 0;   // requests beyond the window
  std::int64_t freeable = 0;  // their tokens now, less what their windows reach
  std::int64_t peak = 0;
  for (const RemainingLife& request : requests) {
    const std::int64_t end = request.iterations;
    for (; next != beyond.end() && next->iterations < end; ++next) {
      ++freeing;
      freeable += next->held - sliding.window;
    }
    // Each frees a whole number of tokens.
    const double freed = sliding.share * static_cast<double>(freeable + freeing * end) -
                         static_cast<double>(freeing);
    peak = std::max(peak, held + count * end - static_cast<std::int64_t>(std::max(0.0, freed)));
    held -= request.held;
    --count;
    if (sliding.window - request.held < end) {
      --freeing;
      freeable -= request.held - sliding.window;
    }
  }
  return peak;
}

}  // namespace

std::int64_t predicted_peak(std::vector<RemainingLife>& requests, SlidingLayers sliding) {
  if (sliding.share > 0) {
    return sliding_peak(requests, sliding);
  }
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
