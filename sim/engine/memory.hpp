// SPDX-License-Identifier: Apache-2.0
// When each buffer of a program that has run is live, and the ledger of allocations and releases
// (bytes) in order of time, releases before allocations at equal times. O(B log B) for B buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/engine.hpp"

namespace orrery::sim {

// Live in [from, until); until is SimTime::max() for a buffer that is never released, and equal to
// from for one that was never allocated.
struct BufferLife {
  SimTime from;
  SimTime until;
  bool holds(SimTime time) const { return from <= time && time < until; }
};

struct LedgerEntry {
  SimTime time;
  BufferId buffer;
  std::int64_t delta;  // bytes
};

std::vector<BufferLife> buffer_lives(const Program& program, const std::vector<SimTime>& start,
                                     const std::vector<SimTime>& end);

// Without zero-byte buffers and buffers without life time.
std::vector<LedgerEntry> memory_ledger(const Program& program,
                                       const std::vector<BufferLife>& lives);

}  // namespace orrery::sim
