// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/layout_bounds.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/math.hpp"
#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/joined.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/step_end.hpp"

namespace orrery::plan {

namespace {

std::size_t copies_of(const StagePlacement& placement) { return placement.two_directions ? 2 : 1; }

}  // namespace

LayoutBounds::LayoutBounds(const Plan& plan, const std::vector<int>& zero_stages, BlockCosts& costs,
                           SplitBackwards& splits)
    : plan_(plan),
      costs_(costs),
      splits_(splits),
      zero_stages_(zero_stages),
      like_layers_(has_like_layers(plan)) {
  for (std::size_t index = 0; index < plan.network.blocks.size(); ++index) {
    blocks_.push_back(bound_of(static_cast<int>(index), costs));
  }
  count_blocks();
  find_thriftiest();
}

template <typename Visit>
void LayoutBounds::for_blocks(int first, int count, Visit visit) const {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const std::vector<int>& before = before_[block];
    const int here =
        before[static_cast<std::size_t>(first + count)] - before[static_cast<std::size_t>(first)];
    if (here > 0) {
      visit(blocks_[block], here);
    }
  }
}

bool LayoutBounds::alike(int first, int other, int count) const {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const auto here = [&](int position) {
      return before_[block][static_cast<std::size_t>(position + count)] -
             before_[block][static_cast<std::size_t>(position)];
    };
    if (here(first) != here(other) || (here(first) > 0 && blocks_[block].uses_table)) {
      return false;
    }
  }
  return true;
}

class LayoutBounds::TablesOfDevices {
 public:
  // The chain begins with the embedding.
  TablesOfDevices(const StagePlacement& placement, std::size_t stages, int devices)
      : counted_(static_cast<std::size_t>(devices), false) {
    for (std::size_t copy = 0; copy < copies_of(placement) && !placement.shares_ends; ++copy) {
      counted_[placement.device_of[copy * stages]] = true;
    }
  }
  // The states of a block that comes next on a device.
  const StateBytes& states(const Block& block, std::size_t device, std::size_t zero) {
    const bool elsewhere = block.uses_table && counted_[device];
    counted_[device] = counted_[device] || block.uses_table;
    return block.states[elsewhere ? 1 : 0][zero];
  }

 private:
  std::vector<bool> counted_;
};

// Packs of sequences are as long as they are: nothing is known of them here.
Seconds LayoutBounds::least_time(bool shares_ends, bool joins_passes) const {
  if (!plan_.packs.empty()) {
    return Seconds();
  }
  SimTime work;
  for_blocks(0, static_cast<int>(plan_.network.chain.size()), [&](const Block& block, int count) {
    if (!shares_ends || !block.end) {
      const SimTime hidden = joins_passes ? block.most_hidden : SimTime{};
      work += (block.forward + block.backward - hidden) * count;
    }
  });
  const double share = static_cast<double>(plan_.num_micro_batches()) / plan_.pp;
  return to_seconds(work) * (share * kRounding);
}

ByteCount LayoutBounds::least_memory(std::size_t zero, bool recomputes) const {
  if (!plan_.packs.empty()) {
    return ByteCount();
  }
  ByteCount held;
  ByteCount working(-1);
  for_blocks(0, static_cast<int>(plan_.network.chain.size()), [&](const Block& block, int count) {
    const StateBytes& states = block.states[1][zero];
    const ByteCount saved = recomputes ? ByteCount() : block.saved;
    held += (states.held_parameters() + states.gradients + states.optimizer + saved) * count;
    working = working.value() < 0 ? block.working : std::min(working, block.working);
  });
  // A copy of the ends on every device is left out, so shares of them are covered, too.
  return ByteCount(held.value() / plan_.pp) + working + communicator_bytes(plan_) + context_bytes();
}

