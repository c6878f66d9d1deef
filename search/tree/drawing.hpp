// SPDX-License-Identifier: Apache-2.0
// How long a search goes on drawing the errors of the times that it found (plan/simulation/
// interval.hpp), that of packs also listing them: until Ctrl-C, and no longer than is left of its
// time limit. After an early end a second remains, in which all but the largest plans are drawn.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "search/tree/search.hpp"

namespace orrery::search {

class Drawing {
 public:
  // `total` draws of a search that began so long ago; `progress`, where there is one, is told of
  // them beside what the search found.
  Drawing(const Options& options, Seconds elapsed, std::size_t total = 0,
          const ProgressReport& found = {},
          const std::function<void(const ProgressReport&)>& progress = {});
  // With so many seconds left; 0: without a limit.
  explicit Drawing(Seconds left) : left_(left) {}

  Seconds left() const { return left_; }
  // Asked before each draw, by all threads.
  bool is_over();

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Seconds left_;
  bool was_interrupted_ = false;
  std::size_t total_ = 0;
  std::atomic<std::size_t> begun_ = 0;
  ProgressReport found_;
  std::function<void(const ProgressReport&)> progress_;
};

}  // namespace orrery::search
