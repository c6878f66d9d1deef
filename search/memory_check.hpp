// SPDX-License-Identifier: Apache-2.0
// Whether a plan that fits by categories of memory also fits when it is replayed through the
// caching allocator (plan/memory_replay.hpp): what was freed cannot always be used again. Far
// dearer than the categories, so that only plans that would be an answer are asked, and only where
// the categories leave little free.
#pragma once

#include "plan/simulate.hpp"

namespace orrery::search {

class MemoryCheck {
 public:
  // `reserve` is kept free on every card; `jobs` threads.
  MemoryCheck(ByteCount reserve, int jobs) : reserve_(reserve), jobs_(jobs) {}

  plan::MemoryVerdict operator()(plan::Plan plan, plan::Simulator& simulator) const;

 private:
  ByteCount reserve_;
  int jobs_;
};

}  // namespace orrery::search
