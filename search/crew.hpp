// SPDX-License-Identifier: Apache-2.0
// Who evaluates batches: the threads of this process, each with a Worker of its own. Nodes whose
// lists or block costs are shared go to the same lane first; a lane without work of its own takes
// from the class that has most left. Outcomes are by node, whoever evaluated it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "search/frontier.hpp"

namespace orrery::search {

// Hands out the nodes of a batch to lanes; thread-safe.
class Handout {
 public:
  // `classes`: of every node, a hash.
  Handout(const std::vector<std::uint64_t>& classes, int lanes);
  // Nothing when all are handed out.
  std::optional<std::size_t> take(int lane);
  // Nodes that a lane may take together, at most `most`: half of its share of what is left, so that
  // all lanes end at about the same time.
  int share(int most);
  void stop();  // nothing more is handed out

 private:
  struct Class {
    std::vector<std::size_t> left;  // last first
    int owner = 0;
  };
  std::mutex mutex_;
  std::vector<Class> classes_;
  std::size_t left_ = 0;  // nodes
  int lanes_ = 1;
};

Seconds thread_time();  // processor time of the calling thread

class Crew {
 public:
  // The arguments outlive this; jobs > 0.
  Crew(const Space& space, const std::vector<Group>& groups,
       const std::vector<std::uint64_t>& first_order, int jobs);
  virtual ~Crew() = default;

  // What became of each node; after `stop` nodes that have not begun are left out. `stop` is asked
  // by all threads.
  virtual std::vector<Done> run(const Batch& batch, const std::function<bool()>& stop);
  Worker& leader() { return *workers_.front(); }
  int jobs() const { return static_cast<int>(workers_.size()); }
  // Of every node a hash of what its lists and costs depend on.
  std::vector<std::uint64_t> classes(const Batch& batch) const;

 protected:
  // All threads of this process, until the handout is empty or `stop` says so.
  void work(const Batch& batch, Handout& handout, const std::function<bool()>& stop,
            std::vector<Done>& done);
  Done evaluate(int lane, Task task, const Node& node, const Known& known);

 private:
  const Space& space_;
  const std::vector<Group>& groups_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace orrery::search
