// SPDX-License-Identifier: Apache-2.0
// The search over the per-block space (per_block/space.hpp). It starts from the homogeneous
// optimum, so its answer is never worse. Then, best bound first:
//   mesh      bound: the work of its blocks, then a linear program over memory and time
//   pipeline  bound: the program of per_block/bound.hpp
//   draft     of the pipelines with the least bounds: rounded, cut and improved by simulation;
//             where a pipeline has few plans, all of them are simulated
// The least bound of all meshes and pipelines certifies the answer. Deterministic at any number of
// threads and ranks unless a time limit or an interruption ends it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "search/per_block/space.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

struct PerBlockOutcome {
  Outcome outcome;  // plans and pruned: -1 where they exceed 63 bits
  SpaceSize size;
  Seconds homogeneous;  // the best plan with one layout and a usual cut; 0: none fits
  bool homogeneous_is_closed = false;  // the search of plans with one layout went to its end
  std::int64_t meshes = 0;
  std::int64_t pipelines = 0;  // of them, with a bound of their own
  std::int64_t drafted = 0;
  std::int64_t parts = 0;  // of pipelines, by how many blocks a stage has
  std::int64_t tried = 0;  // plans of pipelines all of whose plans were simulated
  // Schedules of which some pipelines are not in the space: of them homogeneous plans and, where
  // layouts may differ, neighbours and drafts of the best were looked through.
  std::vector<std::string> unproven;
  bool best_gains_by_name = false;  // the best plan's schedule is proven once it is named
};

PerBlockOutcome search_per_block(const plan::Plan& base, const Options& options,
                                 const std::function<void(const ProgressReport&)>& progress = {});

}  // namespace orrery::search
