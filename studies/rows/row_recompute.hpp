// SPDX-License-Identifier: Apache-2.0
// What a row says of recomputation: which operators, of which layers.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "plan/plan.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

struct StatedRecompute {
  std::string operators;  // of a layer that recomputes, as plans spell it: "full", "norms+qkv"
  int every = 1;          // the layers that do: all, `share` of every second, third, ...
  int first = 0;          // so many layers of each virtual stage; 0: as `every` says
  int share = 1;
};

// Or why it is not modelled.
tl::expected<StatedRecompute, std::string> stated_recompute(const Measurement& row,
                                                            const FrameworkFacts& framework);

// What its words leave open and how that was read, a line each.
std::vector<std::string> unread_recompute(const Measurement& row);

// The chain's blocks, of which every so many recompute.
std::vector<plan::BlockRun> recomputed_runs(const StatedRecompute& stated, int length,
                                            const plan::BlockPlan& layout,
                                            const std::string& where);

// Megatron's module "mlp" is that of layers without experts (NVIDIA/Megatron-LM
// core/transformer/transformer_layer.py): of a row that recomputes it, the others keep theirs.
void spare_experts(const Measurement& row, plan::Plan& plan);

// The first so many layers of every virtual stage recompute operators, spelt as plans do.
void recompute_first_layers(plan::Plan& plan, int layers, const std::string& operators = "full");

}  // namespace orrery::studies
