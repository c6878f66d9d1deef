// SPDX-License-Identifier: Apache-2.0
// Expert layers: equal groups as one strided batch of cuBLASLt.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/lt_gemm.hpp"

namespace orrery::calibrate::cuda {
namespace {

void add(std::vector<Case>& cases, const GemmSample& gemm) {
  cases.push_back(make_case(gemm, "cublasLt-batched", [gemm] {
    const auto plan = std::make_shared<LtGemm>(gemm);
    return Launch{.enqueue = [plan](Stream stream) { plan->enqueue(stream); }};
  }));
}

std::vector<Case> grouped_cases(const BenchmarkContext& context) {
  std::vector<Case> cases;
  for (const NetworkRequest& request : context.networks) {
    for (const GemmSample& gemm : network_gemms(request)) {
      if (gemm.groups > 1 && context.wants(gemm.dtype)) {
        add(cases, gemm);
      }
    }
  }
  const DType dtype = context.wants(DType::Bf16) ? DType::Bf16 : DType::Fp16;
  if (!context.wants(dtype)) {
    return cases;
  }
  const ShapeLimits limits = context.limits(dtype);
  for (const std::int64_t groups : {2, 8, 32, 64}) {
    for (const std::int64_t rows : {64, 256, 1024, 4096}) {
      for (const std::int64_t ffn : {1536, 14'336}) {
        const GemmSample forward = {
            .m = rows, .n = 2 * ffn, .k = 4096, .groups = groups, .dtype = dtype, .output = dtype};
        const GemmSample input = {.m = rows,
                                  .n = 4096,
                                  .k = 2 * ffn,
                                  .groups = groups,
                                  .dtype = dtype,
                                  .layout = GemmLayout::NN,
                                  .output = dtype};
        for (const GemmSample& gemm : {forward, input}) {
          if (gemm_flops(gemm) <= limits.max_flops && gemm_bytes(gemm) <= limits.max_bytes) {
            add(cases, gemm);
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_grouped_gemm;
const Benchmark benchmark_grouped_gemm = {
    "grouped-gemm", "equal expert groups as one batch (cuBLASLt)", 1.0, grouped_cases};

}  // namespace orrery::calibrate::cuda
