// SPDX-License-Identifier: Apache-2.0
// Serving for tests: requests by hand, an engine whose iterations take one unit whatever is in
// them, and plans that serve.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "plan/serving/batching.hpp"
#include "plan/serving/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {

// The document of requests with these members.
inline RequestSpec read_members(const std::string& members) {
  const Json document = parse_json(
      R"({"schema": "orrery-requests", "version": 1, )" + members + "}", "requests.json");
  return read_requests(JsonReader(document, "requests.json"));
}

// `requests` that decode, each with `context` tokens behind it.
inline Iteration decoding(std::int64_t requests, std::int64_t context) {
  Iteration iteration;
  iteration.decodes = iteration.sampled = requests;
  iteration.keys = iteration.windowed_keys = requests * context;
  return iteration;
}

inline Request request_of(std::int64_t arrival, std::int64_t prompt, std::int64_t output,
                          std::int64_t prefix = -1, std::int64_t shared = 0) {
  return {SimTime{arrival}, prompt, output, shared, prefix};
}

// 1,000 picoseconds an iteration, transfers free.
inline BatchEngine unit_engine(std::int64_t kv_tokens, int stages = 1, int replicas = 1) {
  BatchEngine engine;
  engine.stages = stages;
  engine.replicas = replicas;
  engine.kv_tokens = kv_tokens;
  engine.time = [](int, const Iteration&) { return SimTime{1000}; };
  engine.time_in_step = [](int, std::span<const Iteration>) { return SimTime{1000}; };
  engine.transfer = [](int, const Iteration&) { return SimTime{}; };
  return engine;
}

inline Serving some_requests(std::int64_t count) {
  Serving serving;
  serving.requests.count = count;
  serving.requests.prompt = {300, 100, 1000};
  serving.requests.output = {40, 20, 200};
  serving.options.token_budget = 512;
  serving.options.max_requests = 256;
  return serving;
}

inline void serve(Plan& plan, const Serving& serving) {
  plan.serving = std::make_shared<const Serving>(serving);
  plan.sequence = longest_request(generate_requests(serving.requests));
}

// Replicas of `layout` and pp stages over the whole cluster, without requests yet.
inline Plan replicas_of(const std::string& network, const std::string& cluster,
                        const BlockPlan& layout, int pp, DType precision) {
  Plan plan;
  plan.network = models::load_network(network);
  plan.cluster = topologies::load_cluster(cluster);
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.precision = precision;
  plan.pp = pp;
  plan.dp = plan.cluster.num_gpus() / (layout.tp * layout.cp * pp);
  plan.batch = plan.dp;
  plan.stage_blocks = even_stages(plan.network, pp);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

}  // namespace orrery::plan
