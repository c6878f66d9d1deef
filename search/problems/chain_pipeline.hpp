// SPDX-License-Identifier: Apache-2.0
// A cut chain as a synchronous pipeline on the simulator: a stage's replicas share every
// micro-batch and all-reduce their gradients after their last backward, beside other stages; a
// transfer between stages is shared by the wider side and takes the slowest link between them.
// Stages take consecutive devices of the order.
#pragma once

#include <cstdint>
#include <vector>

#include "search/problems/chain.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::search {

// Bandwidths between positions of an order of devices, bytes/s.
class ChainLinks {
 public:
  explicit ChainLinks(double all) : all_(all) {}
  // A symmetric matrix by device, and the devices in the order of the stages.
  ChainLinks(std::vector<std::vector<double>> matrix, std::vector<int> order);

  // Slowest link between positions [a, b) and [c, d).
  double slowest(int a, int b, int c, int d) const;

 private:
  double all_ = 0;
  std::vector<std::vector<double>> matrix_;  // by position; empty: all_
};

struct ChainPipeline {
  const Chain* chain = nullptr;
  std::vector<ChainStage> stages;
  double forward_fraction = 1.0 / 3;  // of a stage's time, where layers state only one sum of both
  bool recompute = false;

  double forward(const ChainStage& stage) const;
  double backward(const ChainStage& stage) const;  // with recomputation
  // Parameters, and what `held` micro-batches keep: with recomputation the input of each and all
  // of one.
  double memory(const ChainStage& stage, std::int64_t held) const;
};

struct ChainRun {
  sim::PipelineResult result;
  double iteration = 0;  // seconds, the last all-reduce included
};

// Runs an order of one chunk per device and fused backwards.
ChainRun run_chain(const ChainPipeline& pipeline, const ChainLinks& links,
                   const sim::PipelineOrder& order);
// Under 1F1B of stages and channels alike, each with an ordered list of its own (Luo et al., SPP,
// INFOCOM 2022: earlier micro-batches first, a backward before a forward), in seconds: no less than
// what the busiest stage or channel takes.
double iteration_with_channels(const ChainPipeline& pipeline, const ChainLinks& links,
                               int micro_batches);

}  // namespace orrery::search
