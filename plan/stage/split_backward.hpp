// SPDX-License-Identifier: Apache-2.0
// A backward cut into the pass of input gradients (B, recomputation included) and the pass of
// weight gradients (W). Each is simulated alone: collectives that a whole backward hides under
// weight-gradient GEMMs are exposed in B. The two never take less than the whole. Between them a
// device keeps what the weight gradients read: inputs and output gradients of the products (Qi et
// al., ICLR 2024, section 2.1: M_W); embedding and head keep all they saved. Kept per block.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

struct BlockItem;  // plan/stage/block_items.hpp

// The steps of a block's backward by the pass they run in. What depended on a step of the other
// pass depends on what came before that step in its own, so that collectives hide no more than they
// did. Collectives that only weight gradients wait for belong to W.
struct SplitSteps {
  std::vector<Step> input_grad;
  std::vector<Step> weight_grad;
};
SplitSteps split_steps(const std::vector<Step>& backward);
// The part of the host time of a whole backward that issuing some of its kernels takes.
double host_share(const std::vector<Step>& part, const std::vector<Step>& backward);

// Of one virtual stage and micro-batch.
struct SplitTimes {
  SimTime input_grad;
  SimTime weight_grad;
};

bool splits_backward(const sim::PipelineOrder& order);
// By virtual stage, whether the last backward of an iteration is cut.
std::vector<bool> ends_cut(const sim::PipelineOrder& order);

class SplitBackwards {
 public:
  // The cut of a stage's backward, apart from its data-parallel traffic.
  SplitTimes times(const StageContent& content, const Plan& plan, const BlockCosts& costs,
                   const StageCost& stage);
  // With it, of a stage that is simulated: parameters are gathered for B, gradients are there after
  // W. Where its last backward is cut, the reductions of the step are hidden under that W alone.
  SplitTimes times_with_traffic(const StageContent& content, const Plan& plan, BlockCosts& costs,
                                bool last_is_cut, StageCost& stage);
  // The same of all virtual stages.
  std::vector<SplitTimes> times_with_traffic(const std::vector<StageContent>& contents,
                                             const Plan& plan, BlockCosts& costs,
                                             const std::vector<bool>& last_is_cut,
                                             std::vector<StageCost>& stages);
  // B as a part of a whole backward of the block.
  double input_share(const StagePiece& piece, const Plan& plan, const BlockCosts& costs);
  // Bytes kept from B to W: of the layers and of embedding and head.
  struct Kept {
    ByteCount layers;
    ByteCount ends;
    ByteCount carried;  // of the layers: what all of them read (plan/block/carried.hpp)
  };
  Kept kept(const StageContent& content, const Plan& plan, const BlockCosts& costs);

 private:
  struct Split {
    double whole = 0;  // seconds of a backward
    double input_grad = 0;
    double weight_grad = 0;
    ByteCount kept;
    Carried carried;
    bool layer = true;
  };
  const Split& of(const StagePiece& piece, const Plan& plan, const BlockCosts& costs);
  // What data-parallel traffic adds to B and W; the same for stages of one content.
  struct Traffic {
    SimTime gathers;
    SimTime reductions;
    struct Last {  // backward of the step, where it is cut: beyond the usual one
      SimTime compute;
      SimTime reductions;  // behind it
    };
    std::optional<Last> last;
  };
  Traffic traffic(const StageContent& content, const Plan& plan, BlockCosts& costs,
                  bool last_is_cut, const StageCost& stage);
  SplitTimes times_with(const Traffic& traffic, const StageContent& content, const Plan& plan,
                        const BlockCosts& costs, StageCost& stage);
  // The blocks of a stage in B, without reductions, and in W.
  std::pair<std::vector<BlockItem>, std::vector<BlockItem>> cut_items(const StageContent& content,
                                                                      const Plan& plan,
                                                                      BlockCosts& costs);
  std::unordered_map<BlockCosts::Key, Split, BlockCosts::KeyHash> known_;
};

}  // namespace orrery::plan
