// SPDX-License-Identifier: Apache-2.0
// The time that a search has. One that goes on from a checkpoint comes forward by a step at least,
// however short its time is: else what begins it anew could take all of that, again and again.
#pragma once

#include <atomic>
#include <chrono>

#include "base/units.hpp"

namespace orrery::search {

class TimeLimit {
 public:
  // 0: none.
  TimeLimit(Seconds limit, bool goes_on) : limit_(limit), owes_(goes_on) {}

  Seconds elapsed() const {
    return Seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }
  // Asked by all threads.
  bool is_over() const { return limit_.value() > 0 && !owes_ && elapsed() > limit_; }
  // What a checkpoint keeps is more than the run began with.
  void came_forward() { owes_ = false; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Seconds limit_;
  std::atomic<bool> owes_;
};

}  // namespace orrery::search
