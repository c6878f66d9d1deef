// SPDX-License-Identifier: Apache-2.0
// The ranks of one pipeline stage in the flat mode: their streams, and nodes that exist once per
// rank (kernels) or once per group of ranks (collectives). With one rank that stands for all, every
// group is that rank alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/layout.hpp"
#include "sim/engine/program.hpp"

namespace orrery::plan {

// Groups that cover all ranks of a stage.
struct RankGroups {
  std::vector<std::uint32_t> of;                    // group of each rank
  std::vector<std::vector<std::uint32_t>> members;  // ascending
};

// One node per rank (no groups) or per group, with consecutive ids.
struct Spread {
  sim::NodeId first = sim::kNone;
  const RankGroups* groups = nullptr;
  bool exists() const { return first != sim::kNone; }
  sim::NodeId of(std::size_t rank) const {
    return first + (groups != nullptr ? groups->of[rank] : static_cast<std::uint32_t>(rank));
  }
};

enum class Lane : std::uint8_t { Compute, Communication, Data, Host };
inline constexpr int kNumLanes = 4;

struct RankStreams {
  std::array<std::vector<sim::StreamId>, kNumLanes> streams;  // by lane and rank
  std::vector<sim::ResourceId> processors;                    // per rank; empty: nothing is shared
  std::vector<sim::PoolId> pools;                             // per rank
  const std::vector<sim::StreamId>& of(Lane lane) const {
    return streams[static_cast<std::size_t>(lane)];
  }
};

class RankProgram {
 public:
  explicit RankProgram(std::size_t ranks) : ranks_(ranks) {}  // per stage

  sim::Program& program() { return program_; }
  std::size_t num_ranks() const { return ranks_; }
  // What a collective takes of a rank's multiprocessors beside a kernel: one of a block, and one of
  // parameters and gradients. 0: they do not share them.
  void set_collective_demands(double block, double data) {
    block_demand_ = block;
    data_demand_ = data;
  }

  RankStreams add_stage(std::size_t stage);
  Spread add_kernel(const RankStreams& streams, Lane lane, Seconds time, const sim::Tag& tag);
  Spread add_collective(const RankStreams& streams, Lane lane, const RankGroups& groups,
                        Seconds time, const sim::Tag& tag);
  Spread add_flow(SimTime time, const sim::Tag& tag);
  // One group of all given streams.
  Spread add_barrier(const std::vector<sim::StreamId>& streams, const sim::Tag& tag);
  void depend(const Spread& consumer, const Spread& producer);

  // Ranks that differ only in their places on the given axes (bit i for axis i).
  const RankGroups& groups(const Mesh& mesh, std::uint8_t axes);

 private:
  std::size_t ranks_;
  double block_demand_ = 0;
  double data_demand_ = 0;
  sim::Program program_;
  std::map<std::tuple<std::array<int, kNumAxes>, std::array<Axis, kNumAxes>, std::uint8_t>,
           RankGroups>
      groups_;
  RankGroups all_;
};

}  // namespace orrery::plan
