// SPDX-License-Identifier: Apache-2.0
// What the devices of an arrangement hold at least under a layout, each against the memory of its
// own pool's GPU: states under the ZeRO stage with least of them, one micro-batch of its stages,
// the smallest workspace and what is outside of the allocator. A cut costs a few additions, so it
// is ruled out before it is a node of the tree.
#pragma once

#include <optional>
#include <vector>

#include "search/mixed/space.hpp"

namespace orrery::search {

class MixedMemoryFloor {
 public:
  // Of the arrangement and the layout of `plan`, none on teams, whose cut and schedule do not
  // matter; `views` are its pools.
  MixedMemoryFloor(const plan::MixedPlan& plan, const std::vector<int>& zero_stages,
                   std::vector<plan::Plan>& views, plan::MixedSimulator& simulator);

  // By how much some device misses at least; not positive where that is not known. Of every cut,
  ByteCount excess() const;
  // of every cut that gives each run of stages on one pool so many blocks,
  ByteCount excess_of_runs(const std::vector<int>& runs, const std::vector<int>& blocks) const;
  // and of one cut.
  ByteCount excess_of_stages(const MixedFamily& family, const std::vector<int>& stages) const;

 private:
  struct Pool {
    std::vector<ByteCount> held;  // by the first positions of the chain: one more than positions
    ByteCount room;               // of the GPU, for this
    ByteCount of(std::size_t begin, std::size_t end) const { return held[end] - held[begin]; }
  };
  const Pool& pool_of(const plan::ReplicaGroup& group, std::size_t device) const {
    return *pools_[static_cast<std::size_t>(group.pools[device])];
  }

  std::vector<plan::ReplicaGroup> groups_;
  std::vector<std::optional<Pool>> pools_;  // that the groups use
};

}  // namespace orrery::search
