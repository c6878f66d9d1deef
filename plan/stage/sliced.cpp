// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/sliced.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/offload_time.hpp"

namespace orrery::plan {

namespace {

constexpr auto kAttention = static_cast<std::size_t>(CostClass::Attention);

// Slices that travel through the chunks of SlimPipe as a group.
int slices_in_group(const Plan& plan) {
  if (plan.chunks == 1) {
    return plan.slices;
  }
  int group = std::min(plan.pp, plan.slices);
  while (plan.slices % group != 0) {
    ++group;
  }
  return group;
}

int wrapped(int value, int count) { return (value % count + count) % count; }

// Whether the chunks of a device have the same attention, so that what one of them takes over from
// a later slice another gives to an earlier one.
bool chunks_alike(const Plan& plan, const SliceCosts& stages, std::size_t stage) {
  const auto pp = static_cast<std::size_t>(plan.pp);
  const std::vector<StageCost>& first = stages[stage % pp];
  for (std::size_t other = stage % pp; other < plan.stage_blocks.size(); other += pp) {
    for (std::size_t slice = 0; slice < first.size(); ++slice) {
      const StageCost& a = first[slice];
      const StageCost& b = stages[other][slice];
      if (a.forward_cost.by_class[kAttention] != b.forward_cost.by_class[kAttention] ||
          a.backward_cost.by_class[kAttention] != b.backward_cost.by_class[kAttention]) {
        return false;
      }
    }
  }
  return true;
}

// The slice of the pass `ahead` places further in a device's order: a group goes through all chunks
// before the next group, and the next micro-batch follows. Of unlike chunks the one in the group.
int slice_ahead(const Plan& plan, int chunk, int slice, int ahead, bool alike) {
  const int group = slices_in_group(plan);
  if (!alike) {
    return slice / group * group + wrapped(slice % group + ahead, group);
  }
  const int round = group * plan.chunks;
  const int pass = slice / group * round + chunk * group + slice % group;
  const int other = wrapped(pass + ahead, plan.slices * plan.chunks);
  return other / round * group + other % group;
}

// While a device works on a slice, the one `i` places before it works on the slice i passes ahead:
// all take the mean of their attention. Rounded up, so that nothing is lost.
void exchange_attention(const Plan& plan, SliceCosts& stages) {
  const SliceCosts before_exchange = stages;
  for (std::size_t stage = 0; stage < plan.stage_blocks.size(); ++stage) {  // not of shards
    std::vector<StageCost>& slices = stages[stage];
    const std::vector<StageCost>& alone = before_exchange[stage];
    const bool alike = chunks_alike(plan, before_exchange, stage);
    SimTime shortest_forward = SimTime::max();
    SimTime shortest_backward = SimTime::max();
    for (const StageCost& slice : alone) {
      shortest_forward = std::min(shortest_forward, slice.forward);
      shortest_backward = std::min(shortest_backward, slice.backward);
    }
    const int device = static_cast<int>(stage) % plan.pp;
    for (int k = 0; k < plan.slices; ++k) {
      Seconds forward;
      Seconds backward;
      for (int other = 0; other < plan.pp; ++other) {
        const int chunk = static_cast<int>(stage) / plan.pp;
        const int at = slice_ahead(plan, chunk, k, device - other, alike);
        const StageCost& cost = alone[static_cast<std::size_t>(at)];
        forward += cost.forward_cost.by_class[kAttention];
        backward += cost.backward_cost.by_class[kAttention];
      }
      StageCost& slice = slices[static_cast<std::size_t>(k)];
      // Passes that the host or a collective bounds do not get shorter than the shortest.
      const auto shift = [&](Seconds sum, SimTime least, PassCost& pass, SimTime& time) {
        const Seconds mean = sum * (1.0 / plan.pp);
        const Seconds own = pass.by_class[kAttention];
        const SimTime change = to_sim_time(mean) + SimTime{1} - to_sim_time(own);
        pass.compute += mean - own;
        pass.by_class[kAttention] = mean;
        const SimTime before = time;
        time = std::max(least, time + change);
        pass.time += time - before;
      };
      shift(forward, shortest_forward, slice.forward_cost, slice.forward);
      const SimTime before = slice.backward;
      shift(backward, shortest_backward, slice.backward_cost, slice.backward);
      slice.last_backward = slice.last_backward + slice.backward - before;
    }
  }
}

}  // namespace

SliceCosts slice_costs(const Plan& plan, const std::vector<StageContent>& contents,
                       const std::function<StageCost(const StageContent&, const Slice&)>& cost_of) {
  SliceCosts costs;
  if (plan.slices == 1) {
    return costs;
  }
  const std::vector<Slice> slices = slices_of(plan);
  for (std::size_t stage = 0; stage < contents.size(); ++stage) {
    const std::size_t first = first_equal(contents, stage);
    std::vector<StageCost> of_stage;
    if (first < stage) {
      of_stage = costs[first];
    } else {
      for (const Slice& slice : slices) {
        of_stage.push_back(cost_of(contents[stage], slice));
      }
    }
    costs.push_back(std::move(of_stage));
  }
  if (schedule_traits(plan).shares_attention) {
    exchange_attention(plan, costs);
  }
  return costs;
}

void add_offload_of_slices(const Plan& plan, const std::vector<StageContent>& contents,
                           BlockCosts& costs, SliceCosts& slices) {
  const std::vector<Slice> parts = slices_of(plan);
  for (std::size_t stage = 0; stage < contents.size(); ++stage) {
    for (std::size_t index = 0; index < parts.size(); ++index) {
      StageCost& slice = slices[stage][index];
      add_offload(contents[stage], plan, costs, parts[index], slice);
      slice.gathered_forward = std::max(slice.gathered_forward, slice.forward);
    }
  }
}

std::vector<StageCost> together(const SliceCosts& slices) {
  std::vector<StageCost> stages;
  for (const std::vector<StageCost>& of_stage : slices) {
    StageCost whole = of_stage.front();
    const SimTime reduction = whole.last_backward - whole.backward;
    const SimTime gather = whole.gathered_forward - whole.forward;
    for (std::size_t index = 1; index < of_stage.size(); ++index) {
      const StageCost& slice = of_stage[index];
      whole.forward += slice.forward;
      whole.backward += slice.backward;
      whole.forward_cost = whole.forward_cost + slice.forward_cost;
      whole.backward_cost = whole.backward_cost + slice.backward_cost;
      whole.recompute += slice.recompute;
      whole.shard_collectives += slice.shard_collectives;
      whole.amax += slice.amax;
      whole.exposed_data_forward += slice.exposed_data_forward;
      whole.exposed_data_backward += slice.exposed_data_backward;
      whole.relayout_forward += slice.relayout_forward;
      whole.relayout_backward += slice.relayout_backward;
      whole.exposed_offload_forward += slice.exposed_offload_forward;
      whole.exposed_offload_backward += slice.exposed_offload_backward;
      whole.buffers = whole.buffers.larger(slice.buffers);
      whole.copied = std::max(whole.copied, slice.copied);
      whole.saved += slice.saved;
      whole.saved_ends += slice.saved_ends;
      whole.context_gradients += slice.context_gradients;
      whole.boundary = std::max(whole.boundary, slice.boundary);
    }
    whole.last_backward = whole.backward + reduction;
    whole.gathered_forward = whole.forward + gather;
    stages.push_back(whole);
  }
  return stages;
}

std::vector<StageCost> first_slices(const SliceCosts& slices) {
  std::vector<StageCost> stages;
  for (const std::vector<StageCost>& of_stage : slices) {
    stages.push_back(of_stage.front());
  }
  return stages;
}

void add_unit_times(const Plan& plan, const SliceCosts& slices, const std::vector<SimTime>& sends,
                    sim::PipelineCosts& passes) {
  const bool waits = !plan.execution.overlap_p2p;
  const auto micro_batches = static_cast<std::size_t>(plan.num_micro_batches());
  passes.unit_forward.reserve(slices.size() * slices.front().size() * micro_batches);
  passes.unit_backward.reserve(passes.unit_forward.capacity());
  for (std::size_t stage = 0; stage < slices.size(); ++stage) {
    const SimTime down = waits && stage < sends.size() ? sends[stage] : SimTime{};
    const SimTime up = waits && stage > 0 ? sends[stage - 1] : SimTime{};
    SimTime forward;
    SimTime backward;
    for (const StageCost& slice : slices[stage]) {
      forward += slice.forward + down;
      backward += slice.backward + up;
    }
    passes.forward[stage] = {forward.ps / plan.slices};
    passes.backward[stage] = {backward.ps / plan.slices};
    for (std::size_t repeat = 0; repeat < micro_batches; ++repeat) {
      for (const StageCost& slice : slices[stage]) {
        passes.unit_forward.push_back(slice.forward + down);
        passes.unit_backward.push_back(slice.backward + up);
      }
    }
  }
}

StagePasses floor_passes(const Plan& plan, const sim::PipelineCosts& passes, std::size_t stage) {
  const std::size_t first =
      stage * static_cast<std::size_t>(plan.num_micro_batches() * plan.slices);
  StagePasses sum;
  sum.slice_forward = passes.unit_forward[first];
  sum.slice_backward = passes.unit_backward[first];
  if (stage < passes.send_forward.size()) {
    sum.send = passes.send_forward[stage];
    sum.send_back = passes.send_backward[stage];
  }
  for (std::size_t unit = first; unit < first + static_cast<std::size_t>(plan.slices); ++unit) {
    sum.forward += passes.unit_forward[unit];
    sum.backward += passes.unit_backward[unit];
    sum.slice_forward = std::min(sum.slice_forward, passes.unit_forward[unit]);
    sum.slice_backward = std::min(sum.slice_backward, passes.unit_backward[unit]);
  }
  return sum;
}

std::vector<SlicePeak> slice_peaks(const sim::PipelineOrder& order, const SliceCosts& slices) {
  const auto count = static_cast<std::uint32_t>(slices.front().size());
  std::vector<Unit> units;
  units.reserve(static_cast<std::size_t>(order.micro_batches));
  for (std::uint32_t unit = 0; unit < static_cast<std::uint32_t>(order.micro_batches); ++unit) {
    const std::uint32_t slice = unit % count;
    units.push_back({slice, unit - slice, slice + 1 == count});
  }
  return unit_peaks(order, slices, units);
}

std::vector<SlicePeak> unit_peaks(const sim::PipelineOrder& order, const SliceCosts& costs,
                                  const std::vector<Unit>& units) {
  std::vector<SlicePeak> peaks(order.passes.size());
  for (std::size_t device = 0; device < peaks.size(); ++device) {
    SlicePeak live;
    SlicePeak& peak = peaks[device];
    ByteCount host;
    ByteCount disk;
    for (const sim::Pass& pass : order.passes[device]) {
      if (pass.kind == sim::PassKind::Optimizer) {
        continue;  // it is numbered by updates, and holds no unit
      }
      const std::vector<StageCost>& of_stage = costs[pass.virtual_stage];
      const Unit& unit = units[pass.micro_batch];
      const StageCost& cost = of_stage[unit.cost];
      const bool forward = pass.kind == sim::PassKind::Forward;
      const bool releases =  // of a cut backward the second part
          pass.kind == sim::PassKind::Backward || pass.kind == sim::PassKind::WeightGrad;
      if (forward) {
        live.layers += cost.saved;
        live.ends += cost.saved_ends;
        live.host += cost.saved_host;
        live.disk += cost.saved_disk;
        host = std::max(host, live.host);
        disk = std::max(disk, live.disk);
      } else if (unit.last && pass.kind != sim::PassKind::WeightGrad) {
        for (std::uint32_t earlier = unit.first; earlier < pass.micro_batch; ++earlier) {
          live.gradients += of_stage[units[earlier].cost].context_gradients;
        }
      }
      live.copied = cost.copied_of(live.host + live.disk);
      if (live.total() > peak.total()) {
        peak = live;
      }
      if (releases) {
        live.layers -= cost.saved;
        live.ends -= cost.saved_ends;
        live.host -= cost.saved_host;
        live.disk -= cost.saved_disk;
        live.gradients -= unit.last ? ByteCount() : cost.context_gradients;
      }
    }
    peak.host = host;
    peak.disk = disk;
    ORRERY_CHECK(live.host == ByteCount() && live.disk == ByteCount() &&
                     live.layers == ByteCount() && live.ends == ByteCount() &&
                     live.gradients == ByteCount(),
                 "slices keep memory after their backwards");
  }
  return peaks;
}

}  // namespace orrery::plan
