// SPDX-License-Identifier: Apache-2.0
// How many layers of each chunk a stage recomputes, so that what it keeps before any backward fits
// its memory and recomputing takes least (Wang et al., InfiniPipe, arXiv 2509.21275).
#pragma once

#include <vector>

#include "search/problems/live_chunks.hpp"

namespace orrery::search {

struct RecomputedChunks {
  std::vector<double> tokens;  // by chunk
  std::vector<double> times;   // of a layer
  int layers = 1;              // of a stage
  double bytes_per_token = 0;  // of a layer
  double kept_per_token = 0;   // of a recomputed one
  double memory = 0;
};

struct RecomputedLayers {
  std::vector<int> layers;  // by chunk
  bool proven = true;       // no others take less
};

// An integer program where that is small, searched within `share` of the usual limit on work.
RecomputedLayers recompute_layers(const RecomputedChunks& chunks, const LiveChunks& live, int stage,
                                  double share);

}  // namespace orrery::search
