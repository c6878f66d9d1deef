// SPDX-License-Identifier: Apache-2.0
// One GEMM as training frameworks run it: cuBLASLt with the first algorithm of its heuristic, fp32
// accumulation and a workspace of 32 MiB. A row-major product is handed over as its transpose in
// column-major order. Groups of equal size run as one strided batch.
#pragma once

#include <memory>
#include <string>

#include "calibrate/cuda/device.hpp"
#include "calibrate/samples.hpp"

namespace orrery::calibrate::cuda {

class LtGemm {
 public:
  // Of products in fp8: in the few bits of the fast sums, as recipes run the forward pass, or
  // promoted to fp32 on the way, as they run the backward pass.
  enum class Sums { Fast, Promoted };
  // Allocates operands of random contents. Unsupported when the library has no kernel for it.
  explicit LtGemm(const GemmSample& gemm, Sums sums = Sums::Fast);
  ~LtGemm();
  void enqueue(Stream stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string lt_version();  // "13.0.0"; empty when the library is missing

}  // namespace orrery::calibrate::cuda
