// SPDX-License-Identifier: Apache-2.0
// What all passes of one kind on one virtual stage have in common: their time, what they wait for
// and the memory they take and give back. Times in picoseconds, memory in bytes. Pure functions of
// a stage's place in the pipeline and of its costs; a cut backward gives back the activations that
// its weight gradients do not need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim::detail {

inline constexpr std::int32_t kNoLane = -1;

// Of a virtual stage; lists that say nothing are of zeros.
inline std::int64_t bytes_at(const std::vector<ByteCount>& bytes, std::size_t stage) {
  return bytes.empty() ? 0 : bytes[stage].value();
}

// Everything about one pass that does not depend on the micro-batch.
struct PassClass {
  std::int64_t duration = 0;
  std::int64_t first_extra = 0;  // added to the first pass of a virtual stage
  std::int64_t last_extra = 0;   // added to the last one
  std::int64_t latency = 0;      // of the transfer of its input
  std::int64_t acquired = 0;     // activation bytes kept from the start on
  std::int64_t released = 0;     // and given back at the end
  std::int64_t workspace = 0;    // bytes while it runs
  std::int32_t lane = 0;
  std::int32_t input_lane = kNoLane;
  std::int32_t chunk_change = 0;  // live activations: +1 forward, -1 last gradient pass
  bool completes = false;         // the last gradient pass of a unit
};

// What decides the passes of a virtual stage beside its costs.
struct StageFacts {
  std::size_t index = 0;
  std::size_t count = 0;  // virtual stages
  bool first = false;     // nothing is sent to it, or by it
  bool last = false;
  bool by_rule = false;     // passes hold activations, no list of holds does
  bool counts = false;      // they count as those of one chunk
  bool kept = false;        // until a backward
  bool recomputes = false;  // only the boundary is kept

  // Of the passes of the kind that is `direction`-th among the lanes.
  std::int32_t lane(std::size_t direction) const {
    return static_cast<std::int32_t>(direction * count + index);
  }
};

PassClass forward_class(const StageFacts& stage, const PipelineCosts& costs);

struct BackwardClasses {
  PassClass whole;
  PassClass input_grad;
  PassClass weight_grad;
};
// `boundary`: bytes that the forward pass keeps.
BackwardClasses backward_classes(const StageFacts& stage, const PipelineCosts& costs,
                                 std::int64_t boundary);

PassClass recompute_class(const StageFacts& stage, const PipelineCosts& costs);
PassClass optimizer_class(const StageFacts& stage, const PipelineCosts& costs);

}  // namespace orrery::sim::detail
