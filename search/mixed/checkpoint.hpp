// SPDX-License-Identifier: Apache-2.0
// Checkpoints of the search of a mixed cluster (search/tree/checkpoint.hpp): its state between two
// batches, once all arrangements are listed and bounded.
#pragma once

#include <vector>

#include "search/mixed/state.hpp"
#include "search/tree/kept_state.hpp"

namespace orrery::search {

class MixedCheckpoint {
 public:
  MixedCheckpoint(const plan::MixedPlan& base, const Options& options);

  // False where there is nothing to go on from; then the file says that the search has begun.
  bool read(MixedWorker& worker, MixedState& state);
  void save(const MixedState& state);
  void save_when_due(const MixedState& state);
  // A batch, which has left the state, was cut short: it is the last one, and what there is of it
  // is not the same in every run.
  void cut(const std::vector<MixedNode>& batch, MixedState& state);
  // What was found from here on is not the same in every run.
  void close() { kept_.close(); }

 private:
  std::string where_;  // what is read, to be named in errors
  KeptState kept_;
};

}  // namespace orrery::search
