// SPDX-License-Identifier: Apache-2.0
// The kinds of measurement and one measurement of them. Units: seconds, bytes. Shapes follow BLAS
// and the conventions of nccl-tests. Plain data without documents, so that GPU code can include it;
// samples.hpp reads and writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/dtype.hpp"
#include "base/units.hpp"
#include "sim/engine/tags.hpp"

namespace orrery::costmodel {
enum class MemoryKernel;
}

namespace orrery::calibrate {

// Which operand is transposed, in BLAS (column-major) terms of row-major training code: TN is the
// forward pass x W^T, NN the input gradient, NT the weight gradient.
enum class GemmLayout { TN, NN, NT };

// C[m,n] (+)= A[m,k] B[k,n]; `groups` > 1 is one grouped kernel (experts) of m rows each.
struct GemmSample {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t groups = 1;
  DType dtype = DType::Bf16;
  GemmLayout layout = GemmLayout::TN;
  DType output = DType::Bf16;
  bool accumulate = false;  // adds to C (gradient accumulation)
  bool batched = false;     // the groups are a batch, of attention scores perhaps, not experts
  bool operator==(const GemmSample&) const = default;
};

struct AttentionSample {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_head_dim = 0;
  bool causal = true;
  std::int64_t window = 0;  // sliding window in keys, 0: none
  DType dtype = DType::Bf16;
  bool backward = false;
  bool both_passes = false;  // forward and backward together (`backward` is false)
  // fp8: seconds of the same call by the same software in 16 bits; 0: not known.
  double in_16_bits_s = 0;
  bool operator==(const AttentionSample&) const = default;
};

// A kernel bound by HBM: what it moves at least, each operand once.
struct MemorySample {
  costmodel::MemoryKernel kernel = {};
  std::string operation = {};  // "rms-norm", "swiglu", "adam", ...
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t rows = 0;  // of `columns` elements; 0: unknown
  std::int64_t columns = 0;
  DType dtype = DType::Bf16;
  bool backward = false;
  bool operator==(const MemorySample&) const = default;
};

enum class CopyDirection { HostToDevice, DeviceToHost, Both };  // Both: `bytes` each way at once

struct HostCopySample {
  std::int64_t bytes = 0;
  CopyDirection direction = CopyDirection::HostToDevice;
  bool pinned = true;
  bool operator==(const HostCopySample&) const = default;
};

// `count` empty kernels, launched one by one or as one graph. The time is of all of them together.
struct LaunchSample {
  std::int64_t count = 1;
  bool graph = false;
  bool host_only = false;  // until the host is free again; else until the device is done
  bool operator==(const LaunchSample&) const = default;
};

// Sizes as nccl-tests prints them (costmodel/collective_model.hpp). `beside` is a GEMM that runs at
// the same time; `times_gemm` says that the time is the GEMM's, not the collective's.
struct CollectiveSample {
  sim::CommKind kind = sim::CommKind::AllReduce;
  std::int64_t bytes = 0;
  std::int64_t ranks = 0;
  std::int64_t ranks_per_node = 0;
  std::int64_t nodes = 1;
  bool in_place = false;
  std::int64_t concurrent_groups = 1;  // groups like this one that run at the same time
  std::optional<GemmSample> beside = std::nullopt;
  bool times_gemm = false;
  bool operator==(const CollectiveSample&) const = default;
};

using Shape = std::variant<GemmSample, AttentionSample, MemorySample, HostCopySample, LaunchSample,
                           CollectiveSample>;

struct Timing {
  Seconds median;
  Seconds p25;  // quartiles; equal to the median when the source has none
  Seconds p75;
  std::int64_t repetitions = 1;
  bool operator==(const Timing&) const = default;
};

struct SampleFlags {
  bool cold_l2 = false;        // the cache was flushed before each repetition
  bool graph = false;          // replayed from a CUDA graph
  bool throttled = false;      // the clock fell while it ran
  bool unsettled = false;      // the time budget ended before the stop rule was met
  bool above_ceiling = false;  // faster than the chip can be: peak rate or HBM bandwidth
  bool operator==(const SampleFlags&) const = default;
};

struct Sample {
  Shape shape = {};
  Timing time = {};
  std::string implementation = {};  // library or kernel: "cublasLt", "cudnn", "orrery", ...
  std::string source = {};  // "file:line" of what it was imported from; empty: measured here
  SampleFlags flags = {};
  bool operator==(const Sample&) const = default;
};

}  // namespace orrery::calibrate
