// SPDX-License-Identifier: Apache-2.0
// Rows of tables of plain transfers: copies between host and device, streaming kernels by their
// rate, reads of a working set that no cache holds.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "studies/validation/kernel_tables.hpp"

namespace orrery::studies {

// Pinned copies of `bytes` one way ("h2d", "d2h") at GBps; `link` is PCIe unless it names NVLink.
tl::expected<KernelPoint, std::string> host_copy_point(const Cells& cells,
                                                       const costmodel::DeviceModel& device);

// STREAM's COPY, SCALE (two arrays of `bytes`), ADD and TRIAD (three) at GBps of all of them.
tl::expected<KernelPoint, std::string> stream_point(const Cells& cells,
                                                    const costmodel::DeviceModel& device);

// A working set of `data_kB` read again and again at GBps.
tl::expected<KernelPoint, std::string> read_point(const Cells& cells,
                                                  const costmodel::DeviceModel& device);

}  // namespace orrery::studies
