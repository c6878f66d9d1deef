// SPDX-License-Identifier: Apache-2.0
// Where a search keeps its state while it runs, and what it goes on from (search/tree/
// checkpoint.hpp).
#pragma once

#include <string>

#include "base/units.hpp"

namespace orrery::search {

struct StateFiles {
  std::string checkpoint;  // file that is kept up to date; empty: none
  Seconds checkpoint_every = Seconds(10);
  std::string resume;  // checkpoint to go on from; empty: none
};

}  // namespace orrery::search
