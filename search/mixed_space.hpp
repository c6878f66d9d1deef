// SPDX-License-Identifier: Apache-2.0
// The plans that the search of mixed clusters tries (docs/mixed-clusters.md). An arrangement says
// which stages of which replicas run where:
//   stages    every replica alike, its stages on one pool after the other, in every order of every
//             choice of pools, as many of each pool as fit
//   replicas  every replica on one pool, as many of each pool as fit, each pool's replicas with
//             their own number of micro-batches
// Its members are layouts (sequence parallelism, recomputation), cuts into stages, schedules and
// ZeRO stages. Cuts: every way to divide the blocks among the pools, then within a pool the cut
// whose slowest stage is fastest there; with replicas, the best such cut of each pool.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/mixed_simulate.hpp"
#include "search/constraints.hpp"

namespace orrery::search {

struct Arrangement {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  std::int64_t micro_batch = 1;
  std::vector<plan::ReplicaGroup> groups;
  // Stages on each pool in turn, where all replicas are alike; empty where pools have their own.
  std::vector<int> runs;
};

struct MixedLayout {
  bool sequence_parallel = false;
  plan::Recompute recompute = plan::Recompute::None;
};

// Passes of every chain position on one pool under one layout, summed from the left.
struct ChainTimes {
  std::vector<SimTime> forward;  // one more than positions
  std::vector<SimTime> backward;
  SimTime of(std::size_t begin, std::size_t end) const {
    return forward[end] - forward[begin] + backward[end] - backward[begin];
  }
};

class MixedSpace {
 public:
  // Refers to all three.
  MixedSpace(const plan::MixedPlan& base, const Constraints& constraints,
             plan::MixedSimulator& simulator);

  const std::vector<Arrangement>& arrangements() const { return arrangements_; }
  std::vector<MixedLayout> layouts(const Arrangement& arrangement) const;
  // Blocks of every pool (or the pool whose cut it is), by cut.
  std::vector<std::vector<int>> cuts(const Arrangement& arrangement) const;
  std::vector<std::string> schedules(const Arrangement& arrangement) const;
  std::vector<int> zero_stages(const Arrangement& arrangement) const;
  std::int64_t num_members(const Arrangement& arrangement) const;

  // Chain positions of every stage.
  std::vector<int> stages(const Arrangement& arrangement, const MixedLayout& layout,
                          const std::vector<int>& cut);
  void configure(const Arrangement& arrangement, const MixedLayout& layout,
                 const std::vector<int>& stages, const std::string& schedule, int zero_stage,
                 plan::MixedPlan& plan) const;

  // Lower bounds on the time of every member of an arrangement: of all layouts, of one, and of one
  // cut. Without traffic, optimizer and the gradients after the last backward.
  Seconds least_time(const Arrangement& arrangement);
  Seconds least_time(const Arrangement& arrangement, const MixedLayout& layout);
  Seconds least_time(const Arrangement& arrangement, const MixedLayout& layout,
                     const std::vector<int>& stages);

 private:
  const ChainTimes& times(int pool, int tp, std::int64_t micro_batch, const MixedLayout& layout);
  void add_shapes(const std::vector<int>& pools, int tp);
  void add_stages(std::vector<int> order, int tp);
  void add_replicas(const std::vector<int>& pools, int tp);
  void add_shares(Arrangement arrangement, std::int64_t micro_batches);
  std::int64_t gpus_of(int pool) const;
  bool admits(const Arrangement& arrangement) const;

  const plan::MixedPlan& base_;
  const Constraints& constraints_;
  plan::MixedSimulator& simulator_;
  std::vector<Arrangement> arrangements_;
  std::map<std::vector<std::int64_t>, ChainTimes> times_;
};

}  // namespace orrery::search
