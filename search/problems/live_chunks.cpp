// SPDX-License-Identifier: Apache-2.0
#include "search/problems/live_chunks.hpp"

#include <algorithm>

namespace orrery::search {

void LiveChunks::append(int slices) {
  const int first = size();
  if (!sequences_.empty()) {
    sequences_.back().longest_after = slices;
  }
  sequence_of_.insert(sequence_of_.end(), static_cast<std::size_t>(slices),
                      static_cast<int>(sequences_.size()));
  sequences_.push_back({first, first + slices, 0});
}

LiveChunks::Set LiveChunks::before_backward(int stage, int k) const {
  const Sequence& own = of(k);
  // Forwards that the last stage needs, so that from here on one a backward is enough, and one
  // more for every stage between.
  const int begun = std::max(own.end, k + own.longest_after) + stages_ - 1 - stage;
  return {own.first, own.first + own.end - k, own.end, std::min(begun, size())};
}

bool LiveChunks::keeps_as_before(int stage) const {
  for (int k = 0; k < size(); ++k) {
    if (before_backward(stage, k).begun != before_backward(stage - 1, k).begun) {
      return false;
    }
  }
  return true;
}

}  // namespace orrery::search
