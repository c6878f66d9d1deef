// SPDX-License-Identifier: Apache-2.0
// Hetu-Galvatron's own problem, Llama-2-7B on eight GPUs of 38 GB: reading, deciding and writing.
// Argument: the batch. Bar: at most 0.1 s as a whole process (docs/planners.md).
#include <benchmark/benchmark.h>

#include "base/json.hpp"
#include "search/planner.hpp"

namespace orrery::search {
namespace {

void decide_llama2_7b(benchmark::State& state) {
  Json problem = read_json_file(ORRERY_SOURCE_DIR "/tests/data/galvatron/llama2-7b.json");
  problem.set("batch", state.range(0));
  const Planner& planner = find_planner("hetu-galvatron", "bench");
  for (auto _ : state) {
    benchmark::DoNotOptimize(run_planner(planner, problem, "llama2-7b"));
  }
}
BENCHMARK(decide_llama2_7b)->Arg(8)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::search
