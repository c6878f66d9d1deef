// SPDX-License-Identifier: Apache-2.0
// The fields of every section of a profile with their allowed ranges, once: reading and writing
// are two visitors over the same lists (V: number, integer, duration, bytes, bandwidth).
#pragma once

#include "costmodel/profile.hpp"

namespace orrery::costmodel::fields {

// Achieved shares of a datasheet rate: never above it.
inline constexpr double kMinFraction = 1e-3;

template <class V>
void visit(V& v, GemmParameters& p) {
  v.number("compute_fraction", p.compute_fraction, kMinFraction, 1);
  v.number("memory_fraction", p.memory_fraction, kMinFraction, 1);
  v.duration("launch", p.launch);
  v.number("exponent", p.exponent, 1, 100);
  v.number("grouped_fraction", p.grouped_fraction, kMinFraction, 1);
  v.number("accumulate_fraction", p.accumulate_fraction, kMinFraction, 2);
  // Above 1 where the L2 cache holds what is cast.
  v.number("cast_fraction", p.cast_fraction, kMinFraction, 4);
}

template <class V>
void visit(V& v, AttentionParameters& p) {
  v.number("forward_fraction", p.forward_fraction, kMinFraction, 1);
  v.number("head_dim_exponent", p.head_dim_exponent, 0, 1);
  v.number("row_overhead", p.row_overhead, 0, 1e5);
  v.number("idle_waves", p.idle_waves, 0, 100);
  v.duration("launch", p.launch);
  v.number("backward_rate_fraction", p.backward_rate_fraction, kMinFraction, 1);
  v.number("flash2_forward_fraction", p.flash2_forward_fraction, kMinFraction, 1);
  v.number("flash2_backward_fraction", p.flash2_backward_fraction, kMinFraction, 1);
  v.optional_number("fp8_forward_rate", p.fp8_forward_rate, 0, 2);
  v.optional_number("fp8_head_dim_exponent", p.fp8_head_dim_exponent, 0, 1);
}

template <class V>
void visit(V& v, PowerParameters& p) {
  v.number("picojoules_per_flop", p.picojoules_per_flop, 0, 1e3);
  v.optional_number("fp8_energy", p.fp8_energy, 0.01, 10);
  v.optional_number("nvfp4_energy", p.nvfp4_energy, 0.01, 10);
  v.peaks("reference_peak", p.reference_peak);
}

template <class V>
void visit(V& v, MemoryParameters& p) {
  for (int i = 0; i < kNumMemoryKernels; ++i) {
    const auto kernel = static_cast<MemoryKernel>(i);
    double& fraction = p.fraction[static_cast<std::size_t>(i)];
    if (kernel == MemoryKernel::CastTranspose) {
      v.optional_number(to_text(kernel), fraction, kMinFraction, 1);
    } else {
      v.number(to_text(kernel), fraction, kMinFraction, 1);
    }
  }
  v.duration("launch", p.launch);
}

template <class V>
void visit(V& v, CastParameters& p) {
  v.duration("launch", p.launch);
  v.number("cache_fraction", p.cache_fraction, kMinFraction, 100);
  v.number("memory_fraction", p.memory_fraction, kMinFraction, 1);
  v.number("cached", p.cached, 0, 100);
  v.number("missed", p.missed, p.cached, 1000);
}

template <class V>
void visit(V& v, CollectiveParameters& p) {
  v.duration("base", p.base);
  v.number("low_latency_factor", p.low_latency_factor, 0.01, 100);
  v.number("simple_factor", p.simple_factor, 0.01, 100);
  v.number("bandwidth_factor", p.bandwidth_factor, kMinFraction, 1.2);
  v.optional_number("in_switch_factor", p.in_switch_factor, kMinFraction, 1.2);
  v.bytes("half_size", p.half_size);
}

template <class V>
void visit(V& v, AllToAllParameters& p) {
  v.duration("base", p.base);
  v.duration("per_peer", p.per_peer);
  v.number("bandwidth_fraction", p.bandwidth_fraction, kMinFraction, 1);
}

template <class V>
void visit(V& v, SendReceiveParameters& p) {
  v.duration("intra_latency", p.intra_latency);
  v.number("intra_fraction", p.intra_fraction, kMinFraction, 1);
  v.duration("inter_latency", p.inter_latency);
  v.number("nic_fraction", p.nic_fraction, kMinFraction, 1);
  v.bandwidth("peer_limit", p.peer_limit);
}

template <class V>
void visit(V& v, HostCopyParameters& p) {
  v.duration("latency", p.latency);
  v.number("fraction", p.fraction, kMinFraction, 1);
}

template <class V>
void visit(V& v, Spreads& p) {
  v.number("gemm", p.gemm, 0, 10);
  v.number("attention", p.attention, 0, 10);
  v.number("memory_bound", p.memory_bound, 0, 10);
  v.number("intra_node_collective", p.intra_node_collective, 0, 10);
  v.number("inter_node_collective", p.inter_node_collective, 0, 10);
  v.optional_number("grouped_gemm", p.grouped_gemm, 0, 10);
  v.optional_number("all_to_all", p.all_to_all, 0, 10);
}

// The sections; each has an entry in "sources".
template <class V>
void visit(V& v, Profile& p) {
  v.gemm("gemm", p.gemm);
  v.section("attention", p.attention);
  v.kernels("kernels", p.kernels);
  v.section("power", p.power);
  v.section("memory", p.memory);
  v.casts("casts", p.casts);
  v.section("intra_node", p.intra_node);
  v.section("inter_node", p.inter_node);
  v.section("inter_node_plugin", p.inter_node_plugin);
  v.section("all_to_all_intra", p.all_to_all_intra);
  v.section("all_to_all_inter", p.all_to_all_inter);
  v.section("send_receive", p.send_receive);
  v.collectives("collectives", p.collectives);
  v.section("host_copy", p.host_copy);
  v.section("spread", p.spread);
}

}  // namespace orrery::costmodel::fields
