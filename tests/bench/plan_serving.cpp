// SPDX-License-Identifier: Apache-2.0
// Serving: requests simulated per second, costs of iterations included, and batching alone.
#include <benchmark/benchmark.h>

#include <memory>

#include "plan/serving/simulate.hpp"
#include "plan/stages.hpp"

namespace orrery::plan {
namespace {

RequestSpec chat(std::int64_t count) {
  RequestSpec requests;
  requests.count = count;
  requests.arrivals = Arrivals::Poisson;
  requests.requests_per_second = 6;
  requests.prompt = {246, 547, 8192};
  requests.output = {322, 244, 2048};
  return requests;
}

void simulate_chat(benchmark::State& state) {
  Plan plan;
  plan.network = models::load_network("llama2-70b");
  plan.cluster = topologies::load_cluster("dgx-a100:1");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), {}}};
  plan.blocks.front().layout.tp = 8;
  auto serving = std::make_shared<Serving>();
  serving->requests = chat(state.range(0));
  plan.sequence = longest_request(generate_requests(serving->requests));
  plan.serving = serving;
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate_serving(plan).makespan);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(simulate_chat)->Arg(1000)->Arg(10'000)->Unit(benchmark::kMillisecond);

void batch_alone(benchmark::State& state) {
  const std::vector<Request> requests = generate_requests(chat(state.range(0)));
  BatchEngine engine;
  engine.kv_tokens = 1'500'000;
  engine.time = [](int, const Iteration& iteration) {
    return SimTime{50'000'000'000 + 50'000'000 * iteration.tokens()};
  };
  const ServingOptions options;
  for (auto _ : state) {
    benchmark::DoNotOptimize(run_batches(requests, options, engine).makespan);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(batch_alone)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::plan
