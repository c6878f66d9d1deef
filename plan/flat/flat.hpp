// SPDX-License-Identifier: Apache-2.0
// Flat mode (docs/plan.md): the whole iteration of a plan as one program for the engine,
// every kernel and collective of every block, pass and micro-batch on the streams of its rank. The
// hierarchical Simulator must agree: to rounding where nothing outside a block competes with it,
// closely elsewhere, since this mode lets data-parallel traffic run across the ends of passes and
// beside exposed collectives. Times in picoseconds, the same bytes for the same plan; O(nodes), at
// most kMaxFlatNodes of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/plan.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/program.hpp"

namespace orrery::plan {

inline constexpr std::int64_t kMaxFlatNodes = 20'000'000;

struct FlatOptions {
  // Every rank with its own streams and collectives as groups of them, instead of one rank that
  // stands for all of its pipeline stage.
  bool all_ranks = false;
  // Kernels that follow each other without anybody else waiting in between are one node.
  bool merge_kernels = false;
};

// What keeps a plan from being expanded, in words: tensors moved between memory tiers, late
// prefetches, packs, orders that are not one list of whole passes a device. nullopt where it can
// be.
std::optional<std::string> why_not_flat(const Plan& plan);

// Devices are numbered stage by stage, within a stage as layout.hpp orders ranks. Streams of a
// device: compute, collective (within blocks), collective (data-parallel), host (issuing kernels,
// where that is what limits a block). Tags: chunk = virtual stage, layer = chain position. Pools
// hold the saved activations. Error (BadInput) where it cannot be expanded or is too long.
sim::Program flat_program(const Plan& plan, const FlatOptions& options = {});

struct FlatSimulation {
  Seconds iteration_time;
  sim::Program program;
  sim::Timeline timeline;
};
FlatSimulation simulate_flat(const Plan& plan, const FlatOptions& options = {});

}  // namespace orrery::plan
