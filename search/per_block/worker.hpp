// SPDX-License-Identifier: Apache-2.0
// What a thread of the per-block search is asked, and what it answers: that depends on the question
// alone, so any thread of any process may be asked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "search/per_block/node.hpp"
#include "search/per_block/numbered_plans.hpp"
#include "search/per_block/tools.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

enum class PerBlockTask : std::uint8_t {
  BoundMesh,
  Improve,        // a draft: its neighbours
  BoundPipeline,  // with more paths; a first draft as soon as there is something to round
  Draft,
  Simulate,  // every plan of a range
  Anneal,    // a draft that is faster than all plans so far: its random neighbours
};

struct PerBlockWork {
  PerBlockTask task = PerBlockTask::BoundMesh;
  double best = 0;   // seconds of the best plan so far; infinite: none
  double until = 0;  // bounds look no further
  PerBlockNode node;
  Draft draft;             // to improve or to anneal
  PlanRange plans;         // to simulate
  std::uint64_t seed = 0;  // of random neighbours
};

struct PerBlockDone {
  double bound = 0;
  PerBlockStage stage = PerBlockStage::Mesh;
  // Empty: those that the node has.
  std::shared_ptr<const Shares> shares;
  std::shared_ptr<const std::vector<PassPath>> paths;
  std::optional<DraftResult> draft;  // of a range: the best of its plans; fits where it is faster
};

class PerBlockWorker {
 public:
  // What it refers to outlives this. `stop`: what is worked on is to end early.
  PerBlockWorker(const PerBlockSpace& space, PricedMeshes& priced, const Options& options,
                 std::function<bool()> stop);

  PerBlockDone evaluate(const PerBlockWork& work);
  const MeshCosts& costs_of(std::uint32_t mesh) { return priced_.of(mesh, tools_.pricer); }
  plan::Simulator& simulator() { return tools_.simulator; }
  PipelineBounds& bounds() { return tools_.bounds; }

 private:
  void bound_mesh(const PerBlockWork& work, PerBlockDone& done);
  void improve(const PerBlockWork& work, PerBlockDone& done);
  void bound_pipeline(const PerBlockWork& work, PerBlockDone& done);
  void draft(const PerBlockWork& work, PerBlockDone& done);
  void simulate(const PerBlockWork& work, PerBlockDone& done);
  void anneal(const PerBlockWork& work, PerBlockDone& done);
  DraftAim aim_of(const PerBlockWork& work, double promising);
  std::optional<DraftResult> drafted(const PerBlockWork& work, const Shares& shares,
                                     double promising);
  int budget(const PerBlockNode& node, int simulations) const;

  const PerBlockSpace& space_;
  PricedMeshes& priced_;
  const ByteCount replay_reserve_;
  const int jobs_;  // threads of a replay
  std::function<bool()> stop_;
  PerBlockTools tools_;
};

}  // namespace orrery::search
