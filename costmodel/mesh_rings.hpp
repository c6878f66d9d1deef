// SPDX-License-Identifier: Apache-2.0
// Rings that NCCL's search finds on a point-to-point NVLink mesh: the largest number of Hamiltonian
// cycles over the first n GPUs that use every link at most once. Each cycle gives one channel in
// each direction. Exact by enumeration for up to 8 GPUs (at most 2,520 cycles); deterministic.
//
// Where there is no such cycle, NCCL lets messages between GPUs without a link go through a third
// one (PATH_NVB, src/graph/paths.cc): rings in one direction with as few such hops as make one, the
// first 256 in order of the ranks.
#pragma once

#include <array>
#include <vector>

namespace orrery::costmodel {

inline constexpr int kMaxMeshGpus = 8;

// Channels (one link, one direction each) of rings over GPUs 0 ... ranks-1 of the mesh, whose
// entries are {gpu, gpu, links}; through third ones where `detours` and no ring is without. 0 when
// the GPUs cannot be joined in a ring.
int mesh_ring_channels(const std::vector<std::array<int, 3>>& mesh, int ranks,
                       bool detours = false);

}  // namespace orrery::costmodel
