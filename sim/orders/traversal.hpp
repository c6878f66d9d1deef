// SPDX-License-Identifier: Apache-2.0
// The order of a description's passes over chunks, micro-batches and slices. O(1) a question.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/orders/schedule_document.hpp"

namespace orrery::sim {

// The order in which the forwards of a device are taken, and its gradients with chunks reversed.
class Traversal {
 public:
  Traversal(const ScheduleDescription& rule, const ScheduleParams& params)
      : stages_(params.stages),
        chunks_(params.chunks),
        slices_(params.slices),
        units_(params.micro_batches * params.slices),
        reversed_(rule.last_in_first_out) {
    const int group = rule.group > 0 ? rule.group : params.stages;
    group_ = rule.depth_first ? std::min(group, params.micro_batches) * slices_ : units_;
    for (int stage = 0; stage < stages_ * chunks_; ++stage) {
      chunk_of_.push_back(stage / stages_);
    }
  }

  std::int64_t position(const Pass& pass) const {
    if (chunks_ == 1) {
      return pass.micro_batch;
    }
    const int chunk = chunk_of_[pass.virtual_stage];
    const int before = pass.kind == PassKind::Forward ? chunk : chunks_ - 1 - chunk;
    // Narrow numbers: this runs for every pass, and wide ones take several times as long to divide.
    const auto group = static_cast<std::uint32_t>(group_);
    const std::int64_t first = pass.micro_batch / group * group;  // unit of its group
    const std::int64_t size = std::min<std::int64_t>(group_, units_ - first);
    return first * chunks_ + before * size + pass.micro_batch - first;
  }

  // The chunk and unit at a position.
  std::pair<int, std::uint32_t> at(std::int64_t position, bool forward) const {
    if (!forward && reversed_) {
      return along(total() - 1 - position, true);
    }
    auto [chunk, unit] = along(position, forward);
    if (!forward && slices_ > 1) {  // gradients of slices run back
      const auto slices = static_cast<std::uint32_t>(slices_);
      unit = unit / slices * slices + slices - 1 - unit % slices;
    }
    return {chunk, unit};
  }

  std::int64_t total() const { return std::int64_t{units_} * chunks_; }
  std::int64_t group() const { return group_; }
  int slices() const { return slices_; }
  // Positions differ by as much, so many units later.
  int period() const { return chunks_ == 1 ? 1 : static_cast<int>(group_); }

 private:
  std::pair<int, std::uint32_t> along(std::int64_t position, bool forward) const {
    const auto place = static_cast<std::uint32_t>(position);
    if (chunks_ == 1) {
      return {0, place};
    }
    const auto group = static_cast<std::uint32_t>(group_);  // narrow as above
    const auto chunks = static_cast<std::uint32_t>(chunks_);
    const std::uint32_t first = place / (group * chunks) * group;  // unit of its group
    const std::uint32_t size = std::min(group, static_cast<std::uint32_t>(units_) - first);
    const std::uint32_t in_group = place - first * chunks;
    const std::uint32_t chunk = in_group / size;
    return {static_cast<int>(forward ? chunk : chunks - 1 - chunk),
            first + in_group - chunk * size};
  }

  int stages_;
  int chunks_;
  int slices_;
  int units_;
  bool reversed_;
  std::int64_t group_ = 1;
  std::vector<int> chunk_of_;  // by virtual stage
};

}  // namespace orrery::sim
