// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/gate.hpp"

namespace orrery::calibrate::cuda {
namespace {

__device__ unsigned long long nanoseconds() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__global__ void wait_at_gate(volatile int* gate, unsigned long long timeout) {
  const unsigned long long end = nanoseconds() + timeout;
  while (gate[0] == 0) {
    if (nanoseconds() > end) {
      gate[1] = 1;
      __threadfence_system();
      return;
    }
  }
}

}  // namespace

void enqueue_gate(Stream stream, int* gate, double timeout_seconds) {
  wait_at_gate<<<1, 1, 0, stream>>>(gate, static_cast<unsigned long long>(1e9 * timeout_seconds));
  check_launch("gate");
}

}  // namespace orrery::calibrate::cuda
