// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer state of a block under ZeRO, and the collectives that keep
// them consistent (ZeRO, Rajbhandari et al. 2020; docs/plan.md): a gradient is partial over
// the axes that split the batch; where it is stored decides between all-reduce and reduce-scatter,
// where the optimizer works decides the gather of parameters.
#pragma once

#include <vector>

#include "plan/block_cost.hpp"

namespace orrery::plan {

struct StateBytes {
  ByteCount parameters;
  ByteCount gradients;
  ByteCount optimizer;
  ByteCount gathered;             // whole parameters of the block, where ZeRO-3 shards them
  ByteCount unreduced;            // whole gradients of the block, where ZeRO-2 and 3 shard them
  std::int64_t local_parameters;  // that the optimizer updates on this device
  StateBytes& operator+=(const StateBytes& other);
};

struct StateTraffic {
  Seconds reduce;  // gradients, once per reduction
  Seconds gather;  // parameters: ZeRO-1/2 once a step, ZeRO-3 once a pass
  ByteCount gradient;  // to be reduced, on one device
  bool between_nodes = false;
  StateTraffic& operator+=(const StateTraffic& other);
};

// `without_tied` leaves out uses of the token table (the stage holds the table itself).
StateBytes state_bytes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                       const Execution& execution, DType precision, bool without_tied);
StateTraffic state_traffic(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                           const BlockCosts& costs, bool without_tied);

}  // namespace orrery::plan
