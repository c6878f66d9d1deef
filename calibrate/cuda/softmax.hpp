// SPDX-License-Identifier: Apache-2.0
// Softmax over rows of bf16 scores; columns are a multiple of 8.
#pragma once

#include <cstdint>

#include "calibrate/cuda/device.hpp"

namespace orrery::calibrate::cuda {

void enqueue_softmax(const DeviceBuffer& x, const DeviceBuffer& y, std::int64_t rows, int columns,
                     Stream stream);
void enqueue_softmax_backward(const DeviceBuffer& y, const DeviceBuffer& dy, const DeviceBuffer& dx,
                              std::int64_t rows, int columns, Stream stream);

}  // namespace orrery::calibrate::cuda
