// SPDX-License-Identifier: Apache-2.0
// An engine of serving as it goes: requests are handed to it while it runs, so that who hands them
// out may look at it first (serving/routing.hpp). It has one replica, or several that compute in
// step: those whose experts are spread over all of them form their iterations at the same time and
// end them together, empty ones included (docs.vllm.ai, data parallel deployment).
//
// With p stages there are p groups of requests, whose iterations follow each other through the
// pipeline. Handing in every request before the first step and handing in each one when it arrives
// come to the same (ServingProperty.RoutedInTurnIsDealtInTurn). Deterministic.
#pragma once

#include <deque>
#include <vector>

#include "plan/serving/replica.hpp"

namespace orrery::plan {

class ServingEngine {
 public:
  ServingEngine(const ServingOptions& options, const BatchEngine& engine,
                const IterationObserver& observe = {});

  // To one of its replicas; never earlier than what was run or handed in before.
  void submit(int replica, const Request& request);
  // Forms every iteration that begins before `until`, and ends those that end by then.
  void run_until(SimTime until);
  // Until nothing is left to do.
  void run();

  const ServingReplica& replica(int index) const {
    return replicas_[static_cast<std::size_t>(index)];
  }
  BatchRun take_run(int index) {
    return std::move(replicas_[static_cast<std::size_t>(index)].run());
  }

 private:
  struct Group {
    SimTime ready;  // its iteration has left the last stage
    bool in_flight = false;
  };

  bool unfinished() const;
  bool is_running(int group) const;
  bool step(SimTime until);
  bool gives_up(SimTime now);
  void complete_until(SimTime now);
  void execute(int group, const std::vector<Iteration>& iterations, SimTime now);
  SimTime time_of(int stage, const std::vector<Iteration>& iterations) const;
  SimTime transfer_of(int stage, const std::vector<Iteration>& iterations) const;
  void wait(int group, SimTime now);

  BatchEngine engine_;
  IterationObserver observe_;
  std::vector<Group> groups_;
  std::vector<SimTime> free_;  // per stage
  std::deque<ServingReplica> replicas_;
  std::int64_t formed_ = 0;
  std::uint64_t steps_ = 0;
  bool gave_up_ = false;
};

}  // namespace orrery::plan
