// SPDX-License-Identifier: Apache-2.0
// When the per-block search has to end: at its time limit, or when it is interrupted. What was
// asked to end early while it worked is cut short: its outcome is right, but not the same in every
// run.
#pragma once

#include <atomic>

#include "base/interrupt.hpp"
#include "search/tree/search.hpp"
#include "search/tree/time_limit.hpp"

namespace orrery::search {

class PerBlockClock {
 public:
  explicit PerBlockClock(const Options& options)
      : options_(options), limit_(options.time_limit, !options.resume.empty()) {}

  Seconds elapsed() const { return limit_.elapsed(); }
  bool is_out_of_time() const { return limit_.is_over(); }
  void came_forward() { limit_.came_forward(); }
  bool is_interrupted() const { return interrupted() || (options_.stop && options_.stop()); }

  // Asked by whatever then does less; by all threads.
  bool cuts_short() {
    if (is_interrupted() || is_out_of_time()) {
      is_cut_ = true;
    }
    return is_cut_;
  }
  void cut() { is_cut_ = true; }
  bool is_cut() const { return is_cut_; }

 private:
  const Options& options_;
  TimeLimit limit_;
  std::atomic<bool> is_cut_ = false;
};

}  // namespace orrery::search
