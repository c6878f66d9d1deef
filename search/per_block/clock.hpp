// SPDX-License-Identifier: Apache-2.0
// When the per-block search has to end: at its time limit, or when it is interrupted. What was
// asked to end early while it worked is cut short: its outcome is right, but not the same in every
// run.
#pragma once

#include <atomic>
#include <chrono>

#include "base/interrupt.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

class PerBlockClock {
 public:
  explicit PerBlockClock(const Options& options) : options_(options) {}

  Seconds elapsed() const {
    return Seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }
  bool is_out_of_time() const {
    return options_.time_limit.value() > 0 && elapsed() > options_.time_limit;
  }
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
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<bool> is_cut_ = false;
};

}  // namespace orrery::search
