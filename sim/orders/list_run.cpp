// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/list_run.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace orrery::sim {
namespace {

// What a pass needs of its own virtual stage, unlike PassInputs.
template <typename Visit>
void for_each_of_own(const Pass& pass, std::uint32_t slices, Visit visit) {
  const auto need = [&](Lane lane, std::uint32_t unit) {
    visit(PassInput{lane, pass.virtual_stage, unit, kNeighbour});
  };
  const std::uint32_t unit = pass.micro_batch;
  const Lane lane = lane_of(pass.kind);
  if (lane == Lane::WeightGrad) {
    need(Lane::Gradient, unit);
  }
  if (lane == Lane::Gradient || lane == Lane::Recompute) {
    need(Lane::Forward, unit);
  }
  if (lane == Lane::Gradient) {
    need(Lane::Recompute, unit);
    if (unit % slices + 1 < slices) {
      need(Lane::Gradient, unit + 1);
    }
  }
  if (lane == Lane::Forward && unit % slices > 0) {
    need(Lane::Forward, unit - 1);
  }
}

}  // namespace

Block block_at(const PipelineOrder& order, std::size_t device, std::size_t at) {
  const std::vector<Pass>& list = order.passes[device];
  Block block{device, at, at};
  while (block.begin > 0 && list[block.begin - 1].joined) {
    --block.begin;
  }
  while (block.end + 1 < list.size() && list[block.end].joined) {
    ++block.end;
  }
  ++block.end;
  return block;
}

ListRun::ListRun(const PipelineOrder& order, const std::vector<Move>& moves, std::int64_t& left)
    : order_(order),
      moves_(moves),
      left_(left),
      inputs_(order),
      units_(static_cast<std::size_t>(order.micro_batches)),
      position_(order.passes.size(), 0),
      made_(moves.size(), 0),
      ran_(order.passes.size()) {
  const std::size_t passes = static_cast<std::size_t>(order.num_virtual_stages) * units_;
  done_.fill(std::vector<bool>(passes, false));
  listed_.fill(Positions(passes, 0));
  for (const auto& list : order.passes) {
    to_run_ += list.size();
    for (std::size_t at = 0; at < list.size(); ++at) {
      for_each_result(list[at], [&](std::size_t lane, std::size_t result) {
        listed_[lane][result] = static_cast<std::uint32_t>(at + 1);
      });
    }
  }
  const std::size_t devices = order.passes.size();
  for (bool progress = may_look(to_run_); progress;) {
    progress = false;
    for (std::size_t visit = 0; visit < 2 * devices; ++visit) {
      const std::size_t d = visit < devices ? visit : 2 * devices - 1 - visit;
      while (run_next(d)) {
        progress = true;
      }
    }
    progress = progress || run_moved(true) || run_moved(false);
  }
}

ListRun::Circle ListRun::circle() const {
  Circle circle;
  std::vector<std::size_t> ways;                                     // moves before each block
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;  // their numbers
  const auto is_new = [&](const Block& block) {
    return known.try_emplace({block.device, block.begin}, circle.blocks.size()).second;
  };
  Block block = first_stuck();
  while (is_new(block)) {
    circle.blocks.push_back(block);
    ways.push_back(circle.moves.size());
    const Block needed = block_with(*missing_input(block));
    block = is_moved(needed) ? needed : block_at(order_, needed.device, position_[needed.device]);
    if (block != needed) {
      circle.moves.push_back({needed, false});
      circle.moves.push_back({block, true});
    }
  }
  // What only leads to the circle is no part of it.
  const auto first = static_cast<std::ptrdiff_t>(known.at({block.device, block.begin}));
  const auto before = static_cast<std::ptrdiff_t>(ways[static_cast<std::size_t>(first)]);
  circle.blocks.erase(circle.blocks.begin(), circle.blocks.begin() + first);
  circle.moves.erase(circle.moves.begin(), circle.moves.begin() + before);
  for (const Move& move : circle.moves) {
    if (is_new(move.block)) {
      circle.blocks.push_back(move.block);
    }
  }
  return circle;
}

