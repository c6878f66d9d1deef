// SPDX-License-Identifier: Apache-2.0
// A node of the per-block search: a mesh, or a pipeline of it whose bound is known so far by the
// mesh, or by its program with more and more rounds of paths; or a part of a pipeline, where some
// stages have fewer or more blocks. Ordered by bound, ties by place and number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "search/per_block/bound.hpp"

namespace orrery::search {

enum class PerBlockStage : std::uint8_t { Mesh, Pipeline, Bounded, Done };

// Pipelines are bounded and drafted beside each other, each with the rounds that it is due.
inline bool go_together(PerBlockStage one, PerBlockStage other) {
  return (one == PerBlockStage::Mesh) == (other == PerBlockStage::Mesh);
}

struct PerBlockNode {
  double bound = 0;
  std::uint64_t number = 0;  // in the order in which nodes were opened
  std::uint32_t mesh = 0;
  std::uint32_t pipeline = 0;
  PerBlockStage stage = PerBlockStage::Mesh;
  std::shared_ptr<const Shares> shares;
  PipelinePart part;       // of the pipeline
  std::int64_t tried = 0;  // of its plans, where all are simulated
  bool operator>(const PerBlockNode& other) const {
    if (bound != other.bound) {
      return bound > other.bound;
    }
    if (mesh != other.mesh || pipeline != other.pipeline) {
      return mesh != other.mesh ? mesh > other.mesh : pipeline > other.pipeline;
    }
    return number > other.number;
  }
};

using PerBlockQueue = std::priority_queue<PerBlockNode, std::vector<PerBlockNode>, std::greater<>>;

}  // namespace orrery::search