StagePasses LayoutBounds::passes_of(int first, int count, const StagePlacement& placement) const {
  StagePasses passes;
  for_blocks(first, count, [&](const Block& block, int times) {
    if (!is_apart(block, placement)) {
      passes.forward += block.forward * times;
      const SimTime hidden = placement.joins_passes ? block.most_hidden : SimTime{};
      passes.backward += (block.backward - hidden) * times;
      passes.slice_forward += block.slice_forward * times;
      passes.slice_backward += block.slice_backward * times;
    }
  });
  return passes;
}

LayoutBounds::PassTraffic LayoutBounds::traffic_of(int first, int count, std::size_t zero) const {
  PassTraffic sum;
  for_blocks(first, count, [&](const Block& block, int times) {
    sum.forward += block.traffic[zero].forward * times;
    sum.backward += block.traffic[zero].backward * times;
  });
  return sum;
}

Seconds LayoutBounds::time(const std::vector<int>& stages, const StagePlacement& placement,
                           TransferTimes& transfers) const {
  return time_of(stages, placement, transfers, std::nullopt);
}

Seconds LayoutBounds::time(const std::vector<int>& stages, const StagePlacement& placement,
                           TransferTimes& transfers, std::size_t zero) const {
  const bool is_plain = placement.flushes && placement.whole_backwards &&
                        !placement.two_directions && !placement.joins_passes &&
                        !placement.shares_ends && !placement.fills_frozen && !placement.recomputes;
  return is_plain && zero_stages_[zero] >= 2 && plan_.packs.empty()
             ? time_of(stages, placement, transfers, zero)
             : Seconds();
}

Seconds LayoutBounds::time_of(const std::vector<int>& stages, const StagePlacement& placement,
                              TransferTimes& transfers, std::optional<std::size_t> zero) const {
  if (placement.spreads_attention || placement.undecided) {
    return least_time(false, placement.joins_passes);
  }
  const std::size_t chain = stages.size();
  std::vector<StagePasses> passes(chain);
  std::vector<ByteCount> boundary(chain);
  int first = 0;
  for (std::size_t stage = 0; stage < chain; ++stage) {
    const bool repeats = stage > 0 && stages[stage] == stages[stage - 1] &&
                         alike(first - stages[stage], first, stages[stage]);
    passes[stage] = repeats ? passes[stage - 1] : passes_of(first, stages[stage], placement);
    if (zero && !repeats) {
      const PassTraffic traffic = traffic_of(first, stages[stage], *zero);
      passes[stage].forward = std::max(passes[stage].forward, traffic.forward);
      passes[stage].backward = std::max(passes[stage].backward, traffic.backward);
    }
    first += stages[stage];
    const int last = plan_.network.chain[static_cast<std::size_t>(first - 1)];
    boundary[stage] = blocks_[static_cast<std::size_t>(last)].boundary;
  }
  const int parts = parts_sent(plan_, plan_.blocks.front().layout);
  for (std::size_t stage = 0; stage + 1 < chain; ++stage) {
    const SimTime send = transfers.of(plan_, boundary[stage], parts, placement.device_of[stage],
                                      placement.device_of[stage + 1]);
    if (plan_.execution.overlap_p2p) {
      const bool frozen = passes[stage].backward == SimTime{};
      passes[stage].send = send;
      passes[stage].send_back = frozen ? SimTime{} : send;
    } else {
      passes[stage].forward += send * plan_.slices;
      passes[stage].slice_forward += send;
      if (passes[stage].backward == SimTime{}) {
        continue;  // frozen
      }
      passes[stage + 1].backward += send * plan_.slices;
      passes[stage + 1].slice_backward += send;
    }
  }
  if (!placement.whole_backwards) {
    for (StagePasses& stage : passes) {
      stage.late = std::max(stage.backward, stage.slice_backward);
    }
  }
  const SimTime bound = pipeline_floor(passes, placement, plan_.pp, plan_.num_micro_batches());
  return (to_seconds(bound) + optimizer(stages, placement)) * kRounding;
}

