// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/routing.hpp"

#include <algorithm>
#include <deque>

#include "base/error.hpp"
#include "plan/serving/engine.hpp"

namespace orrery::plan {
namespace {

constexpr std::int64_t kMoreRequests = 64;
constexpr double kMoreTimes = 1.5;

bool is_unbalanced(std::span<const ReplicaState> replicas) {
  const auto [least, most] = std::minmax_element(
      replicas.begin(), replicas.end(),
      [](const ReplicaState& a, const ReplicaState& b) { return a.outstanding < b.outstanding; });
  return most->outstanding - least->outstanding > kMoreRequests &&
         static_cast<double>(most->outstanding) >
             kMoreTimes * static_cast<double>(least->outstanding);
}

}  // namespace

std::size_t Router::least_loaded(std::span<const ReplicaState> replicas, bool with_prefix) const {
  std::size_t best = replicas.size();
  for (std::size_t step = 0; step < replicas.size(); ++step) {
    const std::size_t index = (next_ + step) % replicas.size();
    const bool takes_part = !with_prefix || replicas[index].has_prefix;
    if (takes_part &&
        (best == replicas.size() || replicas[index].outstanding < replicas[best].outstanding)) {
      best = index;
    }
  }
  return best;
}

std::size_t Router::route(std::span<const ReplicaState> replicas) {
  std::size_t chosen = next_;
  if (routing_ != Routing::InTurn) {
    const bool by_prefix = routing_ == Routing::Prefix && !is_unbalanced(replicas) &&
                           std::any_of(replicas.begin(), replicas.end(),
                                       [](const ReplicaState& state) { return state.has_prefix; });
    chosen = least_loaded(replicas, by_prefix);
  }
  next_ = (chosen + 1) % replicas.size();
  return chosen;
}

std::vector<BatchRun> run_routed(std::span<const Request> requests, const ServingOptions& options,
                                 const BatchEngine& engine, int replicas) {
  ORRERY_CHECK(replicas % engine.replicas == 0, "an engine with fewer replicas than the others");
  const auto each = static_cast<std::size_t>(engine.replicas);
  std::deque<ServingEngine> engines;
  for (int first = 0; first < replicas; first += engine.replicas) {
    engines.emplace_back(options, engine);
  }
  std::vector<ReplicaState> states(static_cast<std::size_t>(replicas));
  const auto replica_of = [&](std::size_t index) -> const ServingReplica& {
    return engines[index / each].replica(static_cast<int>(index % each));
  };
  Router router(options.routing);
  for (const Request& request : requests) {
    if (options.routing != Routing::InTurn) {  // which asks for nothing
      for (ServingEngine& running : engines) {
        running.run_until(request.arrival);
      }
      for (std::size_t index = 0; index < states.size(); ++index) {
        const ServingReplica& replica = replica_of(index);
        states[index] = {replica.outstanding(),
                         request.prefix >= 0 && replica.holds(request.prefix)};
      }
    }
    const std::size_t chosen = router.route(states);
    engines[chosen / each].submit(static_cast<int>(chosen % each), request);
  }
  std::vector<BatchRun> runs;
  for (ServingEngine& running : engines) {
    running.run();
    for (int index = 0; index < engine.replicas; ++index) {
      runs.push_back(running.take_run(index));
    }
    if (runs.back().gave_up) {
      break;
    }
  }
  return runs;
}

}  // namespace orrery::plan
