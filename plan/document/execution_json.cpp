// SPDX-License-Identifier: Apache-2.0
#include "plan/document/execution_json.hpp"

#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "plan/execution_flags.hpp"

namespace orrery::plan {

Json to_json(const Execution& execution) {
  Json document = Json::object();
  for (const ExecutionFlag& flag : execution_flags()) {
    if (!flag.is_rare || execution.*flag.member) {
      document.set(flag.name, execution.*flag.member);
    }
  }
  document.set("flash_version", execution.flash_version);
  document.set("gradient_passes", execution.gradient_passes);
  if (execution.loss_evaluations > 0) {
    document.set("loss_evaluations", execution.loss_evaluations);
  }
  if (execution.softmax != Softmax::Megatron) {
    document.set("softmax", to_text(execution.softmax));
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
  for (const ExecutionFlag& flag : execution_flags()) {
    execution.*flag.member = object.boolean_or(flag.name, execution.*flag.member);
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
  if (const auto softmax = object.optional("softmax")) {
    execution.softmax = parse_softmax(softmax->string(), softmax->where());
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