Seconds LayoutBounds::optimizer(const std::vector<int>& stages,
                                const StagePlacement& placement) const {
  if (!placement.flushes || placement.shares_ends) {
    return Seconds();
  }
  std::vector<std::int64_t> parameters(static_cast<std::size_t>(plan_.pp), 0);  // by device
  TablesOfDevices tables(placement, stages.size(), plan_.pp);
  for (std::size_t copy = 0; copy < copies_of(placement); ++copy) {
    int first = 0;
    for (std::size_t stage = 0; stage < stages.size(); first += stages[stage], ++stage) {
      const std::size_t device = placement.device_of[copy * stages.size() + stage];
      for_blocks(first, stages[stage], [&](const Block& block, int count) {
        parameters[device] += tables.states(block, device, thriftiest_).local_parameters * count;
      });
    }
  }
  const std::int64_t most = *std::max_element(parameters.begin(), parameters.end());
  return optimizer_time(plan_, most, ByteCount(), costs_);
}

SimTime LayoutBounds::input_grad(std::size_t index) {
  Block& block = blocks_[index];
  if (block.input_grad < SimTime{}) {
    const StagePiece piece{static_cast<int>(index), plan_.blocks.front().layout, 1};
    const double share = splits_.input_share(piece, plan_, costs_);
    block.input_grad = {static_cast<std::int64_t>(static_cast<double>(block.backward.ps) *
                                                  std::min(share, 1.0) * kRounding)};
  }
  return block.input_grad;
}

LayoutBounds::Activations LayoutBounds::activations(const std::vector<int>& stages,
                                                    const StagePlacement& placement,
                                                    bool integrate) {
  const auto devices = static_cast<std::size_t>(plan_.pp);
  const std::size_t copies = copies_of(placement);
  const double units = static_cast<double>(plan_.num_micro_batches()) / static_cast<double>(copies);
  Activations result{std::vector<ByteCount>(devices), std::vector<double>(devices, 0.0)};
  SimTime stay;  // of a micro-batch, from here on to the end of the chain and back
  int end = static_cast<int>(plan_.network.chain.size());
  for (std::size_t stage = stages.size(); stage-- > 0;) {
    ByteCount saved;
    const int first = end - stages[stage];
    for (std::size_t index = 0; index < blocks_.size(); ++index) {
      const std::vector<int>& before = before_[index];
      const int count =
          before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(first)];
      if (count == 0 || is_apart(blocks_[index], placement)) {
        continue;
      }
      saved += blocks_[index].saved * count;
      if (integrate) {
        const SimTime gradient =
            placement.whole_backwards ? blocks_[index].slice_backward : input_grad(index);
        stay += (blocks_[index].slice_forward + gradient) * count;
      }
    }
    for (std::size_t copy = 0; copy < copies; ++copy) {
      const std::size_t device = placement.device_of[copy * stages.size() + stage];
      result.least[device] += copy == 0 ? saved : ByteCount();
      result.integral[device] +=
          units * to_seconds(stay).value() * static_cast<double>(saved.value());
    }
    end = first;
  }
  return result;
}

namespace {

// What so many consecutive ones of `blocks` take where they take most, at least: beside the largest
// one others no smaller than the smallest; and of as many runs as cover all blocks the mean.
ByteCount least_in_flight(ByteCount all, ByteCount largest, ByteCount smallest, std::int64_t blocks,
                          std::int64_t in_flight) {
  const std::int64_t run = std::min(blocks, in_flight);
  return std::max(largest + smallest * (run - 1), ByteCount(all.value() / ceil_div(blocks, run)));
}

}  // namespace

