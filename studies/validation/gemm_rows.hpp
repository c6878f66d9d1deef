// SPDX-License-Identifier: Apache-2.0
// Rows of tables of matrix products.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "studies/validation/kernel_tables.hpp"

namespace orrery::studies {

using GemmPoint = tl::expected<KernelPoint, std::string>;

// In microseconds; fp8 as inference runs it: its activations arrive in 16 bits.
GemmPoint timed_gemm(const Cells& cells, const costmodel::DeviceModel& device);
// The same shape by several libraries, each in a column of its own: their median.
GemmPoint repeated_gemm(const Cells& cells, const costmodel::DeviceModel& device);
// DeepBench: column-major, so that C[M,N] is C^T[N,M] of training code.
GemmPoint deepbench_gemm(const Cells& cells, const costmodel::DeviceModel& device);
GemmPoint best_gemm(const Cells& cells, const costmodel::DeviceModel& device);
// SimuMax: TN forward, NN input gradient, NT weight gradient, summed into `out_dtype`.
GemmPoint training_gemm(const Cells& cells, const costmodel::DeviceModel& device);
// SimuMax: M tokens an expert, weights of K x N, whatever the stage.
GemmPoint grouped_gemm(const Cells& cells, const costmodel::DeviceModel& device);
GemmPoint deep_gemm(const Cells& cells, const costmodel::DeviceModel& device);

}  // namespace orrery::studies
