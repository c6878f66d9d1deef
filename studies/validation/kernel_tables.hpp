// SPDX-License-Identifier: Apache-2.0
// The kinds of kernel tables that can be compared, told apart by their columns: what one row
// measured and what the cost model says of it. Tables that hold something else (rates without a
// shape, whole layers) are known, too, so that they are counted as skipped with their reason.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "base/csv.hpp"
#include "calibrate/sample_shapes.hpp"
#include "costmodel/device_model.hpp"
#include "plan/block/kernels.hpp"
#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

struct KernelPoint {
  std::string kind;     // "gemm", "attention-backward", "cast"
  std::string subject;  // in words
  DType dtype = DType::Bf16;
  std::function<Seconds()> predict;  // Error where the GPU cannot run it
  Seconds measured;
  bool large = false;                                         // a GEMM with m, n, k >= 1024
  calibrate::Shape shape;                                     // of what a GPU's peaks bound
  plan::CostClass cost_class = plan::CostClass::MemoryBound;  // whose errors it shares
};

// A kernel that moves so much in all.
inline calibrate::Shape streamed_bytes(double bytes) {
  return calibrate::MemorySample{.bytes_read = static_cast<std::int64_t>(bytes)};
}

// Or why the row cannot be compared; a malformed cell is an Error.
using PointOf = tl::expected<KernelPoint, std::string> (*)(const Cells&,
                                                           const costmodel::DeviceModel&);

struct KernelTable {
  std::vector<std::string_view> columns;  // all of them must be there
  PointOf point = nullptr;                // null: nothing to compare
  std::string_view reason;                // why not
  // How often the source repeated a kernel, which tells bursts from sustained load
  // (costmodel::load_of_loop); 0: in bursts.
  int launches = 0;
};

// The first kind whose columns the table has; null when it is no kernel table.
const KernelTable* find_kernel_table(const CsvTable& table);

}  // namespace orrery::studies
