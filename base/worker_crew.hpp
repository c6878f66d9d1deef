// SPDX-License-Identifier: Apache-2.0
// A crew whose every member has a worker of its own: what is too dear to make for each loop, and
// holds results that its thread alone may use.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/crew.hpp"
#include "base/index_loop.hpp"

namespace orrery {

template <typename Worker>
class WorkerCrew {
 public:
  // make(first) gives a std::unique_ptr<Worker>, one after the other in the calling thread; `first`
  // is null for the first worker, of which the others may be copies. There are as many workers as
  // members, also where the system has fewer threads: then the last ones get no work.
  template <typename Make>
  WorkerCrew(int members, Make make) : crew_(members) {
    for (int member = 0; member < members; ++member) {
      workers_.push_back(make(workers_.empty() ? nullptr : workers_.front().get()));
    }
  }

  int size() const { return static_cast<int>(workers_.size()); }
  Worker& leader() { return *workers_.front(); }
  Worker& of(int member) { return *workers_[static_cast<std::size_t>(member)]; }

  // body(worker, member) by every thread; ends and throws as Crew::run() does.
  template <typename Body>
  void run(Body body) {
    crew_.run([&](int member) { body(of(member), member); });
  }

  // body(worker, index) for all indices below `count`, the next one by whoever is free. The
  // exception of the lowest index that failed is rethrown after all have ended.
  template <typename Body>
  void for_each(std::size_t count, Body body) {
    IndexLoop loop(count);
    work(loop, body);
    loop.rethrow();
  }

  // The same for a loop of which others take indices, too; without the exception.
  template <typename Body>
  void work(IndexLoop& loop, Body body) {
    run([&](Worker& worker, int) { loop.work([&](std::size_t index) { body(worker, index); }); });
  }

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
  Crew crew_;  // last: its threads end before the workers do
};

}  // namespace orrery
