// SPDX-License-Identifier: Apache-2.0
// What a plan's layouts mean for one rank, block by block: which part of every tensor it holds and
// which collectives run, forward and backward, with their buffers and counts. Nothing is timed;
// runs of equal blocks are reported once. Of a plan with slices the tensors are those of the
// longest slice, the collectives those of all; of a serving plan both are those of the largest
// iteration, in which the head has the tokens that are sampled, and a layer also holds its part of
// the full cache. O(distinct blocks x slices x operators).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/block/cost.hpp"

namespace orrery::plan {

enum class HeldKind : std::uint8_t { Activation, Weight, Cache, Gradient, Optimizer };
std::string_view to_text(HeldKind kind);

// What the forward leaves of an activation for the backward: nothing, because its last reader has
// run, or because it is made again there.
enum class HeldUse : std::uint8_t { Passing, Saved, Recomputed };
std::string_view to_text(HeldUse use);

struct HeldTensor {
  std::string name;
  HeldKind kind = HeldKind::Activation;
  std::string layout;  // "batch: dp, head: tp, sum: tp-depth"; "replicated"
  std::string shape;   // "batch 2 x seq 2048 x head 4 x head-dim 64"
  ByteCount bytes;     // of one rank, wherever it is
  HeldUse use = HeldUse::Passing;
  Tier tier = Tier::Device;  // where `away` of it is while no pass uses it
  double away = 0;
};

struct ReportedCollective {
  sim::PassKind pass = sim::PassKind::Forward;
  sim::CommKind kind = sim::CommKind::None;
  std::string axes;  // "tp", "cp x dp", "ep, across nodes"
  int ranks = 1;
  std::string tensor;  // first of them
  int count = 1;       // of equal ones
  int pieces = 1;
  Bytes bytes;  // buffer of one, as nccl-tests prints it
  Bytes sent;   // by a rank in a bandwidth-optimal ring, all of them together
};

// A tensor-parallel rank where tensor_shares make them unlike.
struct RankShare {
  int rank = 0;
  int share = 0;
  std::string holds;  // "head 12 of 32, kv-head 3 of 8, ffn 5376 of 14336"
  ByteCount weights;
};

struct BlockReport {
  std::string name;
  int first = 0;  // chain position
  int count = 1;
  std::string layout;               // degrees
  std::string mesh;                 // "tp 8 x dp 16"
  std::int64_t tokens = 0;          // of a sequence, or of an iteration; of its longest slice
  std::vector<HeldTensor> tensors;  // of the rank that holds most
  std::vector<RankShare> shares;    // by tensor-parallel rank; empty: all alike
  std::vector<ReportedCollective> collectives;  // of a micro-batch
  std::vector<ReportedCollective> states;       // of gradients and parameters
  // The residual stream on its way from the block before, where layouts differ.
  std::vector<ReportedCollective> conversion;
  // To the next stage and back, of a micro-batch: counts are of the stages that end here.
  std::vector<ReportedCollective> transfers;
};

std::vector<BlockReport> report_layouts(const Plan& plan);

}  // namespace orrery::plan
