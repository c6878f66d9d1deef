// SPDX-License-Identifier: Apache-2.0
// Rows of linkedin/Liger-Kernel's benchmark table against streaming kernels of the cost model:
// fused kernels forward. Times are between two events of a stream, so each holds its launch.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "studies/validation/kernel_tables.hpp"

namespace orrery::studies {

tl::expected<KernelPoint, std::string> liger_point(const Cells& cells,
                                                   const costmodel::DeviceModel& device);

}  // namespace orrery::studies
