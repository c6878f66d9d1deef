// SPDX-License-Identifier: Apache-2.0
// Time of one query of the cost model; a plan search makes millions of them.
#include <benchmark/benchmark.h>

#include "costmodel/collective_model.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::costmodel {
namespace {

DeviceModel device(const char* name) {
  const topologies::Gpu gpu = topologies::load_gpu(name);
  return {gpu, load_profile("", gpu)};
}

void gemm(benchmark::State& state, const char* gpu) {
  const DeviceModel model = device(gpu);
  GemmShape shape{.m = 4096, .n = 8192, .k = 1024, .dtype = DType::Fp16};
  for (auto _ : state) {
    shape.m = 1024 + (shape.m + 1) % 4096;
    benchmark::DoNotOptimize(model.gemm(shape));
  }
}
BENCHMARK_CAPTURE(gemm, a100, "a100-sxm4-80gb");
BENCHMARK_CAPTURE(gemm, h100, "h100-sxm5-80gb");

void attention(benchmark::State& state) {
  const DeviceModel model = device("h100-sxm5-80gb");
  AttentionShape shape{.batch = 1,
                       .heads = 64,
                       .kv_heads = 8,
                       .q_len = 8192,
                       .kv_len = 8192,
                       .head_dim = 128,
                       .value_head_dim = 128};
  for (auto _ : state) {
    shape.heads = 1 + shape.heads % 128;
    benchmark::DoNotOptimize(model.attention_backward(shape));
  }
}
BENCHMARK(attention);

void collective(benchmark::State& state, sim::CommKind kind, int ranks) {
  const topologies::Cluster cluster = topologies::load_cluster("hgx-h100:128");
  const CollectiveModel model(cluster, load_profile("", cluster.gpu));
  const GroupShape group = make_group(ranks, 1, 8);
  double bytes = 1024;
  for (auto _ : state) {
    bytes = bytes < 1e9 ? bytes * 1.1 : 1024;
    benchmark::DoNotOptimize(model.choose(kind, Bytes(bytes), group));
  }
}
BENCHMARK_CAPTURE(collective, all_reduce_node, sim::CommKind::AllReduce, 8);
BENCHMARK_CAPTURE(collective, all_reduce_nodes, sim::CommKind::AllReduce, 256);
BENCHMARK_CAPTURE(collective, all_gather_nodes, sim::CommKind::AllGather, 256);
BENCHMARK_CAPTURE(collective, all_to_all_nodes, sim::CommKind::AllToAll, 64);

}  // namespace
}  // namespace orrery::costmodel
