// SPDX-License-Identifier: Apache-2.0
// The Chrome trace of a serving plan: a process for each replica, its requests on as few tracks as
// keep them apart, each as the times that it waited, computed its prompt and generated. Linear in
// the requests.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "plan/serving/batching.hpp"
#include "traces/chrome_trace.hpp"

namespace orrery::cli {

class ServingTrace {
 public:
  // Of a replica in order of arrival, the replicas one after the other.
  void add(int replica, const plan::ServedRequest& served);
  const traces::Trace& trace() const { return trace_; }

 private:
  std::uint32_t free_track(SimTime from, SimTime until);

  struct Busy {
    SimTime until;
    std::uint32_t track;
    bool operator>(const Busy& other) const { return until > other.until; }
  };
  traces::Trace trace_;
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy_;  // of the last replica
  std::int64_t count_ = 0;                                             // its requests so far
};

}  // namespace orrery::cli
