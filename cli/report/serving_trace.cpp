// SPDX-License-Identifier: Apache-2.0
#include "cli/report/serving_trace.hpp"

#include <fmt/format.h>

namespace orrery::cli {

std::uint32_t ServingTrace::free_track(SimTime from, SimTime until) {
  std::uint32_t track = 0;
  if (!busy_.empty() && busy_.top().until <= from) {
    track = busy_.top().track;
    busy_.pop();
  } else {
    const auto process = static_cast<std::uint32_t>(trace_.processes.size() - 1);
    track = trace_.add_track(process, fmt::format("requests {}", busy_.size() + 1));
  }
  busy_.push({until, track});
  return track;
}

void ServingTrace::add(int replica, const plan::ServedRequest& served) {
  while (trace_.processes.size() <= static_cast<std::size_t>(replica)) {
    trace_.add_process(fmt::format("replica {}", trace_.processes.size()));
    busy_ = {};
    count_ = 0;
  }
  const plan::Request& request = served.request;
  const std::uint32_t track = free_track(request.arrival, served.finished);
  const Json::Object args = {{"request", count_},
                             {"prompt", request.prompt},
                             {"output", request.output},
                             {"evictions", served.evictions}};
  const auto span = [&](const char* part, SimTime start, SimTime end) {
    if (end > start) {
      trace_.spans.push_back({track, start, end, fmt::format("{} {}", part, count_), part, args});
    }
  };
  span("wait", request.arrival, served.admitted);
  span("prompt", served.admitted, served.first_token);
  span("output", served.first_token, served.finished);
  ++count_;
}

}  // namespace orrery::cli
