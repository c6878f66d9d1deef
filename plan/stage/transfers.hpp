// SPDX-License-Identifier: Apache-2.0
// The time of the transfers between neighbouring virtual stages, alone on their route.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

// Parts of a boundary that every tensor-parallel rank holds whole and that they send one each;
// where they cut the stream (sequence parallelism, tensor meshes) each has only its part anyway.
int parts_sent(const Plan& plan, const BlockPlan& layout);

// Of a boundary that was sent in parts, inside the node of the receiver; 0 for one part.
SimTime gather_of_parts(const Plan& plan, const BlockCosts& costs, ByteCount bytes, int parts);

// Transfers between two pipeline devices by size and distance; each is priced once.
class TransferTimes {
 public:
  // Refers to `costs`, which must not change its draw.
  explicit TransferTimes(const BlockCosts& costs) : costs_(costs) {}
  TransferTimes(const TransferTimes&) = delete;
  TransferTimes& operator=(const TransferTimes&) = delete;
  SimTime of(const Plan& plan, ByteCount bytes, int parts, int device_a, int device_b);

 private:
  const BlockCosts& costs_;
  using Key = std::tuple<std::int64_t, int, int>;  // bytes, parts, nodes apart
  std::map<Key, SimTime> known_;
  std::map<Key, SimTime>::iterator latest_ = known_.end();  // neighbours ask for the same
};

// Of the boundary tensor from virtual stage s to s + 1, at index s; 0 within one device.
std::vector<SimTime> transfers(const Plan& plan, const BlockCosts& costs,
                               const std::vector<StageCost>& stages,
                               const std::vector<std::uint16_t>& device_of);

// Of the features that copies of a frozen encoder on other devices make for an iteration, one after
// the other into the first stage; they have the iteration before for it. 0 in other schedules.
SimTime features_time(const Plan& plan, const BlockCosts& costs,
                      const std::vector<StageCost>& stages, const sim::PipelineOrder& order);

}  // namespace orrery::plan
