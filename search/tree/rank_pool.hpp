// SPDX-License-Identifier: Apache-2.0
// The pool of rank 0: its own threads and those of the other ranks. Each remote thread has one
// message with nodes to work on and a second one waiting; short nodes travel several together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "search/tree/remote_threads.hpp"
#include "search/tree/worker_pool.hpp"

namespace orrery::search {

// Of processor time, about: nodes that travel together.
inline constexpr Seconds kDelivery = Seconds(10e-3);
// Messages with nodes that are under way to a thread: one that it works on and one that waits.
inline constexpr int kDeliveriesUnderWay = 2;

class RankPool : public WorkerPool {
 public:
  // Waits until all ranks are ready. Error when one is not, or has other inputs.
  RankPool(const Tree& tree, int jobs, Ranks& ranks, const std::vector<InputHash>& inputs);

  std::vector<Done> run(const Batch& batch, const std::function<bool()>& stop) override;

 private:
  class Shared;  // a batch

  Tree tree_;
  RemoteThreads remote_;                // of the other ranks
  std::vector<std::uint64_t> last_;     // by thread: work of what was sent last
  double seconds_ = kWorkUnit.value();  // of a unit of work, lately
};

}  // namespace orrery::search
