// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's DGX Cloud Benchmarking recipes of release 25.03 set otherwise than NeMo's own
// (NVIDIA/dgxc-benchmarking, commit 1b9bb6b: yaml files and configure.sh of each network).
#pragma once

#include <string>
#include <string_view>

#include "plan/execution.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

struct CloudRecipe {
  std::string_view network;     // letters and digits that its name begins with; any name: blank
  bool half_gradients = true;   // grad_sync_dtype: bf16
  bool cudnn_attention = true;  // NVTE_FUSED_ATTN
  bool fused_loss = true;       // cross_entropy_loss_fusion, off unless it is set
  bool overlaps = false;        // ub_tp_comm_overlap, overlap_p2p_comm
};

// Of a row that is such a run; else nothing.
const CloudRecipe* cloud_recipe(const Measurement& row, const FrameworkFacts& framework);

// "overlap as stated: ...": what a script of the recipe hides and the row's cell does not say; the
// cell counts. Else blank.
std::string cloud_recipe_contradiction(const Measurement& row, const plan::Execution& execution);

}  // namespace orrery::studies
