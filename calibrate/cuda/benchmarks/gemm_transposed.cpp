// SPDX-License-Identifier: Apache-2.0
// Gradients in fp8 where cuBLASLt multiplies in the layout TN alone: frameworks keep transposed
// copies of their operands and run TN on these, with sums promoted to fp32 as their recipes ask of
// the backward pass. The copies are no part of the time (benchmark "cast-transpose").
#include <algorithm>
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/lt_gemm.hpp"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kShapes = 48;

void add_transposed(std::vector<Case>& cases, const BenchmarkContext& context,
                    const GemmSample& gemm) {
  const bool known = std::any_of(cases.begin(), cases.end(), [&](const Case& item) {
    return std::get<GemmSample>(item.shape) == gemm;
  });
  if (known || gemm.groups != 1 || has_layout(gemm.dtype, gemm.layout, context.device.capability)) {
    return;
  }
  cases.push_back(make_case(gemm, "cublasLt, TN on transposed copies", [gemm] {
    GemmSample run = gemm;
    run.layout = GemmLayout::TN;
    const auto plan = std::make_shared<LtGemm>(run, LtGemm::Sums::Promoted);
    return Launch{.enqueue = [plan](Stream stream) { plan->enqueue(stream); }};
  }));
}

std::vector<Case> transposed_cases(const BenchmarkContext& context) {
  std::vector<Case> cases;
  if (!context.wants(DType::Fp8)) {
    return cases;
  }
  for (const NetworkRequest& request : context.networks) {
    if (request.dtype == DType::Fp8) {
      for (const GemmSample& gemm : network_gemms(request)) {
        add_transposed(cases, context, gemm);
      }
    }
  }
  for (const GemmLayout layout : {GemmLayout::NN, GemmLayout::NT}) {
    for (const GemmSample& gemm :
         space_filling_gemms(kShapes, DType::Fp8, layout, context.limits(DType::Fp8))) {
      add_transposed(cases, context, gemm);
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_gemm_transposed;
const Benchmark benchmark_gemm_transposed = {
    "gemm-transposed", "gradients in fp8 on transposed copies, where the library has TN alone", 1.0,
    transposed_cases};

}  // namespace orrery::calibrate::cuda
