// SPDX-License-Identifier: Apache-2.0
// The per-block space: a layout for every block and any cut of the chain into stages. A mesh fixes
// the stages and the samples of a micro-batch over all data ranks (their product is what neighbours
// exchange); a pipeline adds schedule and chunks. Below them every block of the chain takes any
// strategy of its mesh: tp x cp x dp over the GPUs of a stage, sequence parallelism, kind of
// context parallelism, ep, ZeRO stage, recomputation and, where allowed, offload; and the cut is
// any composition of the chain. The same constraints apply to every block. Schedules whose lists
// depend on what the passes cost (zb-v, vocab-1, ...) are in it when they are named. Without, and
// of slices of sequences and joined passes of experts, search_per_block looks through homogeneous
// plans and neighbours of the best.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "search/space/space.hpp"

namespace orrery::search {

struct StageMesh {
  int pp = 1;
  std::int64_t samples = 1;   // of a micro-batch, over all data ranks
  std::vector<Group> groups;  // of the homogeneous space
  std::size_t index = 0;      // of meshes()
};

struct Pipeline {
  int chunks = 1;
  int schedule = 0;  // index into ScheduleSpace::choices()
  plan::StagePlacement placement;
  int slices = 1;
  bool takes_program = true;  // of per_block/bound.hpp: not with slices or joined passes of experts
};

inline std::size_t virtual_stages(const StageMesh& mesh, const Pipeline& pipeline) {
  return static_cast<std::size_t>(mesh.pp) * static_cast<std::size_t>(pipeline.chunks);
}

// A plan of the space: positions per virtual stage and a strategy (index) for every position.
struct Draft {
  std::vector<int> stages;
  std::vector<std::uint16_t> strategies;
  bool operator==(const Draft&) const = default;
};

// How many plans: exact up to 2^63 - 1, else as a power of ten.
struct SpaceSize {
  std::int64_t exact = 0;  // -1 beyond
  double log10 = 0;
  std::string text() const;  // "48", "3.1e+187"
};

// The same; error where they fix what plans with layouts by block cannot have.
Constraints per_block_constraints(Constraints constraints);

class PerBlockSpace {
 public:
  PerBlockSpace(const plan::Plan& base, const Constraints& constraints);
  PerBlockSpace(const plan::Plan& base, Constraints&& constraints) = delete;

  const Space& homogeneous() const { return space_; }
  const std::vector<StageMesh>& meshes() const { return meshes_; }
  std::int64_t micro_batches(const StageMesh& mesh) const {
    return space_.base().batch / mesh.samples;
  }
  std::vector<plan::BlockPlan> strategies(const StageMesh& mesh) const;
  std::int64_t num_strategies(const StageMesh& mesh) const;
  std::vector<Pipeline> pipelines(const StageMesh& mesh) const;
  // Behind them those that are not in the space: neighbours of homogeneous plans are simulated, and
  // drafts where the bound's program takes the schedule.
  std::vector<Pipeline> all_pipelines(const StageMesh& mesh) const;
  // Names of schedules of homogeneous plans with a pipeline that is not in the space, sorted.
  std::vector<std::string> unproven_schedules() const;
  // Where a plan with one layout belongs; none for plans whose schedule takes no other.
  struct Place {
    std::uint32_t mesh = 0;
    std::uint32_t pipeline = 0;  // of all_pipelines()
  };
  std::optional<Place> place_of(const plan::Plan& plan) const;
  // Whether the pipeline of a homogeneous plan is in the space once its schedule is named.
  bool gains_by_name(const plan::Plan& plan) const;
  // "stages" was fixed: then there is one cut.
  bool has_fixed_cut() const { return fixed_cut_; }
  std::vector<int> first_cut(const StageMesh& mesh, const Pipeline& pipeline) const;
  SpaceSize size() const;

  void configure(const StageMesh& mesh, const Pipeline& pipeline,
                 const std::vector<plan::BlockPlan>& strategies, const Draft& draft,
                 plan::Plan& plan) const;
  // All blocks alike, on one stage after the other; for the costs of a strategy.
  void configure(const StageMesh& mesh, const plan::BlockPlan& strategy, plan::Plan& plan) const;

 private:
  enum class Reach : std::uint8_t { Bounded, Unnamed, Neighbours, OneLayout };
  std::vector<const Family*> families(const StageMesh& mesh) const;
  Reach reach_of(const Family& family, const ScheduleChoice& choice) const;
  void add_pipelines(const StageMesh& mesh, Reach reach, std::vector<Pipeline>& pipelines) const;

  Space space_;
  bool fixed_cut_ = false;
  bool balanced_cut_ = false;
  std::vector<StageMesh> meshes_;
  // By mesh, counted when first asked for; 0: not yet. To count takes as long as to list them.
  std::unique_ptr<std::atomic<std::int64_t>[]> num_strategies_;
};

}  // namespace orrery::search
