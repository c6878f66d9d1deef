// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/limits.hpp"

namespace orrery::plan {
namespace {

// Simulated time ends after 106 days; this is half of it.
constexpr SimTime kLongest{std::int64_t{1} << 62};
constexpr std::uint64_t kLookEvery = 256;  // steps, of some microseconds each

SimTime later(SimTime time, SimTime takes) {
  if (takes > kLongest || time > kLongest - takes) {
    bad_input("requests", "serving them takes more than 53 days", "serve fewer or shorter ones");
  }
  return time + takes;
}

}  // namespace

ServingEngine::ServingEngine(const ServingOptions& options, const BatchEngine& engine,
                             const IterationObserver& observe)
    : engine_(engine),
      observe_(observe),
      groups_(static_cast<std::size_t>(engine.stages)),
      free_(groups_.size()) {
  for (int index = 0; index < engine.replicas; ++index) {
    replicas_.emplace_back(options, engine.stages, engine.kv_tokens, engine.sliding);
  }
}

void ServingEngine::submit(int replica, const Request& request) {
  replicas_[static_cast<std::size_t>(replica)].submit(request);
  for (Group& group : groups_) {  // those that wait for another event wait for this one
    if (!group.in_flight) {
      group.ready = std::min(group.ready, request.arrival);
    }
  }
}

bool ServingEngine::unfinished() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const ServingReplica& replica) { return replica.outstanding() > 0; });
}

bool ServingEngine::is_running(int group) const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [&](const ServingReplica& replica) { return replica.is_running(group); });
}

void ServingEngine::run_until(SimTime until) {
  while (step(until)) {
  }
  complete_until(until);
}

void ServingEngine::run() {
  while (step(SimTime::max())) {
  }
  for (ServingReplica& replica : replicas_) {
    replica.run().gave_up = gave_up_;
  }
}

// Once and for all.
bool ServingEngine::gives_up(SimTime now) {
  gave_up_ = gave_up_ || now > engine_.give_up ||
             (engine_.stop && ++steps_ % kLookEvery == 0 && engine_.stop());
  return gave_up_;
}

// The next iteration, or the next wait; false where nothing begins before `until`.
bool ServingEngine::step(SimTime until) {
  const auto group =
      std::min_element(groups_.begin(), groups_.end(),
                       [](const Group& a, const Group& b) { return a.ready < b.ready; });
  const SimTime now = std::max(group->ready, free_.front());
  if (now >= until || !unfinished()) {
    return false;
  }
  complete_until(now);
  if (!unfinished()) {
    return false;
  }
  if (gives_up(now)) {
    return false;
  }
  const auto index = static_cast<int>(group - groups_.begin());
  std::vector<Iteration> iterations;
  std::int64_t tokens = 0;
  for (ServingReplica& replica : replicas_) {
    replica.take_arrivals(now);
    iterations.push_back(replica.form(index, now));
    tokens += iterations.back().tokens();
  }
  if (tokens == 0) {
    wait(index, now);
  } else {
    execute(index, iterations, now);
  }
  return true;
}

// Ends the iterations that are over, in order of time.
void ServingEngine::complete_until(SimTime now) {
  for (;;) {
    Group* first = nullptr;
    for (Group& group : groups_) {
      if (group.in_flight && group.ready <= now &&
          (first == nullptr || group.ready < first->ready)) {
        first = &group;
      }
    }
    if (first == nullptr) {
      break;
    }
    first->in_flight = false;
    for (ServingReplica& replica : replicas_) {
      replica.complete(static_cast<int>(first - groups_.data()), first->ready);
    }
  }
  for (ServingReplica& replica : replicas_) {
    replica.advance(now);
  }
}

SimTime ServingEngine::time_of(int stage, const std::vector<Iteration>& iterations) const {
  return replicas_.size() > 1 ? engine_.time_in_step(stage, iterations)
                              : engine_.time(stage, iterations.front());
}

SimTime ServingEngine::transfer_of(int stage, const std::vector<Iteration>& iterations) const {
  SimTime longest;
  for (const Iteration& iteration : iterations) {
    longest = std::max(longest, engine_.transfer(stage, iteration));
  }
  return longest;
}

void ServingEngine::execute(int group, const std::vector<Iteration>& iterations, SimTime now) {
  SimTime time = now;
  for (int stage = 0; stage < engine_.stages; ++stage) {
    const auto slot = static_cast<std::size_t>(stage);
    const SimTime takes = time_of(stage, iterations);
    time = later(std::max(time, free_[slot]), takes);
    free_[slot] = time;
    for (ServingReplica& replica : replicas_) {
      replica.run().busy[slot] += takes;
    }
    if (engine_.stages > 1) {
      time = later(time, transfer_of(stage, iterations));
    }
  }
  groups_[static_cast<std::size_t>(group)] = {time, true};
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (iterations[index].tokens() == 0) {
      continue;
    }
    ++replicas_[index].run().iterations;
    if (observe_) {
      observe_(iterations[index], now, time, replicas_[index].held());
    }
  }
  if (++formed_ > limits::kMaxPasses) {
    bad_input("requests", fmt::format("they take more than {} iterations", limits::kMaxPasses));
  }
}

// Nothing to do before a request arrives or another group acts.
void ServingEngine::wait(int group, SimTime now) {
  SimTime next = SimTime::max();
  for (const ServingReplica& replica : replicas_) {
    next = std::min(next, replica.next_arrival());
  }
  for (int index = 0; index < engine_.stages; ++index) {
    const Group& other = groups_[static_cast<std::size_t>(index)];
    if (other.in_flight) {
      next = std::min(next, other.ready);
    } else if (index != group && is_running(index)) {
      next = std::min(next, std::max(other.ready, now) + SimTime{1});
    }
  }
  ORRERY_CHECK(next > now && next < SimTime::max(), "requests wait for nothing");
  groups_[static_cast<std::size_t>(group)].ready = next;
}

}  // namespace orrery::plan
