// SPDX-License-Identifier: Apache-2.0
#include "plan/document/execution_json.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/limits.hpp"
#include "base/quantity_text.hpp"

namespace orrery::plan {
namespace {

// The boolean members of Execution, once for both directions.
struct Flag {
  std::string_view name;
  bool Execution::*member;
};
constexpr std::array kFlags = {
    Flag{"fused_attention", &Execution::fused_attention},
    Flag{"fused_kernels", &Execution::fused_kernels},
    Flag{"fused_cross_entropy", &Execution::fused_cross_entropy},
    Flag{"eager_loss", &Execution::eager_loss},
    Flag{"eager_elementwise", &Execution::eager_elementwise},
    Flag{"repeated_heads", &Execution::repeated_heads},
    Flag{"eager_ring", &Execution::eager_ring},
    Flag{"gathered_ring", &Execution::gathered_ring},
    Flag{"reuses_gathered", &Execution::reuses_gathered},
    Flag{"overlap_context", &Execution::overlap_context},
    Flag{"regathers_inputs", &Execution::regathers_inputs},
    Flag{"fp8_gathers", &Execution::fp8_gathers},
    Flag{"cast_transposes", &Execution::cast_transposes},
    Flag{"norms_cast", &Execution::norms_cast},
    Flag{"casts_weights", &Execution::casts_weights},
    Flag{"fp8_inputs", &Execution::fp8_inputs},
    Flag{"weighted_activations", &Execution::weighted_activations},
    Flag{"fused_projections", &Execution::fused_projections},
    Flag{"fused_bias", &Execution::fused_bias},
    Flag{"bias_gradient_sums", &Execution::bias_gradient_sums},
    Flag{"split_transfers", &Execution::split_transfers},
    Flag{"cast_gradients", &Execution::cast_gradients},
    Flag{"fused_grad_accumulation", &Execution::fused_grad_accumulation},
    Flag{"attention_copies", &Execution::attention_copies},
    Flag{"projection_copies", &Execution::projection_copies},
    Flag{"blocking_launches", &Execution::blocking_launches},
    Flag{"cuda_graphs", &Execution::cuda_graphs},
    Flag{"eager_optimizer", &Execution::eager_optimizer},
    Flag{"vocab_parallel", &Execution::vocab_parallel},
    Flag{"overlap_grad_reduce", &Execution::overlap_grad_reduce},
    Flag{"overlap_param_gather", &Execution::overlap_param_gather},
    Flag{"overlap_p2p", &Execution::overlap_p2p},
    Flag{"overlap_tp", &Execution::overlap_tp},
    Flag{"stream_tp", &Execution::stream_tp},
    Flag{"fp32_gradients", &Execution::fp32_gradients},
    Flag{"master_weights", &Execution::master_weights},
    Flag{"fp32_parameters", &Execution::fp32_parameters},
    Flag{"reshard_after_forward", &Execution::reshard_after_forward},
    Flag{"delayed_update", &Execution::delayed_update},
};

// Those that few plans set; stated where they are.
constexpr std::array kRareFlags = {
    Flag{"overlap_shared_experts", &Execution::overlap_shared_experts},
    Flag{"deduplicated_dispatch", &Execution::deduplicated_dispatch},
    Flag{"quantised_dispatch", &Execution::quantised_dispatch},
    Flag{"fused_permutation", &Execution::fused_permutation},
    Flag{"expert_kernels", &Execution::expert_kernels},
    Flag{"expert_padding", &Execution::expert_padding},
    Flag{"eager_expert_bias", &Execution::eager_expert_bias},
    Flag{"fused_experts", &Execution::fused_experts},
    Flag{"fused_router", &Execution::fused_router},
    Flag{"fp8_attention", &Execution::fp8_attention},
    Flag{"quantised_gather", &Execution::quantised_gather},
    Flag{"hierarchical_gather", &Execution::hierarchical_gather},
    Flag{"quantised_reduce", &Execution::quantised_reduce},
    Flag{"ships_weights", &Execution::ships_weights},
    Flag{"post_validation", &Execution::post_validation},
    Flag{"allreduce_gradients", &Execution::allreduce_gradients},
    Flag{"broadcasts_parameters", &Execution::broadcasts_parameters},
    Flag{"copies_gathered", &Execution::copies_gathered},
    Flag{"copies_master", &Execution::copies_master},
    Flag{"flattens_gradients", &Execution::flattens_gradients},
    Flag{"serial_exchanges", &Execution::serial_exchanges},
    Flag{"synchronised_messages", &Execution::synchronised_messages},
};

}  // namespace

Json to_json(const Execution& execution) {
  Json document = Json::object();
  for (const Flag& flag : kFlags) {
    document.set(flag.name, execution.*flag.member);
  }
  for (const Flag& flag : kRareFlags) {
    if (execution.*flag.member) {
      document.set(flag.name, true);
    }
  }
  document.set("flash_version", execution.flash_version);
  document.set("gradient_passes", execution.gradient_passes);
  if (execution.loss_evaluations > 0) {
    document.set("loss_evaluations", execution.loss_evaluations);
  }
  if (execution.graph_scope != GraphScope::Dense) {
    document.set("graph_scope", to_text(execution.graph_scope));
  }
  if (execution.routing_imbalance != 1) {
    document.set("routing_imbalance", execution.routing_imbalance);
  }
  document.set("host_per_block", quantity_text(execution.host_per_block));
  document.set("bucket", exact_bytes_text(execution.bucket_bytes));
  document.set("first_bucket", exact_bytes_text(execution.first_bucket_bytes));
  document.set("gathers_in_flight", execution.gathers_in_flight);
  if (execution.fetched_together != 1) {
    document.set("fetched_together", execution.fetched_together);
  }
  document.set("backward_prefetch", to_text(execution.backward_prefetch));
  document.set("fp8_scaling", to_text(execution.fp8_scaling));
  document.set("amax_ranks", to_text(execution.amax_ranks));
  document.set("optimizer_state_per_parameter", exact_bytes_text(execution.optimizer_state_bytes));
  return document;
}

Execution read_execution(const JsonReader& value) {
  ObjectReader object = value.object();
  Execution execution;
  for (const Flag& flag : kFlags) {
    execution.*flag.member = object.boolean_or(flag.name, execution.*flag.member);
  }
  for (const Flag& flag : kRareFlags) {
    execution.*flag.member = object.boolean_or(flag.name, false);
  }
  if (const auto bucket = object.optional("bucket")) {
    execution.bucket_bytes = bucket->byte_count(true).value();
  }
  if (const auto bucket = object.optional("first_bucket")) {
    execution.first_bucket_bytes = bucket->byte_count(true).value();
  }
  execution.gathers_in_flight = static_cast<int>(object.integer_or(
      "gathers_in_flight", execution.gathers_in_flight, 0, 4 * limits::kMaxLayers));
  execution.fetched_together = static_cast<int>(
      object.integer_or("fetched_together", execution.fetched_together, 1, 4 * limits::kMaxLayers));
  if (const auto prefetch = object.optional("backward_prefetch")) {
    execution.backward_prefetch = parse_backward_prefetch(prefetch->string(), prefetch->where());
  }
  if (const auto former = object.optional("dynamic_scaling")) {
    former->fail(
        "not known any more: write \"fp8_scaling\": \"current\" for true, \"delayed\" for false");
  }
  if (const auto scaling = object.optional("fp8_scaling")) {
    execution.fp8_scaling = parse_fp8_scaling(scaling->string(), scaling->where());
  }
  if (const auto ranks = object.optional("amax_ranks")) {
    execution.amax_ranks = parse_amax_ranks(ranks->string(), ranks->where());
  }
  if (const auto state = object.optional("optimizer_state_per_parameter")) {
    const std::int64_t bytes = state->byte_count(true).value();
    if (bytes > 64) {
      state->fail("more than 64 bytes of optimizer state per parameter");
    }
    execution.optimizer_state_bytes = static_cast<int>(bytes);
  }
  if (const auto scope = object.optional("graph_scope")) {
    execution.graph_scope = parse_graph_scope(scope->string(), scope->where());
  }
  if (const auto imbalance = object.optional("routing_imbalance")) {
    execution.routing_imbalance = imbalance->number(1, limits::kMaxImbalance);
  }
  if (const auto host = object.optional("host_per_block")) {
    execution.host_per_block = host->duration();
  }
  execution.loss_evaluations =
      static_cast<int>(object.integer_or("loss_evaluations", execution.loss_evaluations, 0, 16));
  execution.gradient_passes =
      static_cast<int>(object.integer_or("gradient_passes", execution.gradient_passes, 0, 16));
  execution.flash_version =
      static_cast<int>(object.integer_or("flash_version", execution.flash_version, 0, 2));
  object.finish();
  return execution;
}

}  // namespace orrery::plan
