// SPDX-License-Identifier: Apache-2.0
// DiffusionPipe's partition of a trained backbone: the cut into stages of equal replicas with the
// least (M + 2 S - 2) T0 + synchronisation, where T0 is the longest stage or transfer. Some
// iterations have an extra forward of every micro-batch (self-conditioning): the mean counts.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "search/problems/chain.hpp"

namespace orrery::search {

struct Backbone {
  Chain layers;
  int devices = 1;
  int micro_batches = 1;
  double bandwidth = 0;
  double conditioned = 0;  // share of the iterations with an extra forward
};

// Of an iteration without (0) or with (1) the extra forward.
struct BackboneEstimate {
  double longest = 0;  // T0
  double cost = 0;     // (M + 2 S - 2) T0 + the way back + synchronisation
};
struct BackboneCut {
  double cost = std::numeric_limits<double>::infinity();  // mean of the estimates
  std::array<BackboneEstimate, 2> estimates;
  std::vector<ChainStage> stages;
};

// What the last stage makes of an extra forward goes back to the first: seconds.
double way_back(const Backbone& backbone, int stages);

// The best cut into `stages`, which divide the devices and are no more than layers.
BackboneCut cut_backbone(const Backbone& backbone, int stages);

}  // namespace orrery::search
