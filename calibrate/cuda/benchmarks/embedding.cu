// SPDX-License-Identifier: Apache-2.0
// Token embedding: gathering rows of a table, and adding gradients back to them atomically.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kEmbeddingWidth = 4096;
constexpr int kEmbeddingPacks = kEmbeddingWidth / kLanes;
constexpr std::int64_t kVocabulary = 65'536;

// Tokens spread over the table like a hash: no two neighbours read the same row.
__device__ std::int64_t token_at(std::int64_t position) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(position) * 2654435761ULL) %
                                   static_cast<std::uint64_t>(kVocabulary));
}

__global__ void gather(const __nv_bfloat16* table, __nv_bfloat16* out, std::int64_t tokens) {
  float values[kLanes];
  for (std::int64_t i = global_thread(); i < tokens * kEmbeddingPacks; i += num_threads()) {
    load(table, token_at(i / kEmbeddingPacks) * kEmbeddingPacks + i % kEmbeddingPacks, values);
    store(out, i, values);
  }
}

__global__ void scatter(const __nv_bfloat16* gradient, __nv_bfloat162* table, std::int64_t tokens) {
  float values[kLanes];
  for (std::int64_t i = global_thread(); i < tokens * kEmbeddingPacks; i += num_threads()) {
    load(gradient, i, values);
    __nv_bfloat162* row =
        table +
        (token_at(i / kEmbeddingPacks) * kEmbeddingPacks + i % kEmbeddingPacks) * (kLanes / 2);
    for (int pair = 0; pair < kLanes / 2; ++pair) {
      atomicAdd(row + pair, __floats2bfloat162_rn(values[2 * pair], values[2 * pair + 1]));
    }
  }
}

std::vector<Case> embedding_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    const std::int64_t tokens = bytes / (2 * kEmbeddingWidth);
    for (const bool backward : {false, true}) {
      MemorySample shape =
          memory_sample("embedding", "embedding", (backward ? 2 : 1) * bytes, bytes, backward);
      shape.rows = tokens;
      shape.columns = kEmbeddingWidth;
      cases.push_back(memory_case(shape, [tokens, backward] {
        const auto table =
            std::make_shared<DeviceBuffer>(bf16_buffer(kVocabulary * kEmbeddingWidth, 1));
        const auto rows = std::make_shared<DeviceBuffer>(bf16_buffer(tokens * kEmbeddingWidth, 2));
        return Launch{.enqueue = [table, rows, tokens, backward](Stream stream) {
          if (backward) {
            scatter<<<grid_for(tokens * kEmbeddingPacks), kThreads, 0, stream>>>(
                rows->as<__nv_bfloat16>(), table->as<__nv_bfloat162>(), tokens);
          } else {
            gather<<<grid_for(tokens * kEmbeddingPacks), kThreads, 0, stream>>>(
                table->as<__nv_bfloat16>(), rows->as<__nv_bfloat16>(), tokens);
          }
          check_launch("embedding");
        }};
      }));
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_embedding;
const Benchmark benchmark_embedding = {"embedding", "token embedding, forward and backward", 0.5,
                                       embedding_cases};

}  // namespace orrery::calibrate::cuda
