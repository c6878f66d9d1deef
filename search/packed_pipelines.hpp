// SPDX-License-Identifier: Apache-2.0
// Plans for sequences of different length in a pipeline (plan/packs.hpp), as DynaPipe makes them
// (search/problems/micro_batches.hpp): for a layout the cost model runs three micro-batches, which
// give the time and the bytes of any other; its cut, replicas and order are the plan's packs,
// padded each to its longest sequence. The cap of activations is what memory holds beside the
// states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "search/problems/micro_batches.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

// Of sequences, sorted as the planner wants them.
std::vector<Sample> samples_of(const std::vector<std::int64_t>& lengths);

class PipelinePacks {
 public:
  // `samples` stay alive.
  PipelinePacks(plan::Plan layout, const std::vector<Sample>& samples);
  PipelinePacks(PipelinePacks&&) noexcept;
  ~PipelinePacks();

  // The layout with packs of these sequences, simulated, that fits by categories of memory; each
  // call has less in flight than the one before. Nothing where no more do, or the schedule takes no
  // such number of micro-batches. `simulator`: of this layout but for degrees.
  std::optional<Found> next(plan::Simulator& simulator);
  // How much less was tried, for others of the same layout and samples to go on from; false where
  // that cannot be.
  std::size_t tried() const { return share_; }
  bool go_on_behind(std::size_t tried);

 private:
  struct Fitted;
  plan::Plan layout_;
  const std::vector<Sample>& samples_;
  std::unique_ptr<const Fitted> fitted_;
  std::size_t share_ = 0;  // that is tried next
};

}  // namespace orrery::search
