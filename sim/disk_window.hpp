// SPDX-License-Identifier: Apache-2.0
// Devices that run one sequence of blocks together and hold only a window of it in memory: a loader
// on each reads the next blocks from disk while fewer than `window` are resident, a block leaves
// memory when its device has computed it, before the reduction (TPI-LLM, arXiv 2410.00531, section
// 3.3; its src/tpi_llm/models/llama/modeling_llama.py). The sequence repeats for every token; all
// devices meet at the reduction behind each block:
//
//   loaded_d(x)   = max(loaded_d(x - 1), computed_d(x - window)) + load_d(x)
//   computed_d(x) = max(end(x - 1), loaded_d(x)) + compute_d(x)
//   end(x)        = max over d of computed_d(x) + reduce(x)
//
// A window of the whole sequence loads it once. Exact, O(blocks x devices).
#pragma once

#include <vector>

#include "base/units.hpp"

namespace orrery::sim {

struct WindowBlock {
  Seconds compute;
  Seconds load;
};

struct WindowedRun {
  std::vector<std::vector<WindowBlock>> devices;  // per device, per block; equal lengths
  std::vector<Seconds> reduce;                    // per block
  int window = 1;                                 // blocks; from one block on
  int tokens = 1;
};

// When each block of each token ends, in order.
std::vector<Seconds> window_ends(const WindowedRun& run);

// Whether loading never holds up compute once it runs (the paper's conditions), for layers of an
// attention block a and an FFN block f: tight when each block's load hides behind the block before;
// loose when a layer's loads hide behind the layer, and so do those of any l layers.
struct LayerTimes {
  WindowBlock attention;
  WindowBlock ffn;
  Seconds reduce;
};
bool tight_steady_state(const LayerTimes& times);
// `keep_ffn`: every so many FFN blocks one stays resident and is not loaded; 0: none.
bool loose_steady_state(const LayerTimes& times, int layers, int keep_ffn = 0);

}  // namespace orrery::sim
