// SPDX-License-Identifier: Apache-2.0
// Rows of tables of attention kernels.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "studies/validation/kernel_tables.hpp"

namespace orrery::studies {

// A forward pass in microseconds, by the kernel that `impl` names, else the GPU's best one.
tl::expected<KernelPoint, std::string> timed_attention(const Cells& cells,
                                                       const costmodel::DeviceModel& device);

// FlashAttention's figures: passes by their rate, which counts half of the FLOPs when causal
// and 2.5 times those of the forward for a backward.
tl::expected<KernelPoint, std::string> figure_of_attention(const Cells& cells,
                                                           const costmodel::DeviceModel& device);

// SimuMax counts causal attention in full, backward 2.5 times.
tl::expected<KernelPoint, std::string> training_attention(const Cells& cells,
                                                          const costmodel::DeviceModel& device);

}  // namespace orrery::studies
