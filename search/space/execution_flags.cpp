// SPDX-License-Identifier: Apache-2.0
#include "search/space/execution_flags.hpp"

#include <algorithm>
#include <array>

#include "plan/execution_flags.hpp"

namespace orrery::search {

namespace {

using plan::Execution;

constexpr auto kFlags = std::to_array<bool Execution::*>({
    &Execution::fused_attention,
    &Execution::fused_kernels,
    &Execution::fused_cross_entropy,
    &Execution::eager_loss,
    &Execution::compiled_loss,
    &Execution::cuda_graphs,
    &Execution::vocab_parallel,
    &Execution::overlap_grad_reduce,
    &Execution::overlap_param_gather,
    &Execution::overlap_p2p,
    &Execution::split_transfers,
    &Execution::overlap_tp,
    &Execution::stream_tp,
    &Execution::fp32_gradients,
    &Execution::master_weights,
    &Execution::fp32_parameters,
    &Execution::reshard_after_forward,
    &Execution::delayed_update,
    &Execution::overlap_shared_experts,
    &Execution::deduplicated_dispatch,
    &Execution::quantised_dispatch,
    &Execution::quantised_gather,
    &Execution::hierarchical_gather,
    &Execution::quantised_reduce,
    &Execution::ships_weights,
    &Execution::post_validation,
});

}  // namespace

bool Execution::*execution_flag(std::string_view name) {
  const auto* found = std::find_if(kFlags.begin(), kFlags.end(), [&](bool Execution::*flag) {
    return plan::flag_name(flag) == name;
  });
  return found == kFlags.end() ? nullptr : *found;
}

std::vector<std::string> execution_flag_names() {
  std::vector<std::string> names;
  for (bool Execution::*const flag : kFlags) {
    names.emplace_back(plan::flag_name(flag));
  }
  return names;
}

}  // namespace orrery::search
