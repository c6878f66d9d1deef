// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/conversions.hpp"

#include <algorithm>
#include <utility>

#include "plan/block/relayout.hpp"
#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

void add(const Relayout& change, StageCost& stage) {
  stage.relayout_forward += change.forward;
  stage.relayout_backward += change.backward;
  stage.forward += to_sim_time(change.forward);
  stage.gathered_forward += to_sim_time(change.forward);
  stage.backward += to_sim_time(change.backward);
  stage.last_backward += to_sim_time(change.backward);
}

// The pairs of neighbouring blocks of the chain, one after the other.
class Converter {
 public:
  Converter(const Plan& plan, BlockCosts& costs, const Slice& slice, std::vector<StageCost>& stages)
      : plan_(plan), costs_(costs), slice_(slice), stages_(stages) {}

  void convert(int position, std::size_t stage, bool is_last_of_stage) {
    const BlockPlan& from = plan_.layout_of(position);
    const BlockPlan& to = plan_.layout_of(position + 1);
    const bool to_end = shares_ends_ && is_layer(position) != is_layer(position + 1);
    if (from == to || (!is_last_of_stage && !to_end)) {
      return;
    }
    const Relayout change = relayout_of({block_at(position), from, block_at(position + 1), to});
    // Of the ends the stage with the layer; an embedding may end its stage: then that is the next.
    const bool next = is_last_of_stage && !(to_end && is_layer(position));
    for (std::size_t copy = 0; copy < copies_; ++copy) {
      add(change, stages_[copy * plan_.stage_blocks.size() + stage + (next ? 1 : 0)]);
    }
  }

 private:
  int block_at(int position) const {
    return plan_.network.chain[static_cast<std::size_t>(position)];
  }
  bool is_layer(int position) const {
    return plan_.network.blocks[static_cast<std::size_t>(block_at(position))].kind ==
           models::BlockKind::Layer;
  }
  // Few are different.
  const Relayout& relayout_of(const Neighbours& pair) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const auto& one) {
      return one.first.block == pair.block && one.first.next == pair.next &&
             one.first.from == pair.from && one.first.to == pair.to;
    });
    if (known != known_.end()) {
      return known->second;
    }
    known_.emplace_back(pair, relayout(plan_, costs_, pair, slice_));
    return known_.back().second;
  }

  const Plan& plan_;
  BlockCosts& costs_;
  const Slice& slice_;
  std::vector<StageCost>& stages_;
  std::vector<std::pair<Neighbours, Relayout>> known_;
  bool shares_ends_ = shares_output_layer(plan_);
  std::size_t copies_ = schedule_traits(plan_).two_directions ? 2 : 1;
};

}  // namespace

void add_conversions(const Plan& plan, BlockCosts& costs, std::vector<StageCost>& stages,
                     const Slice& slice) {
  Converter converter(plan, costs, slice, stages);
  int position = 0;
  for (std::size_t stage = 0; stage < plan.stage_blocks.size(); ++stage) {
    const int end = position + plan.stage_blocks[stage];
    for (; position < end; ++position) {
      if (position + 1 < static_cast<int>(plan.network.chain.size())) {
        converter.convert(position, stage, position + 1 == end);
      }
    }
  }
}

void add_conversions(const Plan& plan, BlockCosts& costs, SliceCosts& slices) {
  const std::vector<Slice> each = slices_of(plan);
  for (std::size_t index = 0; index < each.size(); ++index) {
    std::vector<StageCost> stages;
    for (const std::vector<StageCost>& stage : slices) {
      stages.push_back(stage[index]);
    }
    add_conversions(plan, costs, stages, each[index]);
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      slices[stage][index] = std::move(stages[stage]);
    }
  }
}

}  // namespace orrery::plan
