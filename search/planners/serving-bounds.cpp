// SPDX-License-Identifier: Apache-2.0
// What bounds serving: times of one iteration that reads all memory, computes the dense batch and
// sends its activations, the batch that the KV cache allows, and the optimal throughput. With
// p prompt and d output tokens a request, N GPUs, parameters P, 2 g d_h L elements of cache a
// token:
//
//   T_mem = memory / bandwidth    T_compute = 2 B P / (N compute)
//   T_net = 4 (N - 1) B hidden bytes L / (N network)
//   requests = (N memory - P bytes) / (cache (p + d / 2)),  B = requests (p + d) / d
//   optimum per GPU = compute / (2 P) tokens/s, prompt and output tokens both counted
//
// With "ffn_hidden", also FLOPs and bytes of the operations of the whole network for `tokens`.
#include <fmt/format.h>

#include <algorithm>

#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "search/planner.hpp"

namespace orrery::search {
namespace {

struct System {
  double gpus = 1;
  double memory = 0;
  double bandwidth = 0;
  double compute = 0;
  double network = 0;  // one way; 0: no other GPU
  double element = 2;
};

struct Model {
  double parameters = 0;
  double layers = 0;
  double hidden = 0;
  double kv_width = 0;  // KV heads x head size
};

System read_system(ObjectReader& problem) {
  System system;
  system.gpus = static_cast<double>(problem.integer_or("gpus", 1, 1, limits::kMaxDevices));
  system.memory = problem.required("memory").bytes().value();
  system.bandwidth = problem.required("memory_bandwidth").bandwidth().value();
  system.compute = problem.required("compute").flop_rate().value();
  if (const auto network = problem.optional("network_bandwidth")) {
    system.network = network->bandwidth().value();
  }
  system.element = static_cast<double>(problem.integer_or("element_bytes", 2, 1, 8));
  return system;
}

Model read_model(ObjectReader& problem) {
  Model model;
  model.parameters = problem.required("parameters").number(1, 1e15);
  model.layers = static_cast<double>(problem.required("layers").integer(1, limits::kMaxLayers));
  model.hidden = static_cast<double>(problem.required("hidden").integer(1, limits::kMaxHidden));
  model.kv_width = static_cast<double>(problem.required("kv_heads").integer(1, limits::kMaxHeads) *
                                       problem.required("head_dim").integer(1, limits::kMaxHidden));
  return model;
}

// A product of B x k by k x n matrices in every layer: weights, input and output are moved once.
Json product_json(const System& system, const Model& model, double tokens, double k, double n) {
  const double flops = 2 * tokens * k * n * model.layers;
  const double bytes = system.element * model.layers * (k * n + tokens * (k + n));
  return Json::Object{{"flops", flops},
                      {"memory_bytes", bytes},
                      {"compute_s", flops / (system.gpus * system.compute)},
                      {"memory_s", bytes / (system.gpus * system.bandwidth)}};
}

double network_bytes(const System& system, const Model& model, double tokens) {
  return 4 * (system.gpus - 1) * tokens * model.hidden * system.element * model.layers;
}

Json operations_json(const System& system, const Model& model, double ffn, double tokens) {
  const double h = model.hidden;
  const double bytes = network_bytes(system, model, tokens);
  Json network = Json::Object{{"network_bytes", bytes}};
  if (system.network > 0) {
    network.set("network_s", bytes / (system.gpus * system.network));
  }
  return Json::Object{{"qkv", product_json(system, model, tokens, h, h + 2 * model.kv_width)},
                      {"projection", product_json(system, model, tokens, h, h)},
                      {"up_gate", product_json(system, model, tokens, h, 2 * ffn)},
                      {"down", product_json(system, model, tokens, ffn, h)},
                      {"network", std::move(network)}};
}

Json plan(ObjectReader& problem) {
  const System system = read_system(problem);
  const Model model = read_model(problem);
  const double prompt =
      static_cast<double>(problem.required("prompt").integer(1, limits::kMaxSequence));
  const double output =
      static_cast<double>(problem.required("output").integer(1, limits::kMaxSequence));
  const auto tokens = problem.optional("tokens");
  const std::int64_t stated = tokens ? tokens->integer(1, limits::kMaxBatch) : 0;
  const auto ffn = problem.optional("ffn_hidden");
  const std::int64_t ffn_hidden = ffn ? ffn->integer(1, limits::kMaxFfn) : 0;
  problem.finish();
  const double cache = 2 * model.layers * model.kv_width * system.element;
  const double free = system.gpus * system.memory - model.parameters * system.element;
  if (free <= 0) {
    return infeasible(fmt::format("the parameters take {}, the memory of the GPUs is {}",
                                  format_bytes(Bytes(model.parameters * system.element)),
                                  format_bytes(Bytes(system.gpus * system.memory))));
  }
  const double requests = free / (cache * (prompt + output / 2));
  const double batch =
      stated > 0 ? static_cast<double>(stated) : requests * (prompt + output) / output;
  const double compute = 2 * batch * model.parameters / (system.gpus * system.compute);
  const double memory = system.memory / system.bandwidth;
  const double optimum = system.compute / (2 * model.parameters);
  Json answer =
      Json::Object{{"kv_bytes_per_token", cache}, {"requests", requests},
                   {"dense_batch", batch},        {"memory_s", memory},
                   {"compute_s", compute},        {"memory_over_compute", memory / compute}};
  if (system.network > 0) {
    answer.set("network_s", network_bytes(system, model, batch) / (system.gpus * system.network));
  }
  answer.set("optimal_tokens_per_s_per_gpu", optimum);
  answer.set("optimal_requests_per_s", optimum * system.gpus / (prompt + output));
  answer.set("optimal_output_tokens_per_s", optimum * system.gpus * output / (prompt + output));
  if (ffn_hidden > 0) {
    answer.set("operations",
               operations_json(system, model, static_cast<double>(ffn_hidden), batch));
  }
  return answer;
}

}  // namespace

extern const Planner planner_serving_bounds = {
    .name = "serving-bounds",
    .description = "times and batch of an iteration of serving, and the optimal throughput",
    .source = "Zhu et al., NanoFlow, OSDI 2025 (arXiv 2408.12757), section 3",
    .example = R"({"schema": "orrery-problem", "version": 1, "gpus": 8, "memory": "80 GB",
  "memory_bandwidth": "2 TB/s", "compute": "312 TFLOP/s", "network_bandwidth": "300 GB/s",
  "parameters": 70e9, "layers": 80, "hidden": 8192, "kv_heads": 8, "head_dim": 128,
  "ffn_hidden": 28672, "prompt": 512, "output": 512})",
    .plan = plan,
};

}  // namespace orrery::search
