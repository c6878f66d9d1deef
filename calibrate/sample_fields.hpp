// SPDX-License-Identifier: Apache-2.0
// The members of every sample document, each stated once: a visitor `io` reads or writes them (key,
// place, range or names). required() must be in a document; optional() is left out when it equals
// its default. Internal to samples.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/limits.hpp"
#include "calibrate/samples.hpp"

namespace orrery::calibrate {

inline constexpr std::int64_t kMaxExtent = 1LL << 40;  // of a matrix dimension
inline constexpr std::int64_t kMaxSampleBytes = 1LL << 50;
inline constexpr std::int64_t kMaxRepetitions = 1'000'000'000;

// Names of an enum in the order of its values.
inline constexpr std::array<std::string_view, 3> kLayoutNames = {"tn", "nn", "nt"};
inline constexpr std::array<std::string_view, 3> kDirectionNames = {"h2d", "d2h", "both"};
inline constexpr std::array<std::string_view, kNumDTypes> kDTypeNames = {"fp32", "tf32", "bf16",
                                                                         "fp16", "fp8",  "nvfp4"};
inline constexpr std::array<std::string_view, costmodel::kNumMemoryKernels> kMemoryNames = {
    "copy",      "norm",      "elementwise", "softmax", "cross_entropy",
    "embedding", "optimizer", "cast",        "permute", "cast_transpose"};
inline constexpr std::array<std::string_view, 8> kCollectiveNames = {
    "none",       "all-reduce", "all-gather",   "reduce-scatter",
    "all-to-all", "broadcast",  "send-receive", "copy"};

template <class Io>
void fields(Io& io, GemmSample& gemm) {
  io.required("m", gemm.m, 1, kMaxExtent);
  io.required("n", gemm.n, 1, kMaxExtent);
  io.required("k", gemm.k, 1, kMaxExtent);
  io.optional("groups", gemm.groups, 1, limits::kMaxExperts);
  io.required("dtype", gemm.dtype, kDTypeNames);
  io.required("layout", gemm.layout, kLayoutNames);
  io.required("output", gemm.output, kDTypeNames);
  io.optional("accumulate", gemm.accumulate);
  io.optional("batched", gemm.batched);
}

template <class Io>
void fields(Io& io, AttentionSample& attention) {
  io.required("batch", attention.batch, 1, limits::kMaxBatch);
  io.required("heads", attention.heads, 1, limits::kMaxHeads);
  io.required("kv_heads", attention.kv_heads, 1, limits::kMaxHeads);
  io.required("q_len", attention.q_len, 1, limits::kMaxSequence);
  io.required("kv_len", attention.kv_len, 1, limits::kMaxSequence);
  io.required("head_dim", attention.head_dim, 1, limits::kMaxHidden);
  io.required("value_head_dim", attention.value_head_dim, 1, limits::kMaxHidden);
  io.required("causal", attention.causal);
  io.optional("window", attention.window, 0, limits::kMaxSequence);
  io.required("dtype", attention.dtype, kDTypeNames);
  io.required("backward", attention.backward);
  io.optional("both_passes", attention.both_passes);
  io.optional("in_16_bits_s", attention.in_16_bits_s, 0, 1e6);
}

template <class Io>
void fields(Io& io, MemorySample& memory) {
  io.required("class", memory.kernel, kMemoryNames);
  io.required("operation", memory.operation);
  io.required("bytes_read", memory.bytes_read, 0, kMaxSampleBytes);
  io.required("bytes_written", memory.bytes_written, 0, kMaxSampleBytes);
  io.optional("rows", memory.rows, 0, kMaxExtent);
  io.optional("columns", memory.columns, 0, kMaxExtent);
  io.required("dtype", memory.dtype, kDTypeNames);
  io.optional("backward", memory.backward);
}

template <class Io>
void fields(Io& io, HostCopySample& copy) {
  io.required("bytes", copy.bytes, 1, kMaxSampleBytes);
  io.required("direction", copy.direction, kDirectionNames);
  io.required("pinned", copy.pinned);
}

template <class Io>
void fields(Io& io, LaunchSample& launch) {
  io.required("count", launch.count, 1, kMaxRepetitions);
  io.required("graph", launch.graph);
  io.optional("host_only", launch.host_only);
}

template <class Io>
void fields(Io& io, CollectiveSample& collective) {
  io.required("collective", collective.kind, kCollectiveNames);
  io.required("bytes", collective.bytes, 1, kMaxSampleBytes);
  io.required("ranks", collective.ranks, 1, limits::kMaxDevices);
  io.required("ranks_per_node", collective.ranks_per_node, 1, limits::kMaxDevices);
  io.required("nodes", collective.nodes, 1, limits::kMaxNodesOfCluster);
  io.optional("in_place", collective.in_place);
  io.optional("concurrent_groups", collective.concurrent_groups, 1, limits::kMaxDevices);
  io.optional("beside", collective.beside);
  io.optional("times_gemm", collective.times_gemm);
}

template <class Io>
void fields(Io& io, SampleFlags& flags) {
  io.optional("cold_l2", flags.cold_l2);
  io.optional("graph", flags.graph);
  io.optional("throttled", flags.throttled);
  io.optional("unsettled", flags.unsettled);
  io.optional("above_ceiling", flags.above_ceiling);
}

template <class Io>
void fields(Io& io, SampleHeader& header) {
  io.required("device", header.device);
  io.optional("gpu", header.gpu);
  io.optional("node", header.node);
  io.optional("fabric", header.fabric);
  io.optional("driver", header.driver);
  io.optional("cuda", header.cuda);
  io.optional("libraries", header.libraries);
  io.optional("sm_clock_mhz", header.sm_clock_mhz, 0, 1e5);
  io.optional("max_sm_clock_mhz", header.max_sm_clock_mhz, 0, 1e5);
  io.optional("memory_clock_mhz", header.memory_clock_mhz, 0, 1e5);
  io.optional("power_limit_w", header.power_limit_w, 0, 1e5);
  io.optional("temperature_c", header.temperature_c, -100, 1000);
  io.optional("host", header.host);
  io.optional("date", header.date);
  io.optional("command", header.command);
  io.optional("notes", header.notes);
}

}  // namespace orrery::calibrate
