// SPDX-License-Identifier: Apache-2.0
// What ends the search of a mixed cluster early: Ctrl-C, the limit on time, or that on work
// (`Options::most_work`), which ends it alike on every machine.
#pragma once

#include <cstdint>

#include "search/tree/search.hpp"
#include "search/tree/time_limit.hpp"

namespace orrery::search {

class MixedLimits {
 public:
  explicit MixedLimits(const Options& options)
      : options_(options), limit_(options.time_limit, !options.resume.empty()) {}

  Seconds elapsed() const { return limit_.elapsed(); }
  void came_forward() { limit_.came_forward(); }
  bool is_interrupted() const;
  bool is_stopped() const;  // or out of time
  // So long after such an end that what is to be listed is cut short, too.
  bool is_overdue() const;
  // Asked while arrangements are listed, which is work.
  bool ends_list();

  void use(std::uint64_t work) { used_ += work; }
  std::uint64_t used() const { return used_; }
  bool has_limit() const { return options_.most_work > 0; }
  // Of the limit on work, in parts: the search has half of it, what looks for any plan the rest.
  bool exceeds_half(std::uint64_t more = 0) const;
  bool exceeds_all() const;
  // Whether a plan is all that is asked for, and nothing of those that miss.
  bool wants_any() const { return has_limit() && options_.gap_fraction >= 1; }

 private:
  const Options& options_;
  TimeLimit limit_;
  std::uint64_t used_ = 0;  // of all kinds
};

}  // namespace orrery::search