// Calls visit(lane, index) for each that a pass gives.
template <typename Visit>
void ListRun::for_each_result(const Pass& pass, Visit visit) const {
  const std::size_t at = index(pass.virtual_stage, pass.micro_batch);
  visit(static_cast<std::size_t>(lane_of(pass.kind)), at);
  if (pass.kind == PassKind::Backward) {
    visit(static_cast<std::size_t>(Lane::WeightGrad), at);
  }
}

bool ListRun::may_look(std::size_t passes) {
  left_ -= static_cast<std::int64_t>(passes);
  return left_ > 0;
}

bool ListRun::is_moved(const Block& block) const {
  return std::any_of(moves_.begin(), moves_.end(),
                     [&](const Move& move) { return move.block == block; });
}

bool ListRun::is_within(const PassInput& result, const Block& block, std::size_t end) const {
  const std::size_t behind = behind_of(result);
  return block.begin < behind && behind <= end &&
         device_of(order_, result.lane, result.virtual_stage) == block.device;
}

std::optional<PassInput> ListRun::missing_input(const Block& block, std::size_t at) const {
  std::optional<PassInput> missing;
  const auto need = [&](const PassInput& input) {
    const auto lane = static_cast<std::size_t>(input.lane);
    if (!missing && behind_of(input) > 0 && !done_[lane][index(input.virtual_stage, input.unit)]) {
      missing = input;
    }
  };
  const Pass& pass = order_.passes[block.device][at];
  // From one in front in its block, too.
  for_each_of_own(pass, static_cast<std::uint32_t>(order_.slices), [&](const PassInput& input) {
    if (!is_within(input, block, at)) {
      need(input);
    }
  });
  inputs_.for_each(pass, need);
  return missing;
}

std::optional<PassInput> ListRun::missing_input(const Block& block) const {
  std::optional<PassInput> missing;
  for (std::size_t k = block.begin; k < block.end && !missing; ++k) {
    missing = missing_input(block, k);
  }
  return missing;
}

Block ListRun::first_stuck() const {
  for (std::size_t d = 0; d < position_.size(); ++d) {
    if (position_[d] < order_.passes[d].size()) {
      return block_at(order_, d, position_[d]);
    }
  }
  const auto move = std::find(made_.begin(), made_.end(), 0) - made_.begin();
  return moves_[static_cast<std::size_t>(move)].block;
}

// The block of a pass that has not run.
Block ListRun::block_with(const PassInput& result) const {
  const std::size_t device = device_of(order_, result.lane, result.virtual_stage);
  return block_at(order_, device, behind_of(result) - 1);
}

// The next block of a device that does not move.
bool ListRun::run_next(std::size_t device) {
  std::size_t& at = position_[device];
  while (at < order_.passes[device].size()) {
    const Block block = block_at(order_, device, at);
    const bool moves = is_moved(block);
    if (!moves && !run(block)) {
      return false;
    }
    at = block.end;
    if (!moves) {
      while (run_moved(true)) {
      }
      return true;
    }
  }
  return false;
}

// One of those that move later, or earlier.
bool ListRun::run_moved(bool later) {
  for (std::size_t k = 0; k < moves_.size(); ++k) {
    if (made_[k] == 0 && moves_[k].later == later && run(moves_[k].block)) {
      made_[k] = 1;
      return true;
    }
  }
  return false;
}

bool ListRun::run(const Block& block) {
  const std::size_t passes = block.end - block.begin;
  if (!may_look(passes) || missing_input(block)) {
    return false;
  }
  for (std::size_t k = block.begin; k < block.end; ++k) {
    for_each_result(order_.passes[block.device][k],
                    [&](std::size_t lane, std::size_t result) { done_[lane][result] = true; });
  }
  to_run_ -= passes;
  ran_[block.device].push_back(block);
  return true;
}

}  // namespace orrery::sim
