// SPDX-License-Identifier: Apache-2.0
// Cuts of a chain into virtual stages that fill a pipeline well, as positions per stage. Devices go
// through their chunks side by side, so all stages of one chunk have the same number of layers
// where that is possible; how long the pipeline takes to fill and to drain depends on the first
// chunk alone, so it may be the smallest. Layers that are left over go to the last or the first of
// the stages; the stage with the head may have fewer. O(cuts x stages).
#pragma once

#include <vector>

namespace orrery::search {

// `positions` of a chain that begins with an embedding and ends with a head, over `devices` x
// `chunks` virtual stages. Without repetitions; none where a stage would be empty.
std::vector<std::vector<int>> likely_cuts(int positions, int devices, int chunks);

}  // namespace orrery::search
