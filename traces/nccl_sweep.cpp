// SPDX-License-Identifier: Apache-2.0
#include "traces/nccl_sweep.hpp"

namespace orrery::traces {

void NcclSweep::configure(std::int64_t max_bytes, std::int64_t step, bool factor) {
  configured_ = step > 0;
  max_bytes_ = max_bytes;
  step_ = step;
  factor_ = factor;
}

void NcclSweep::start(std::string_view collective, int ranks) {
  const bool rounds = collective != "all_reduce" && collective != "reduce" &&
                      collective != "broadcast" && collective != "sendrecv";
  const bool power_of_two = ranks > 0 && (ranks & (ranks - 1)) == 0;
  may_repeat_ = rounds && !power_of_two;
  slack_ = rounds ? 16LL * ranks * (factor_ ? step_ : 1) : 0;
  series_.clear();
  cycle_.clear();
  position_ = 0;
  last_ = 0;
}

bool NcclSweep::accept(const std::string& series, std::int64_t size) {
  if (size == 0) {
    return true;  // too small to give every rank an element
  }
  if (series != series_) {
    series_ = series;
    cycle_.clear();
    position_ = 0;
  }
  last_ = size;
  if (position_ == 0) {
    if (cycle_.empty() || size > cycle_.back() || (may_repeat_ && size == cycle_.back())) {
      cycle_.push_back(size);
      return true;
    }
    position_ = 1;
    return size == cycle_.front();
  }
  const bool expected = size == cycle_[position_ % cycle_.size()];
  ++position_;
  return expected;
}

bool NcclSweep::complete() const {
  if (!configured_ || last_ == 0) {
    return true;
  }
  const double next = factor_ ? static_cast<double>(last_) * static_cast<double>(step_)
                              : static_cast<double>(last_) + static_cast<double>(step_);
  return next + static_cast<double>(slack_) > static_cast<double>(max_bytes_);
}

}  // namespace orrery::traces
