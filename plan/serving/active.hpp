// SPDX-License-Identifier: Apache-2.0
// A request while it runs or waits, as batching sees it (serving/batching.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/sim_time.hpp"

namespace orrery::plan {

struct Active {
  std::size_t index = 0;     // into the requests
  std::int64_t prefill = 0;  // tokens to compute before the next output token
  std::int64_t done = 0;     // of these
  std::int64_t hits = 0;     // of these, found in the cache
  std::int64_t held = 0;     // KV tokens reserved for it alone
  std::int64_t shared = 0;   // those of its prefix, which others may use
  std::int64_t generated = 0;
  bool known = false;     // its whole length is reserved: admitted again after an eviction
  bool sampled = false;   // gets a token in the iteration under way
  bool stopping = false;  // finished, not noticed yet
  bool prefilling() const { return done < prefill; }
  std::int64_t context() const { return held + shared; }
};

struct ActiveGroup {
  std::vector<Active> active;  // in order of admission
  SimTime ready;               // its iteration has left the last stage
  bool in_flight = false;
};

struct WaitingRequest {
  std::size_t index = 0;
  std::int64_t generated = 0;  // before it was evicted
};

}  // namespace orrery::plan
