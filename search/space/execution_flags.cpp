// SPDX-License-Identifier: Apache-2.0
#include "search/space/execution_flags.hpp"

#include <algorithm>
#include <array>

namespace orrery::search {

namespace {

struct Flag {
  std::string_view name;
  bool plan::Execution::*member;
};

constexpr std::array<Flag, 25> kFlags = {{
    {"fused_attention", &plan::Execution::fused_attention},
    {"fused_kernels", &plan::Execution::fused_kernels},
    {"fused_cross_entropy", &plan::Execution::fused_cross_entropy},
    {"eager_loss", &plan::Execution::eager_loss},
    {"cuda_graphs", &plan::Execution::cuda_graphs},
    {"vocab_parallel", &plan::Execution::vocab_parallel},
    {"overlap_grad_reduce", &plan::Execution::overlap_grad_reduce},
    {"overlap_param_gather", &plan::Execution::overlap_param_gather},
    {"overlap_p2p", &plan::Execution::overlap_p2p},
    {"split_transfers", &plan::Execution::split_transfers},
    {"overlap_tp", &plan::Execution::overlap_tp},
    {"stream_tp", &plan::Execution::stream_tp},
    {"fp32_gradients", &plan::Execution::fp32_gradients},
    {"master_weights", &plan::Execution::master_weights},
    {"fp32_parameters", &plan::Execution::fp32_parameters},
    {"reshard_after_forward", &plan::Execution::reshard_after_forward},
    {"delayed_update", &plan::Execution::delayed_update},
    {"overlap_shared_experts", &plan::Execution::overlap_shared_experts},
    {"deduplicated_dispatch", &plan::Execution::deduplicated_dispatch},
    {"quantised_dispatch", &plan::Execution::quantised_dispatch},
    {"quantised_gather", &plan::Execution::quantised_gather},
    {"hierarchical_gather", &plan::Execution::hierarchical_gather},
    {"quantised_reduce", &plan::Execution::quantised_reduce},
    {"ships_weights", &plan::Execution::ships_weights},
    {"post_validation", &plan::Execution::post_validation},
}};

}  // namespace

bool plan::Execution::*execution_flag(std::string_view name) {
  const auto* found = std::find_if(kFlags.begin(), kFlags.end(),
                                   [&](const Flag& flag) { return flag.name == name; });
  return found == kFlags.end() ? nullptr : found->member;
}

std::vector<std::string> execution_flag_names() {
  std::vector<std::string> names;
  for (const Flag& flag : kFlags) {
    names.emplace_back(flag.name);
  }
  return names;
}

}  // namespace orrery::search
