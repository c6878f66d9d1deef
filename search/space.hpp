// SPDX-License-Identifier: Apache-2.0
// The homogeneous space: one layout for all blocks. A group fixes the degrees and the micro-batch;
// its members add ZeRO stage, recomputation, sequence parallelism, schedule and chunks. Groups are
// generated in a fixed order, members only when their group is opened. Stages are cut into equal
// numbers of layers, or balanced by FLOPs where that differs (a head of a large vocabulary counts as
// several layers); model chunks that do not divide the layers exist in the balanced cut alone.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "search/constraints.hpp"

namespace orrery::search {

struct Group {
  int tp = 1;
  int cp = 1;
  int ep = 1;
  int expert_tp = 0;
  int pp = 1;
  int dp = 1;
  std::int64_t micro_batch = 1;
};

struct Member {
  bool sequence_parallel = false;
  plan::Recompute recompute = plan::Recompute::None;
  int zero_stage = 0;
  int chunks = 1;
  int schedule = 0;  // index into sim::schedule_table()
  plan::ContextParallel context = plan::ContextParallel::Ring;
  bool balanced = false;  // stages cut by work, embedding and head included, not by layers
};

// What all plans of one search share: network, cluster, profile, batch, sequence, precision,
// execution, memory reserve; the rest of the plan is ignored.
class Space {
 public:
  Space(const plan::Plan& base, const Constraints& constraints);

  // Every group whose degrees multiply to the cluster and divide the network and the batch.
  std::vector<Group> groups() const;
  std::vector<Member> members(const Group& group) const;
  // Writes the choices into a copy of base().
  void configure(const Group& group, const Member& member, plan::Plan& plan) const;
  const plan::Plan& base() const { return base_; }

 private:
  std::vector<int> tensor_degrees() const;
  std::vector<int> context_degrees(int tp) const;
  std::vector<int> expert_degrees(int tp, int dp) const;
  std::vector<int> chunk_counts(int pp) const;
  std::vector<plan::ContextParallel> contexts(const Group& group) const;
  void add_layouts(const Group& group, Member member, std::vector<Member>& members) const;
  std::vector<bool> cuts(int num_virtual_stages, bool divides) const;
  bool shards_states(const Group& group, int zero_stage) const;

  plan::Plan base_;
  const Constraints& constraints_;
  std::int64_t layers_;
  int expert_tp_;     // fixed; 0: as tp
  int shard_degree_;  // fixed ZeRO group size; 0: all data-parallel ranks
  std::vector<std::vector<int>> balanced_;  // by number of virtual stages; empty where equal to even
};

}  // namespace orrery::search
