// SPDX-License-Identifier: Apache-2.0
// The plans of a mesh and a pipeline by number, to simulate every one where there are few: cuts in
// lexicographic order, within a cut the strategies of the blocks, that of the first counting
// fastest.
#pragma once

#include <cstdint>

#include "search/per_block/space.hpp"

namespace orrery::search {

// Consecutive ones.
struct PlanRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class NumberedPlans {
 public:
  NumberedPlans(const PerBlockSpace& space, const StageMesh& mesh, const Pipeline& pipeline);

  // Negative: more than 63 bits hold.
  std::int64_t size() const { return size_; }
  // Few enough to simulate every one.
  bool are_few(std::int64_t micro_batches) const;
  // `number` is below the size, which is known.
  Draft at(std::int64_t number) const;
  // The next one; the draft is not the last.
  void advance(Draft& draft) const;

 private:
  std::vector<int> cut_at(std::int64_t number) const;

  int positions_;
  int stages_;
  std::int64_t strategies_;
  std::vector<int> fixed_cut_;  // empty: any
  std::int64_t size_ = 0;
};

}  // namespace orrery::search
