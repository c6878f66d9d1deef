// SPDX-License-Identifier: Apache-2.0
// Which replica a request goes to, decided when it arrives and from what the replicas then hold:
//
//   in turn        one after the other, whatever they do
//   least loaded   the one with the fewest requests that are not done; equal ones in turn
//   prefix         of the replicas that hold the prompt's prefix, or have a request with it
//                  waiting, the least loaded one; else the least loaded of all. While the fullest replica
//                  has more than 64 requests more than the emptiest, and more than 1.5 times as
//                  many, load alone decides (the cache-aware policy of SGLang's router and its
//                  defaults, balance-abs-threshold and balance-rel-threshold).
//
// Replicas stand in engines of one or several that compute in step (serving/engine.hpp).
// O(replicas) a request. Deterministic.
#pragma once

#include <span>
#include <vector>

#include "plan/serving/batching.hpp"

namespace orrery::plan {

struct ReplicaState {
  std::int64_t outstanding = 0;  // requests that are not done
  bool has_prefix = false;       // of the request that is routed
};

class Router {
 public:
  explicit Router(Routing routing) : routing_(routing) {}
  std::size_t route(std::span<const ReplicaState> replicas);

 private:
  std::size_t least_loaded(std::span<const ReplicaState> replicas, bool with_prefix) const;

  Routing routing_;
  std::size_t next_ = 0;  // in turn; where ties begin
};

// The runs of all replicas; engine.replicas of them, which must divide their number, share an
// engine.
std::vector<BatchRun> run_routed(std::span<const Request> requests, const ServingOptions& options,
                                 const BatchEngine& engine, int replicas);

}  // namespace orrery::plan
