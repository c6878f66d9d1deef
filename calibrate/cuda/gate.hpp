// SPDX-License-Identifier: Apache-2.0
// A kernel that holds a stream until the host opens the gate.
#pragma once

#include "calibrate/cuda/device.hpp"

namespace orrery::calibrate::cuda {

// gate[0] is set by the host to open; gate[1] by the kernel when it gave up waiting.
void enqueue_gate(Stream stream, int* gate, double timeout_seconds);

}  // namespace orrery::calibrate::cuda
