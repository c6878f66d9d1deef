// SPDX-License-Identifier: Apache-2.0
// Who evaluates batches: the threads of this process, each with a Worker of its own. Outcomes are
// by node, whoever evaluated it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/worker_crew.hpp"
#include "search/tree/batch.hpp"
#include "search/tree/handout.hpp"

namespace orrery::search {

Seconds thread_time();  // processor time of the calling thread

class KeptCosts;

class WorkerPool {
 public:
  // What the tree refers to outlives this, and so do costs that are kept; jobs > 0.
  WorkerPool(const Tree& tree, int jobs, KeptCosts* kept = nullptr);
  virtual ~WorkerPool() = default;

  // What became of each node; after `stop` nodes that have not begun are left out. `stop` is asked
  // by all threads.
  virtual std::vector<Done> run(const Batch& batch, const std::function<bool()>& stop);
  Worker& leader() { return workers_.leader(); }
  int jobs() const { return workers_.size(); }
  // Of every node its work, and a hash of what its lists and costs depend on.
  std::vector<Handout::Item> items(const Batch& batch) const;
  // From now on nodes say what they took, which costs two system calls each.
  void time_nodes() { times_nodes_ = true; }
  // `stop` ends draws of intervals.
  Done evaluate(int thread, Task task, const Node& node, const Known& known,
                const std::function<bool()>& stop);

 protected:
  // All threads of this process, until the handout is empty or `stop` says so.
  void work(const Batch& batch, Handout& handout, const std::function<bool()>& stop,
            std::vector<Done>& done);

 private:
  void answer(Worker& worker, Task task, const Node& node, const Known& known,
              const std::function<bool()>& stop, Done& done) const;

  Tree tree_;
  bool times_nodes_ = false;
  WorkerCrew<Worker> workers_;
};

}  // namespace orrery::search
