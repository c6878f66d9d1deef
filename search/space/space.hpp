// SPDX-License-Identifier: Apache-2.0
// The homogeneous space: one layout for all blocks. A group fixes the degrees, of experts their
// own, and the micro-batch; its members add ZeRO stage, recomputation, sequence parallelism,
// schedule and chunks: every synchronous schedule that plans can name. Groups are generated in a
// fixed order, members only when their group is opened. Stages are cut into equal numbers of
// layers, or balanced by FLOPs where that differs: a head of a large vocabulary counts as several
// layers, but for schedules that share it among all devices.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "search/space/constraints.hpp"
#include "search/space/known_layouts.hpp"
#include "search/space/schedule_space.hpp"

namespace orrery::search {

struct Group {
  int tp = 1;
  int cp = 1;
  int ep = 1;
  int pp = 1;
  int dp = 1;
  std::int64_t micro_batch = 1;
  int expert_tp = 0;  // tensor-parallel ranks that cut each expert; 0: all
};

struct Member {
  bool sequence_parallel = false;
  plan::Recompute recompute = plan::Recompute::None;
  int zero_stage = 0;
  int chunks = 1;
  int schedule = 0;  // index into ScheduleSpace::choices()
  plan::ContextParallel context = plan::ContextParallel::Ring;
  int slices = 1;
  bool balanced = false;  // stages cut by work, not by layers
  plan::Offload offload = {};
  plan::OperatorSet recomputed = {};  // of Recompute::Operators
  plan::TensorMesh mesh = plan::TensorMesh::OneD;
  plan::TensorAxis tp_inner = plan::TensorAxis::Columns;
  plan::ExpertsInside ep_inside = plan::ExpertsInside::Data;
  int ulysses_degree = 1;  // of a mix
};

// What all plans of one search share: network, cluster, profile, batch, sequence, precision,
// execution, memory reserve; the rest of the plan is ignored.
class Space {
 public:
  // Both outlive it.
  Space(const plan::Plan& base, const Constraints& constraints);
  Space(const plan::Plan& base, Constraints&& constraints) = delete;

  // Every group whose degrees multiply to the cluster and divide the network and the batch.
  std::vector<Group> groups() const;
  // All plans of a group, family after family, in it layout after layout, schedules, ZeRO stages.
  std::vector<Member> members(const Group& group) const;
  std::int64_t num_members(const Group& group) const;
  // The factors of that product.
  const std::vector<Family>& families(const Group& group) const;
  // Every way to lay out the blocks but for the ZeRO stage. Made when it is asked for; thread-safe.
  const std::vector<Member>& layouts(const Group& group) const;
  // What the first mesh or mix of a group breaks; "" when one of them can be, or there is none.
  std::string mesh_problem(const Group& group) const;
  std::vector<int> zero_stages(const Group& group) const;
  std::int64_t num_schedules(const Group& group) const;
  // Writes the choices into a copy of base().
  void configure(const Group& group, const Member& member, plan::Plan& plan) const;
  const plan::Plan& base() const { return base_; }
  // What no plan can beat: the FLOPs of the network at the peak rate of every GPU.
  Seconds roofline() const;
  const ScheduleSpace& schedules() const { return schedules_; }

 private:
  std::vector<int> tensor_degrees() const;
  std::vector<int> context_degrees(int tp) const;
  std::vector<plan::ContextParallel> contexts(const Group& group) const;
  // What the layouts of a group depend on.
  using LayoutKey = std::array<std::int64_t, 6>;
  LayoutKey key_of(const Group& group) const;
  std::vector<Member> generated_layouts(const Group& group) const;
  // Meshes with each context and with sequence parallelism or without, whether they exist or not.
  std::vector<Member> shapes(const Group& group) const;
  void add_shapes(const Group& group, Member mesh, std::vector<Member>& shapes) const;
  void add_recomputations(Member member, std::vector<Member>& layouts) const;
  std::vector<Member> meshes(const Group& group) const;
  void add_orders(const Group& group, Member mesh, std::vector<Member>& meshes) const;
  std::vector<Member> with_expert_orders(const Group& group,
                                         const std::vector<Member>& meshes) const;
  std::vector<int> mix_degrees(const Group& group) const;
  bool splits_evenly(int tp, int expert_tp) const;
  void add_expert_degrees(Group group, std::vector<Group>& groups) const;
  // The fixed fields under the degrees of the group.
  plan::BlockPlan layout_of(const Group& group) const;
  plan::BlockPlan layout_of(const Group& group, const Member& member) const;
  bool shards_states(const Group& group, int zero_stage) const;
  std::vector<plan::Offload> tried_homes(plan::Recompute recompute,
                                         plan::OperatorSet recomputed) const;
  std::vector<plan::Offload> homes(plan::Recompute recompute, plan::OperatorSet recomputed) const;
  int slice_unit(const Group& group) const;

  plan::Plan base_;
  const Constraints& constraints_;
  ScheduleSpace schedules_;
  std::int64_t layers_;
  int shard_degree_;             // fixed ZeRO group size; 0: all data-parallel ranks
  plan::Offload offload_;        // fixed
  plan::BlockPlan layout_;       // as fixed
  bool mixes_ = false;           // of ring and Ulysses are tried
  bool unusual_ = false;         // meshes, mixes or places of experts: each layout is checked
  bool checks_layouts_ = false;  // those, and experts that some of the tensor ranks cut
  mutable std::mutex layouts_mutex_;
  mutable KnownLayouts known_layouts_;
  mutable std::map<LayoutKey, std::vector<Member>> layouts_;
};

}  // namespace orrery::search
