// SPDX-License-Identifier: Apache-2.0
#include "search/tree/drawing.hpp"

#include <algorithm>

#include "base/interrupt.hpp"

namespace orrery::search {

namespace {

constexpr Seconds kAfterwards(1);

}  // namespace

Drawing::Drawing(const Options& options, Seconds elapsed, std::size_t total,
                 const ProgressReport& found,
                 const std::function<void(const ProgressReport&)>& progress)
    : was_interrupted_(interrupted()), total_(total), found_(found), progress_(progress) {
  if (was_interrupted_) {
    left_ = kAfterwards;
  } else if (options.time_limit.value() > 0) {
    left_ = std::max(options.time_limit - elapsed, Seconds()) + kAfterwards;
  }
}

bool Drawing::is_over() {
  if (progress_) {
    ProgressReport report = found_;
    report.drawn = static_cast<int>(std::min(begun_++, total_));
    report.to_draw = static_cast<int>(total_);
    progress_(report);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  return (left_.value() > 0 && elapsed.count() > left_.value()) ||
         (interrupted() && !was_interrupted_);
}

}  // namespace orrery::search
