// SPDX-License-Identifier: Apache-2.0
// What the homes of tensors cost (docs/memory-tiers.md): the copies of a stage's passes, double
// buffered beside its blocks, and the update on the host that replaces the device's optimizer. Both
// are programs of sim/engine/tiers.hpp over the tiers of one device of the cluster: HBM, its share
// of the node's DDR and disk, and the link between them. Sources: ZeRO-Offload (Ren et al. 2021),
// ZeRO-Infinity (Rajbhandari et al. 2021).
#pragma once

#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/engine/tiers.hpp"

namespace orrery::plan {

// Tiers 0 (device), 1 (host), 2 (disk) as one GPU sees them while all GPUs of its node do the same:
// its link, at the share that pinned copies reach, divided by the GPUs behind one PCIe switch, and
// equal parts of DDR and disk bandwidth. Reads and writes of the disk share its bandwidth.
sim::TierGraph tier_graph(const topologies::Cluster& cluster, const costmodel::Profile& profile);

// Saved bytes of one block that wait for the backward off the device; layers only. The keys and
// values of a slice stay, which later slices read.
ByteCount away_bytes(const StagePiece& piece, const BlockCost& block,
                     const models::Network& network);

// Lengthens the passes of a stage, of a slice where there are some, by what they wait for copies.
void add_offload(const StageContent& content, const Plan& plan, BlockCosts& costs,
                 const Slice& slice, StageCost& stage);

// From gradients reduced to parameters ready: gradients that are still on the device go down, the
// host updates layer by layer with states from host or disk, parameters come up. `bytes_per_update`
// is the traffic in DDR for one parameter. Zero where the device updates everything.
Seconds host_update_time(const Plan& plan, const HostUpdate& update, int blocks,
                         int bytes_per_update);

}  // namespace orrery::plan
