// SPDX-License-Identifier: Apache-2.0
#include "plan/execution_flags.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace orrery::plan {

namespace {

constexpr auto kFlags = std::to_array<ExecutionFlag>({
    {"fused_attention", &Execution::fused_attention, false},
    {"fused_kernels", &Execution::fused_kernels, false},
    {"fused_cross_entropy", &Execution::fused_cross_entropy, false},
    {"eager_loss", &Execution::eager_loss, false},
    {"lookup_products", &Execution::lookup_products, true},
    {"compiled_loss", &Execution::compiled_loss, true},
    {"fp32_norms", &Execution::fp32_norms, true},
    {"reruns_norms", &Execution::reruns_norms, true},
    {"eager_elementwise", &Execution::eager_elementwise, false},
    {"repeated_heads", &Execution::repeated_heads, false},
    {"eager_ring", &Execution::eager_ring, false},
    {"gathered_ring", &Execution::gathered_ring, false},
    {"reuses_gathered", &Execution::reuses_gathered, false},
    {"overlap_context", &Execution::overlap_context, false},
    {"regathers_inputs", &Execution::regathers_inputs, false},
    {"fp8_gathers", &Execution::fp8_gathers, false},
    {"cast_transposes", &Execution::cast_transposes, false},
    {"norms_cast", &Execution::norms_cast, false},
    {"casts_weights", &Execution::casts_weights, false},
    {"fp8_inputs", &Execution::fp8_inputs, false},
    {"weighted_activations", &Execution::weighted_activations, false},
    {"fused_projections", &Execution::fused_projections, false},
    {"joins_gradients", &Execution::joins_gradients, true},
    {"fused_bias", &Execution::fused_bias, false},
    {"bias_gradient_sums", &Execution::bias_gradient_sums, false},
    {"bias_gradients_apart", &Execution::bias_gradients_apart, true},
    {"split_transfers", &Execution::split_transfers, false},
    {"cast_gradients", &Execution::cast_gradients, false},
    {"fused_grad_accumulation", &Execution::fused_grad_accumulation, false},
    {"attention_copies", &Execution::attention_copies, false},
    {"projection_copies", &Execution::projection_copies, false},
    {"blocking_launches", &Execution::blocking_launches, false},
    {"cuda_graphs", &Execution::cuda_graphs, false},
    {"eager_optimizer", &Execution::eager_optimizer, false},
    {"vocab_parallel", &Execution::vocab_parallel, false},
    {"overlap_grad_reduce", &Execution::overlap_grad_reduce, false},
    {"overlap_param_gather", &Execution::overlap_param_gather, false},
    {"overlap_p2p", &Execution::overlap_p2p, false},
    {"overlap_tp", &Execution::overlap_tp, false},
    {"stream_tp", &Execution::stream_tp, false},
    {"fp32_gradients", &Execution::fp32_gradients, false},
    {"master_weights", &Execution::master_weights, false},
    {"fp32_parameters", &Execution::fp32_parameters, false},
    {"reshard_after_forward", &Execution::reshard_after_forward, false},
    {"delayed_update", &Execution::delayed_update, false},
    {"overlap_shared_experts", &Execution::overlap_shared_experts, true},
    {"deduplicated_dispatch", &Execution::deduplicated_dispatch, true},
    {"quantised_dispatch", &Execution::quantised_dispatch, true},
    {"fused_permutation", &Execution::fused_permutation, true},
    {"expert_kernels", &Execution::expert_kernels, true},
    {"expert_padding", &Execution::expert_padding, true},
    {"eager_expert_bias", &Execution::eager_expert_bias, true},
    {"fused_experts", &Execution::fused_experts, true},
    {"fused_router", &Execution::fused_router, true},
    {"fp8_attention", &Execution::fp8_attention, true},
    {"quantised_gather", &Execution::quantised_gather, true},
    {"hierarchical_gather", &Execution::hierarchical_gather, true},
    {"quantised_reduce", &Execution::quantised_reduce, true},
    {"ships_weights", &Execution::ships_weights, true},
    {"post_validation", &Execution::post_validation, true},
    {"allreduce_gradients", &Execution::allreduce_gradients, true},
    {"broadcasts_parameters", &Execution::broadcasts_parameters, true},
    {"copies_gathered", &Execution::copies_gathered, true},
    {"copies_master", &Execution::copies_master, true},
    {"flattens_gradients", &Execution::flattens_gradients, true},
    {"serial_exchanges", &Execution::serial_exchanges, true},
    {"synchronised_messages", &Execution::synchronised_messages, true},
});

}  // namespace

std::span<const ExecutionFlag> execution_flags() { return kFlags; }

std::string_view flag_name(bool Execution::*member) {
  const auto* found = std::find_if(kFlags.begin(), kFlags.end(), [&](const ExecutionFlag& flag) {
    return flag.member == member;
  });
  ORRERY_CHECK(found != kFlags.end(), "every flag of an execution has a name");
  return found->name;
}

}  // namespace orrery::plan
