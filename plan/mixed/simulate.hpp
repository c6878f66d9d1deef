// SPDX-License-Identifier: Apache-2.0
// Simulates plans of mixed clusters (docs/mixed-clusters.md). Every group of replicas runs its own
// pipeline: each stage costs what it costs on its pool (kernels, tensor-parallel collectives, NICs,
// memory), transfers between pools take the network between them, and data-parallel collectives
// whose ranks are of several kinds that of the weakest node. The step ends when the last replica
// has its gradients summed and the slowest device its parameters updated.
//
// On one pool all this is simulate() to the picosecond (tested).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/mixed/plan.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::plan {

// Throughput is that of the GPUs used, MFU and HFU of their peak. Where the time goes is said of
// the busiest device of all groups, with its wait for the last of them as bubble. A device's memory
// is that of the GPU with least left, of all groups. Spans and lists are not kept.
struct MixedSimulation : Simulation {
  // Of one group of replicas.
  struct Group {
    Seconds makespan;                 // of its passes
    Seconds slowest;                  // forward and backward of a micro-batch on its busiest device
    std::vector<Seconds> busy;        // by pipeline device
    std::vector<StageMemory> memory;  // likewise, on the GPU that has least left
    std::vector<int> pools;           // likewise: where that GPU is
  };
  Seconds reduction;  // of gradients, after the last backward
  std::vector<Group> groups;
  std::size_t busiest_group = 0;
  std::size_t busiest_device = 0;  // of it
};

class MixedSimulator {
 public:
  // For plans of this machine, network, sequence, precision and execution.
  explicit MixedSimulator(const MixedPlan& plan);
  ~MixedSimulator();
  MixedSimulator(MixedSimulator&&) noexcept;

  // `interval_draws`: even; 0, or where `stop_draws` ended them: the interval is the time itself.
  MixedSimulation run(const MixedPlan& plan, int interval_draws = 0,
                      const std::function<bool()>& stop_draws = {});
  MemoryVerdict fits(const MixedPlan& plan);
  // Never above run().iteration_time, each below the next: head, passes and tail of the busiest
  // device of every group; the lists without data-parallel traffic.
  Seconds lower_bound(const MixedPlan& plan);
  Seconds list_bound(const MixedPlan& plan);
  // What blocks cost on a pool, and for tensor-parallel ranks on several.
  BlockCosts& costs(std::size_t pool);
  BlockCosts& costs_of_team(const std::vector<int>& pools_of_ranks);

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace orrery::plan