LayoutBounds::FixedBytes LayoutBounds::fixed_bytes_of(int first, int count,
                                                      const StagePlacement& placement,
                                                      std::size_t zero, std::size_t device,
                                                      TablesOfDevices& tables) const {
  FixedBytes bytes;
  PassBuffers& buffers = bytes.buffers;
  ByteCount all, largest;
  ByteCount smallest;
  std::size_t blocks = 0;
  for_blocks(first, count, [&](const Block& block, int times) {
    if (is_apart(block, placement)) {
      return;
    }
    const StateBytes& states = tables.states(block, device, zero);
    bytes.held += (states.held_parameters() + states.gradients + states.optimizer) * times;
    all += states.gathered * times;
    largest = std::max(largest, states.gathered);
    smallest = blocks == 0 ? states.gathered : std::min(smallest, states.gathered);
    blocks += static_cast<std::size_t>(times);
    buffers.one_block = std::max(buffers.one_block, states.of_one_block());
    buffers.working = std::max(buffers.working, block.working);
  });
  buffers.gathered = all;
  if (plan_.execution.reshard_after_forward && blocks > 0) {
    buffers.gathered =
        least_in_flight(all, largest, smallest, static_cast<std::int64_t>(blocks),
                        static_cast<std::int64_t>(gathers_in_flight(plan_.execution)));
  }
  return bytes;
}

std::vector<ByteCount> LayoutBounds::fixed_bytes(const std::vector<int>& stages,
                                                 const StagePlacement& placement,
                                                 std::size_t zero) const {
  const auto devices = static_cast<std::size_t>(plan_.pp);
  std::vector<ByteCount> held(devices, communicator_bytes(plan_) + context_bytes());
  std::vector<DeviceBuffers> buffers(devices,
                                     DeviceBuffers(placement.joins_passes, plan_.execution));
  TablesOfDevices tables(placement, stages.size(), plan_.pp);
  for (std::size_t copy = 0; copy < copies_of(placement); ++copy) {
    int first = 0;
    FixedBytes bytes;
    for (std::size_t stage = 0; stage < stages.size(); first += stages[stage], ++stage) {
      const std::size_t device = placement.device_of[copy * stages.size() + stage];
      const bool repeats = stage > 0 && stages[stage] == stages[stage - 1] &&
                           alike(first - stages[stage], first, stages[stage]);
      if (!repeats) {
        bytes = fixed_bytes_of(first, stages[stage], placement, zero, device, tables);
      }
      held[device] += bytes.held;
      buffers[device].add(bytes.buffers);
    }
  }
  for (std::size_t device = 0; device < devices; ++device) {
    held[device] += buffers[device].total();
  }
  return held;
}

std::vector<ByteCount> LayoutBounds::memory(const std::vector<int>& stages,
                                            const StagePlacement& placement) {
  std::vector<ByteCount> fullest(zero_stages_.size());
  Activations held = placement.undecided ? Activations{} : activations(stages, placement, false);
  if (placement.recomputes) {  // of several chunks never two at a time, perhaps
    std::fill(held.least.begin(), held.least.end(), ByteCount());
  }
  for (std::size_t zero = 0; zero < fullest.size(); ++zero) {
    if (placement.undecided) {
      fullest[zero] = least_memory(zero, placement.recomputes);
      continue;
    }
    const std::vector<ByteCount> fixed = fixed_bytes(stages, placement, zero);
    for (std::size_t device = 0; device < fixed.size(); ++device) {
      fullest[zero] = std::max(fullest[zero], fixed[device] + held.least[device]);
    }
  }
  return fullest;
}

Seconds LayoutBounds::time_within(const std::vector<int>& stages, const StagePlacement& placement,
                                  std::size_t zero, ByteCount capacity) {
  Seconds bound;
  if (!placement.flushes || placement.copies_to_host || placement.spreads_attention ||
      placement.recomputes || placement.undecided) {
    return bound;
  }
  const std::vector<ByteCount> fixed = fixed_bytes(stages, placement, zero);
  const Activations held = activations(stages, placement, true);
  for (std::size_t device = 0; device < fixed.size(); ++device) {
    const ByteCount left = capacity - fixed[device];
    if (left.value() > 0) {
      bound = std::max(bound, Seconds(held.integral[device] / static_cast<double>(left.value())));
    }
  }
  return bound * (1.0 - 1e-9);
}

}  // namespace orrery::plan
