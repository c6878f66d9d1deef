// SPDX-License-Identifier: Apache-2.0
// The KV cache that running requests will need (NanoFlow, arXiv 2408.12757, section 4.3): admission
// compares its peak with the capacity.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/serving/pages.hpp"
#include "plan/serving/serving.hpp"

namespace orrery::plan {

// Tokens of the prompt whose keys and values are found in the cache; the last token is computed.
std::int64_t prefix_hits(const ServingOptions& options, const Request& request);

struct RemainingLife {
  std::int64_t iterations = 0;  // until the request ends, a token each
  std::int64_t held = 0;        // tokens now
};

// Largest number of tokens held at once when every request gets a token an iteration until it ends:
// the largest, over the ends, of what those that live at least as long hold then. May sort its
// argument. Layers with a window hold what it reaches alone (serving/pages.hpp): the peak or at
// most a token a request more.
std::int64_t predicted_peak(std::vector<RemainingLife>& requests, SlidingLayers sliding = {});

}  // namespace orrery::plan
