// SPDX-License-Identifier: Apache-2.0
// A micro-benchmark: one file in calibrate/cuda/benchmarks/ defines one constant
// `benchmark_<file name>` that lists its cases. A case has a shape (which becomes the sample) and
// allocates its operands only when its turn comes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/cuda/device.hpp"
#include "calibrate/sample_shapes.hpp"
#include "calibrate/shapes.hpp"

namespace orrery::calibrate::cuda {

// What is timed. It owns its operands.
struct Launch {
  std::function<void(Stream)> enqueue = {};  // one repetition, asynchronous
  std::function<double(Stream)> timed =
      {};  // instead: runs one repetition, says its seconds itself
};

struct Case {
  Shape shape;
  std::string implementation;
  bool cold_l2 = false;  // flush the cache before each repetition
  std::function<Launch()> prepare;
};

struct BenchmarkContext {
  DeviceInfo device;
  std::vector<DType> dtypes;  // matrix types to measure, all of which the chip has
  std::span<const NetworkRequest> networks;
  std::function<ShapeLimits(DType)> limits;
  bool wants(DType dtype) const;
};

struct Benchmark {
  std::string_view name;  // of --only
  std::string_view description;
  double weight;  // share of the time budget of one case
  std::vector<Case> (*cases)(const BenchmarkContext& context);
};

std::span<const Benchmark* const> benchmark_table();  // generated; sorted by file name

// For the benchmarks.
Case make_case(Shape shape, std::string implementation, std::function<Launch()> prepare);
// `kernel_class` is a name of costmodel::MemoryKernel.
MemorySample memory_sample(std::string_view kernel_class, std::string operation,
                           std::int64_t bytes_read, std::int64_t bytes_written, bool backward);
// A kernel bound by memory, timed with a cold cache.
Case memory_case(MemorySample shape, std::function<Launch()> prepare);
// Sizes of the main operand of memory-bound kernels: 64 KiB to 1 GiB.
std::vector<std::int64_t> memory_sizes();

}  // namespace orrery::calibrate::cuda
