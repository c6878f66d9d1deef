// SPDX-License-Identifier: Apache-2.0
// One group of replicas of a mixed plan: its pipeline, stage by stage on the pools that it names
// (plan/mixed/simulate.hpp says what is modelled). A stage whose tensor-parallel ranks are on
// several pools costs what its group takes together (plan/block/group_steps.hpp); its bytes are
// those of the rank that holds most on each of them. Where groups share states that meet in every
// pass (ZeRO-2 and 3), they run in step: passes and transfers take what the slowest group's take.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/mixed/machine.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/step_end.hpp"

namespace orrery::plan {

using CostOfStage = StageCost (*)(const StageContent&, const Plan&, BlockCosts&, const Slice&);

class MixedPipeline {
 public:
  MixedPipeline(const MixedPlan& plan, const ReplicaGroup& group, KindsOfNodes& kinds);

  // With those of the groups that run in step with this one.
  void cost_stages(CostOfStage cost_of);
  // This group's alone, for floor, optimizer and memory, where the others have no part.
  void cost_own(CostOfStage cost_of);
  // After cost_stages. Lists made with times last until the next call.
  const sim::PipelineOrder& order();
  sim::PipelineResult evaluate(const sim::PipelineOrder& order);
  SimTime floor();
  // The end of the step on the devices of every pool; the slowest of each part counts.
  StepEnd close(const sim::PipelineResult& pipeline);
  Seconds optimizer();
  // What a device computes and waits for in its passes; for the other groups in step it waits
  // beyond that.
  TimeBreakdown breakdown(const sim::PipelineOrder& order, const sim::PipelineResult& result,
                          std::size_t device);

  // What a device holds on one of its pools.
  struct Held {
    std::size_t device = 0;
    int pool = 0;
    StageMemory memory;
  };
  // By device; of several pools in turn.
  std::vector<Held> memory();

 private:
  NodeKind& front() { return kinds_.pool(group_.pools.front()); }
  // Those of a device together, or its pool.
  NodeKind& kind_of_device(std::size_t device);
  NodeKind& kind_of(std::size_t stage) { return kind_of_device(device_of_[stage]); }
  // Stages with the states that a pool's devices hold of them; none where they are elsewhere.
  std::vector<StageCost> stages_on(int pool);
  template <typename Visit>
  void for_pools(Visit visit);
  sim::PipelineCosts own_passes(const std::optional<std::vector<bool>>& last_is_cut,
                                const std::vector<SimTime>& arrivals);
  void add_hidden(sim::PipelineCosts& passes);
  // The slowest of all groups in step. `last_is_cut`: as that of cuts(); none: backwards are whole.
  sim::PipelineCosts passes(const std::optional<std::vector<bool>>& last_is_cut);
  // `last_is_cut`: by stage, whether reductions of the step begin with the weight gradients.
  std::vector<SplitTimes> cuts(const std::vector<bool>& last_is_cut);
  std::vector<StageMemory> memory_of(const std::vector<StageContent>& contents,
                                     const std::vector<StageCost>& stages,
                                     const std::vector<LiveCounts>& live);
  // The blocks of every stage as the rank that holds most of those on a pool has them.
  std::vector<StageContent> contents_on(int pool);
  // Whether two devices are on the same pools.
  bool is_beside(std::size_t device, std::size_t other) const;
  int place_of(std::uint16_t device) const;
  SimTime transfer(ByteCount bytes, int parts, std::uint16_t from, std::uint16_t to);
  std::vector<SimTime> transfers();

  const MixedPlan& plan_;
  const ReplicaGroup& group_;
  KindsOfNodes& kinds_;
  std::vector<bool> shares_experts_;  // by device: with replicas on other pools
  std::vector<std::uint16_t> device_of_;
  std::vector<StageContent> contents_;
  std::vector<StageCost> stages_;
  std::vector<SimTime> sends_;
  sim::PipelineOrder order_;
  std::vector<MixedPipeline> in_step_;  // the other groups
};

}  // namespace orrery::plan
