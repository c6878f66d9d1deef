// SPDX-License-Identifier: Apache-2.0
// The lists of a plan's schedule and what follows from them alone, kept between plans that share
// them. Schedules that plan with times are made from the pass times of the plan, without
// data-parallel traffic, so ZeRO stages share lists. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/stage/live_counts.hpp"
#include "plan/stage/pass_costs.hpp"

namespace orrery::plan {

class OrderCache {
 public:
  explicit OrderCache(BlockCosts& costs) : costs_(costs) {}

  const sim::PipelineOrder& order_of(const Plan& plan);  // valid until the next call
  const std::vector<LiveCounts>& live_of(const Plan& plan);
  // Of the layers alone, with an output layer over all devices: it leaves their passes in one order
  // whatever they take, so that these counts are made once for all times.
  const std::vector<LiveCounts>& live_layers_of(const Plan& plan);
  // Versions of the parameters that every virtual stage keeps.
  const std::vector<int>& versions_of(const Plan& plan);
  // Device of every virtual stage, without making the lists.
  const std::vector<std::uint16_t>& devices_of(const Plan& plan);
  // The pieces of every virtual stage on these devices; where they come with the lists, on theirs.
  std::vector<StageContent> contents_of(const Plan& plan);
  SplitBackwards& splits() { return splits_; }

 private:
  struct Key {
    std::string name;
    const sim::ScheduleDocument* document = nullptr;
    int stages = 0;
    int micro_batches = 0;
    int chunks = 0;
    int slices = 1;
    double cap = 0;
    int warm_up = 0;
    int replicas = 1;
    int clock_distance = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Facts {
    std::vector<LiveCounts> live;
    std::vector<int> versions;
  };
  static Key key_of(const Plan& plan);
  Facts& facts_of(const Plan& plan);

  BlockCosts& costs_;
  SplitBackwards splits_;
  Key order_key_;  // of the last one made with times
  std::vector<sim::PassTimes> order_times_;
  sim::PipelineOrder order_;
  std::map<Key, sim::PipelineOrder> orders_;  // without times, as long as there is room
  std::int64_t passes_ = 0;                   // in them
  std::map<Key, Facts> facts_;                // of schedules without times: small, so all are kept
  std::map<Key, std::vector<LiveCounts>> live_layers_;
  Facts timed_;  // of `order_` when it was made with times
  bool timed_known_ = false;
  std::map<Key, std::vector<std::uint16_t>> devices_;
};

}  // namespace orrery::plan
