// SPDX-License-Identifier: Apache-2.0
// Single GEMMs: space-filling shapes and tile edges in the layouts of training that the library
// has (gemm_transposed.cpp: the others), and the exact shapes of the networks asked for.
#include <algorithm>
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/lt_gemm.hpp"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kShapes = 48;

// The types and layouts that training uses: 32-bit types are rare enough for one layout.
std::vector<GemmLayout> layouts_of(DType dtype) {
  if (dtype == DType::Bf16 || dtype == DType::Fp8) {
    return {GemmLayout::TN, GemmLayout::NN, GemmLayout::NT};
  }
  return {GemmLayout::TN};
}

void add(std::vector<Case>& cases, const BenchmarkContext& context, const GemmSample& gemm) {
  const bool known = std::any_of(cases.begin(), cases.end(), [&](const Case& item) {
    return std::get<GemmSample>(item.shape) == gemm;
  });
  if (known || !has_layout(gemm.dtype, gemm.layout, context.device.capability)) {
    return;
  }
  cases.push_back(make_case(gemm, "cublasLt", [gemm] {
    const auto plan = std::make_shared<LtGemm>(gemm);
    return Launch{.enqueue = [plan](Stream stream) { plan->enqueue(stream); }};
  }));
}

std::vector<Case> gemm_cases(const BenchmarkContext& context) {
  std::vector<Case> cases;
  for (const NetworkRequest& request : context.networks) {
    for (const GemmSample& gemm : network_gemms(request)) {
      if (gemm.groups == 1 && context.wants(gemm.dtype)) {
        add(cases, context, gemm);
      }
    }
  }
  for (const DType dtype : context.dtypes) {
    for (const GemmLayout layout : layouts_of(dtype)) {
      for (const GemmSample& gemm :
           space_filling_gemms(kShapes, dtype, layout, context.limits(dtype))) {
        add(cases, context, gemm);
      }
    }
    if (has_16_bits(dtype)) {
      for (const GemmSample& gemm : edge_gemms(dtype, GemmLayout::TN)) {
        add(cases, context, gemm);
      }
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_gemm;
const Benchmark benchmark_gemm = {"gemm", "matrix products in the layouts of training (cuBLASLt)",
                                  1.0, gemm_cases};

}  // namespace orrery::calibrate::cuda
