// SPDX-License-Identifier: Apache-2.0
// The streams of a worker of nestpipe (sim/schedules/nestpipe.cpp), a virtual stage each. Those of
// the model come first, of all workers; behind them those that prepare batches.
#pragma once

#include <cstddef>

namespace orrery::sim {

inline constexpr int kModelStreams = 2;  // exchange, dense passes
inline constexpr int kPreparations = 4;  // prefetch, copy, routing, retrieval
inline constexpr int kNestStreams = kModelStreams + kPreparations;

// Which stream of which worker a virtual stage is.
struct NestStream {
  std::size_t worker = 0;
  std::size_t stream = 0;  // of the worker, as of a single one
};
constexpr NestStream nest_stream(std::size_t virtual_stage, std::size_t workers) {
  constexpr std::size_t kModel = kModelStreams;
  constexpr std::size_t kPrepares = kPreparations;
  if (virtual_stage < kModel * workers) {
    return {virtual_stage / kModel, virtual_stage % kModel};
  }
  const std::size_t later = virtual_stage - kModel * workers;
  return {later / kPrepares, kModel + later % kPrepares};
}

// The virtual stage that retrieves a worker's rows.
constexpr int last_preparation(int worker, int workers) {
  return kModelStreams * workers + kPreparations * (worker + 1) - 1;
}

}  // namespace orrery::sim
