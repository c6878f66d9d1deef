// SPDX-License-Identifier: Apache-2.0
// Who answers the questions of a batch of the per-block search: the threads of this process and,
// once they have joined, those of other ranks. Answers are by question, whoever gave them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/worker_crew.hpp"
#include "search/per_block/worker.hpp"
#include "search/tree/remote_threads.hpp"

namespace orrery::search {

class PerBlockPool {
 public:
  // What it refers to outlives this. `stop`: what is worked on is to end early; by all threads.
  PerBlockPool(const PerBlockSpace& space, const Options& options, std::function<bool()> stop);

  // Error when a rank is not ready or has other inputs.
  void join(Ranks& ranks, const std::vector<InputHash>& inputs);

  // Questions in an order in which the longest are asked first.
  std::vector<PerBlockDone> run(const std::vector<PerBlockWork>& batch);
  PerBlockDone evaluate(int thread, const PerBlockWork& work) {
    return workers_.of(thread).evaluate(work);
  }
  const MeshCosts& costs_of(int thread, std::uint32_t mesh) {
    return workers_.of(thread).costs_of(mesh);
  }
  PerBlockWorker& leader() { return workers_.leader(); }
  int jobs() const { return workers_.size(); }

 private:
  class Shared;  // a batch

  const PerBlockSpace& space_;
  PricedMeshes priced_;
  std::function<bool()> stop_;
  WorkerCrew<PerBlockWorker> workers_;
  std::unique_ptr<RemoteThreads> remote_;
};

// For search_per_block() (search/tree/ranks.hpp), which begins with a homogeneous search.
std::unique_ptr<Service> per_block_service(SearchKind kind, const plan::Plan& base,
                                           const Options& options);

}  // namespace orrery::search
