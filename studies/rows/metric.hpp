// SPDX-License-Identifier: Apache-2.0
// What a measured figure means: a time in seconds or a size in bytes. Throughput and utilisation
// become the time of one iteration, by the figure the source derives (`aux_metrics`) or by the way
// it counts FLOPs (`flops_convention`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "models/network.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

enum class Quantity : std::uint8_t {
  IterationTime,
  LayerForwardTime,
  LayerBackwardTime,
  AllocatedMemory,  // what the framework's allocator counts
  ReservedMemory,   // what it holds, blocks kept for reuse included
  DeviceMemory,     // what the driver reports, with context and communication buffers
};
constexpr bool is_memory(Quantity quantity) { return quantity >= Quantity::AllocatedMemory; }

struct Target {
  Quantity quantity = Quantity::IterationTime;
  double value = 0;  // seconds or bytes
};

// A positive number of `aux_metrics`.
std::optional<double> aux_number(const Measurement& row, const std::string& key);

// Time or memory, as far as the name of the metric says.
bool is_memory_metric(const std::string& metric);

// Figures of a node or of all GPUs, and shares of the peak, as those of one GPU or of the run.
// Where the row does not say of how many GPUs FLOP/s are, they are of one if it can compute as
// many.
void settle_metric(Measurement& row);

// Or why the figure cannot be compared.
tl::expected<Target, std::string> measured_target(const Measurement& row,
                                                  const models::Network& network);

}  // namespace orrery::studies
