// SPDX-License-Identifier: Apache-2.0
// Checkpoints of the per-block search (search/tree/checkpoint.hpp): first those of the homogeneous
// search that it begins with, then its own state between two batches. In one file, with the same
// inputs. What was cut short is not the same in every run: then the state before it is kept.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "search/per_block/clock.hpp"
#include "search/per_block/state.hpp"
#include "search/tree/checkpoint.hpp"

namespace orrery::search {

// Of the homogeneous search that the per-block one begins with.
Options first_options(Options options);
// What two searches have to agree on. `first`: of the homogeneous search. Empty where nothing
// divides, which the search says.
std::vector<InputHash> per_block_inputs(const plan::Plan& base, const Options& first);

class PerBlockCheckpoint {
 public:
  // `inputs` are of use where `first` names a file.
  PerBlockCheckpoint(const Options& first, const PerBlockClock& clock,
                     const std::vector<InputHash>& inputs);

  // False where there is nothing to go on from, or the homogeneous search goes on from it.
  bool read(const PerBlockSpace& space, const CostsOf& costs_of, PerBlockState& state) const;
  void save(const PerBlockState& state);
  void save_when_due(const PerBlockState& state);
  // Before the outcomes of `batch` are taken in: where it was cut short, it is the last one.
  void save_before(const std::vector<PerBlockNode>& batch, PerBlockState& state);

 private:
  void write(const PerBlockState& state);

  const Options& options_;
  const PerBlockClock& clock_;
  const std::vector<InputHash>& inputs_;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
};

}  // namespace orrery::search
