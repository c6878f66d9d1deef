// SPDX-License-Identifier: Apache-2.0
// The order in which nccl-tests goes through its sizes: upwards, once or in equal cycles (-N), anew
// for each type, operation and root. Rows that break it come from two runs mixed into one file; a
// sweep that stops before its last size was cut off.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::traces {

class NcclSweep {
 public:
  // "nThread 1 nGpus 8 minBytes 8 maxBytes 1024 step: 2(factor) ..."
  void configure(std::int64_t max_bytes, std::int64_t step, bool factor);
  void reduce_max(std::int64_t max_bytes) { max_bytes_ = max_bytes; }
  // Sizes that are rounded down to multiples of the ranks may repeat.
  void start(std::string_view collective, int ranks);
  // Whether a row of that size may come next; `series` is its type, operation and root.
  bool accept(const std::string& series, std::int64_t size);
  // Whether the sizes so far reach the configured end; true when none is known.
  bool complete() const;
  std::int64_t last() const { return last_; }
  std::int64_t max_bytes() const { return max_bytes_; }

 private:
  bool configured_ = false;
  std::int64_t max_bytes_ = 0;
  std::int64_t step_ = 0;
  bool factor_ = true;
  bool may_repeat_ = false;
  std::int64_t slack_ = 0;
  std::string series_;
  std::vector<std::int64_t> cycle_;  // sizes of the first cycle
  std::size_t position_ = 0;         // in a later one; 0: still in the first
  std::int64_t last_ = 0;
};

}  // namespace orrery::traces
