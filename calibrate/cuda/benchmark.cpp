// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/benchmark.hpp"

#include <algorithm>
#include <utility>

#include "costmodel/profile.hpp"

namespace orrery::calibrate::cuda {

bool BenchmarkContext::wants(DType dtype) const {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

Case make_case(Shape shape, std::string implementation, std::function<Launch()> prepare) {
  Case item;
  item.shape = std::move(shape);
  item.implementation = std::move(implementation);
  item.prepare = std::move(prepare);
  return item;
}

MemorySample memory_sample(std::string_view kernel_class, std::string operation,
                           std::int64_t bytes_read, std::int64_t bytes_written, bool backward) {
  int kernel = 0;
  while (kernel < costmodel::kNumMemoryKernels &&
         costmodel::to_text(costmodel::MemoryKernel{kernel}) != kernel_class) {
    ++kernel;
  }
  ORRERY_CHECK(kernel < costmodel::kNumMemoryKernels, kernel_class);
  MemorySample shape;
  shape.kernel = costmodel::MemoryKernel{kernel};
  shape.operation = std::move(operation);
  shape.bytes_read = bytes_read;
  shape.bytes_written = bytes_written;
  shape.backward = backward;
  return shape;
}

Case memory_case(MemorySample shape, std::function<Launch()> prepare) {
  Case item = make_case(std::move(shape), "orrery", std::move(prepare));
  item.cold_l2 = true;
  return item;
}

std::vector<std::int64_t> memory_sizes() { return log_sizes(64 << 10, 1LL << 30, 8); }

}  // namespace orrery::calibrate::cuda
