// SPDX-License-Identifier: Apache-2.0
// The blocks of a plan as templates of the flat mode: the steps of block/steps.hpp reduced to what
// an engine needs beside stream order, and the data-parallel traffic of the block.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/block/cost.hpp"
#include "sim/engine/program.hpp"

namespace orrery::plan {

struct FlatStep {
  bool collective = false;
  Seconds time;
  std::uint8_t axes = 0;  // of a collective, bit i for axis i
  // The latest step of the other stream that it waits for, -1: none. Stream order covers the rest.
  int after = -1;
  sim::PassKind pass = sim::PassKind::Forward;
  sim::CommKind comm = sim::CommKind::None;
  std::uint32_t name = 0;
};

struct FlatList {
  std::vector<FlatStep> steps;
  // To issue all kernels, where that is longer than they take; else 0. Of a backward from the
  // start of its recomputation on.
  Seconds host;
  Seconds copies;  // of whole parameters and gradients, after the kernels
};

struct FlatBlock {
  FlatList forward;
  FlatList recompute;
  FlatList backward;
  FlatList input_grad;  // the backward in two passes, where asked for
  FlatList weight_grad;
  bool serial = true;  // no two of its steps run side by side
  Mesh mesh;           // with all data-parallel ranks
  Seconds gather;      // of the parameters
  Seconds gather_backward;
  Seconds reduce;  // of the gradients
  std::uint8_t gather_axes = 0;
  std::uint8_t reduce_axes = 0;
};

struct FlatBlockRequest {
  int block = 0;  // index into Network::blocks
  const BlockPlan& layout;
  bool without_tied = false;
  bool merge_kernels = false;
  bool split_backward = false;
};

// Names go into the program.
FlatBlock flat_block(const FlatBlockRequest& request, const Plan& plan, BlockCosts& costs,
                     sim::Program& program);

}  // namespace orrery::plan
