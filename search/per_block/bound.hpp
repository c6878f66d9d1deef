// SPDX-License-Identifier: Apache-2.0
// Lower bounds on all plans of a mesh and a pipeline, whatever their cut and their strategies: a
// linear program over how many blocks of each kind a virtual stage gives to each strategy, in
// fractions. Every row holds for every plan:
//   time    of every path through the passes (the busiest device with its fill and drain, and
//           critical paths of the schedule's own lists, found where the program last ended: the
//           makespan of lists is convex in the passes, so a few paths meet it)
//           with them the gather of the first block's parameters, the reduction of the block that
//           is reduced last, the sum of tied gradients and the optimizer on the mean of all devices
//   load    blocks are whole: every device has at most as many layers as it can work off
//           (per_block/capacity.hpp)
//   memory  of every device at the counts of live micro-batches that the lists have; where lists
//           depend on times, one micro-batch of each stage, and Little's law over all devices:
//           a micro-batch stays on a block for the passes of everything behind it
// Conversions, and gradient reductions beside the last backwards, cost nothing. The bound is that
// of LinearProgram, so the solver is not trusted.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

struct PipelineBound {
  double seconds = 0;            // capped at `until`
  std::optional<Shares> shares;  // where the program ended; none: nothing fits below `until`
  std::vector<PassPath> paths;   // that made it
};

// Plans of which more is known, and paths to begin with.
struct PipelinePart {
  std::vector<StageRange> ranges;
  std::shared_ptr<const std::vector<PassPath>> paths;
};

class PipelineBounds {
 public:
  explicit PipelineBounds(const PerBlockSpace& space, plan::Simulator& simulator);

  // Mean over the devices, memory of all devices together; for every pipeline of the mesh.
  double mesh_bound(const StageMesh& mesh, const MeshCosts& costs, double until) const;
  // Of plans that take less than `until`, with so many rounds of paths at most. `before` is where
  // an earlier program of the pipeline ended, if there was one.
  PipelineBound bound(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
                      double until, int rounds, const PipelinePart& part = {},
                      const Shares* before = nullptr);

  // Whether the lists have paths that stay at a stage (per_block/peaks.hpp): without them a bound
  // does not see that one of several stages has many layers.
  bool knows_peaks(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs);

  // Asked now and then; the bound is then what is known by then.
  void stop_when(std::function<bool()> stop) { stop_ = std::move(stop); }

 private:
  // Of the usual cut, in plan_. Null: lists that depend on times.
  const sim::PipelineOrder* lists_of(const StageMesh& mesh, const Pipeline& pipeline,
                                     const MeshCosts& costs);
  bool is_traced(const sim::PipelineOrder* lists) const;
  // Adds paths until the lists take no longer than the program says.
  PipelineBound refined(PipelineProgram& program, const sim::PipelineOrder* traced, double until,
                        int rounds, const PipelinePart& part) const;

  const PerBlockSpace& space_;
  plan::Simulator& simulator_;
  plan::Plan plan_;
  std::function<bool()> stop_;
};

}  // namespace orrery::search
