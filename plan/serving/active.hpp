// SPDX-License-Identifier: Apache-2.0
// A request while it runs or waits, as batching sees it (serving/batching.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::plan {

struct Active {
  std::size_t index = 0;     // into the requests
  std::int64_t prefill = 0;  // tokens to compute before the next output token
  std::int64_t done = 0;     // of these
  std::int64_t hits = 0;     // of these, found in the cache
  std::int64_t held = 0;     // KV tokens reserved for it alone
  std::int64_t passing = 0;  // beside them until its prompt is computed (serving/pages.hpp)
  std::int64_t shared = 0;   // those of its prefix, which others may use
  std::int64_t generated = 0;
  bool known = false;     // its whole length is reserved: admitted again after an eviction
  bool sampled = false;   // gets a token in the iteration under way
  bool stopping = false;  // finished, not noticed yet
  bool prefilling() const { return done < prefill; }
  std::int64_t context() const { return held + shared; }
};

// Iterations in which every request of a group decodes a token and none ends are all alike: they
// are counted together, and the requests brought up to date when somebody looks at them.
struct SteadyDecode {
  std::int64_t left = 0;           // such iterations that may follow
  std::int64_t taken = 0;          // that the requests do not know of yet
  std::int64_t keys = 0;           // that the next one reads
  std::int64_t windowed = 0;       // the same, at most a window for each
  std::int64_t more_windowed = 0;  // in each further one
  // Requests that the next one, and each after it, gives a new page; the last is followed by the
  // first.
  std::vector<std::int64_t> new_pages;
  std::size_t next_page = 0;
  bool in_flight = false;  // the iteration under way is one of them
};

struct ActiveGroup {
  std::vector<Active> active;  // in order of admission
  SteadyDecode steady;
  std::size_t size() const { return active.size(); }
};

struct WaitingRequest {
  std::size_t index = 0;
  std::int64_t generated = 0;  // before it was evicted
};

}  // namespace orrery::plan
