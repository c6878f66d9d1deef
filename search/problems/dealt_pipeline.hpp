// SPDX-License-Identifier: Apache-2.0
// A cut chain as PipeDream's asynchronous pipeline on the simulator: a stage's replicas take whole
// micro-batches in turn and all-reduce their gradients after one of each
// (sim/orders/replicated_stages.hpp). The transfers of a device share its link, fairly where they
// are at the same time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "search/problems/chain_pipeline.hpp"

namespace orrery::search {

// Seconds besides passes, by stage: transfers to the next stage (of a micro-batch alone, each way)
// and the all-reduce of its replicas' gradients after a micro-batch of each, beside transfers.
struct ChainDelays {
  std::vector<double> send;
  std::vector<double> reduce;
  bool half_duplex = false;  // a device sends and receives over one link
};
// Sends of a cut's bytes, and rings, over the slowest links.
ChainDelays delays_over(const ChainPipeline& pipeline, const ChainLinks& links);

struct DealtTimes {
  double period = 0;               // seconds per micro-batch in the steady state
  std::vector<int> micro_batches;  // that a device of each stage holds, at most
  int staleness = 0;
  int versions = 1;
};
// Nothing, and why in `refused`, where the replicas repeat too late to run. O(passes log passes).
std::optional<DealtTimes> run_dealt(const ChainPipeline& pipeline, const ChainDelays& delays,
                                    std::string* refused = nullptr);

}  // namespace orrery::search
