// SPDX-License-Identifier: Apache-2.0
// Packs for sequences of different length in pipelines: Llama-3-8B on 16 H100, dynapipe, all
// layouts with one tensor-parallel degree, intervals included. Argument: how many distinct lengths.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <set>
#include <vector>

#include "base/random.hpp"
#include "search/packed_search.hpp"
#include "search/problem.hpp"

namespace orrery::search {
namespace {

std::vector<std::int64_t> distinct_lengths(std::int64_t count) {
  Random random(1);
  std::set<std::int64_t> lengths;
  while (static_cast<std::int64_t>(lengths.size()) < count) {
    lengths.insert(64 + static_cast<std::int64_t>(random.next() % 16321));
  }
  return {lengths.begin(), lengths.end()};
}

void pack_llama3_8b(benchmark::State& state) {
  const std::vector<std::int64_t> lengths = distinct_lengths(state.range(0));
  Problem problem;
  problem.network = "llama3-8b";
  problem.cluster = "hgx-h100:2";
  problem.batch = state.range(0);
  problem.sequence = lengths.back();
  const plan::Plan base = base_plan(problem);
  Options options;
  options.constraints.fix("schedule=dynapipe,tp=2");
  options.jobs = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(search_packed(base, options, lengths));
  }
}
BENCHMARK(pack_llama3_8b)->Arg(64)->Arg(256)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::search
