// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/simulate.hpp"

namespace orrery::plan {
namespace {

Json percentiles_json(const Percentiles& values) {
  if (values.count == 0) {
    return Json();
  }
  return Json::Object{{"mean", values.mean.value()},
                      {"p50", values.p50.value()},
                      {"p90", values.p90.value()},
                      {"p99", values.p99.value()}};
}

Json memory_json(const std::vector<ServingMemory>& stages) {
  Json list = Json::array();
  for (const ServingMemory& memory : stages) {
    list.push(Json::Object{{"parameters", memory.parameters.value()},
                           {"workspace", memory.workspace.value()},
                           {"communication", memory.communication.value()},
                           {"context", memory.context.value()},
                           {"kv_cache", memory.cache.value()},
                           {"host_kv_cache", memory.host_cache.value()},
                           {"host_parameters", memory.host_parameters.value()},
                           {"disk_parameters", memory.disk_parameters.value()},
                           {"kv_per_token", memory.kv_per_token.value()},
                           {"kv_tokens", memory.kv_tokens}});
  }
  return list;
}

}  // namespace

Json to_json(const ServingSimulation& simulation) {
  Json document = Json::Object{{"fits", !simulation.does_not_fit.has_value()}};
  if (simulation.does_not_fit) {
    document.set("reason", *simulation.does_not_fit);
    document.set("nearest", simulation.nearest);
  } else {
    Json parts = Json::object();
    for (std::size_t part = 0; part < kNumServingParts; ++part) {
      parts.set(to_text(static_cast<ServingPart>(part)), simulation.parts[part].value());
    }
    document =
        Json::Object{{"fits", true},
                     {"requests", simulation.requests},
                     {"prompt_tokens", simulation.prompt_tokens},
                     {"output_tokens", simulation.output_tokens},
                     {"makespan_s", simulation.makespan.value()},
                     {"requests_per_s", simulation.requests_per_second},
                     {"tokens_per_s", simulation.tokens_per_second},
                     {"output_tokens_per_s", simulation.output_tokens_per_second},
                     {"tokens_per_s_per_gpu", simulation.tokens_per_second_per_gpu},
                     {"optimal_tokens_per_s_per_gpu", simulation.optimal_tokens_per_second_per_gpu},
                     {"time_to_first_token_s", percentiles_json(simulation.first_token)},
                     {"time_per_output_token_s", percentiles_json(simulation.per_output_token)},
                     {"request_latency_s", percentiles_json(simulation.latency)},
                     {"kv_occupancy", Json::Object{{"mean", simulation.kv_mean_fraction},
                                                   {"peak", simulation.kv_peak_fraction},
                                                   {"waste", simulation.kv_waste_fraction}}},
                     {"iterations", simulation.iterations},
                     {"tokens_per_iteration", simulation.tokens_per_iteration},
                     {"evictions", simulation.evictions},
                     {"prefix_hit_tokens", simulation.found_tokens},
                     {"repeated_tokens", simulation.repeated_tokens},
                     {"busy_s", simulation.busy.value()},
                     {"parts_s", std::move(parts)}};
  }
  document.set("memory_bytes", memory_json(simulation.memory));
  return document;
}

}  // namespace orrery::plan
