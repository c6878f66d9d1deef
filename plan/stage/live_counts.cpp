// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/live_counts.hpp"

#include <algorithm>

namespace orrery::plan {

namespace {

bool dominates(const std::vector<int>& a, const std::vector<int>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
}

// Counts that no others dominate.
class Maxima {
 public:
  explicit Maxima(std::vector<std::vector<int>>& maxima) : maxima_(maxima) {}

  void add(const std::vector<int>& counts) {
    // A steady pipeline meets the same counts in the same order again.
    for (std::size_t tried = 0; tried < maxima_.size(); ++tried) {
      latest_ = latest_ + 1 < maxima_.size() ? latest_ + 1 : 0;
      if (dominates(maxima_[latest_], counts)) {
        return;
      }
    }
    std::erase_if(maxima_, [&](const std::vector<int>& known) { return dominates(counts, known); });
    maxima_.push_back(counts);
    latest_ = maxima_.size() - 1;
  }

 private:
  std::vector<std::vector<int>>& maxima_;
  std::size_t latest_ = 0;  // that dominated, or came last
};

std::vector<bool> recomputed_slots(const std::vector<sim::Pass>& list,
                                   const std::vector<int>& slots, std::size_t chunks) {
  std::vector<bool> recomputed(chunks, false);
  for (const sim::Pass& pass : list) {
    if (pass.kind == sim::PassKind::Recompute) {
      recomputed[static_cast<std::size_t>(slots[pass.virtual_stage])] = true;
    }
  }
  return recomputed;
}

void count_device(const std::vector<sim::Pass>& list, const std::vector<int>& slots,
                  LiveCounts& live) {
  using sim::PassKind;
  live.splits = std::any_of(list.begin(), list.end(),
                            [](const sim::Pass& pass) { return pass.kind == PassKind::InputGrad; });
  const std::size_t chunks = live.stages.size();
  const std::vector<bool> recomputed = recomputed_slots(list, slots, chunks);
  live.recomputes = std::find(recomputed.begin(), recomputed.end(), true) != recomputed.end();
  const std::size_t inputs = live.splits ? 2 * chunks : chunks;  // where their counts begin
  std::vector<int> counts(live.recomputes ? inputs + chunks : inputs, 0);
  Maxima maxima(live.maxima);
  bool rising = false;
  const auto slot_of = [&](const sim::Pass& pass) {
    return static_cast<std::size_t>(slots[pass.virtual_stage]);
  };
  // Only a local maximum can be a maximum.
  const auto take_from = [&](std::size_t count) {
    if (rising) {
      maxima.add(counts);
    }
    --counts[count];
  };
  const auto free = [&](const sim::Pass& pass) {
    const bool leaves = pass.kind == PassKind::InputGrad;
    if (pass.kind != PassKind::Backward && pass.kind != PassKind::WeightGrad && !leaves) {
      return;
    }
    take_from(pass.kind == PassKind::WeightGrad ? chunks + slot_of(pass) : slot_of(pass));
    rising = leaves;  // what an input gradient leaves may be more than what it frees
    if (leaves) {
      ++counts[chunks + slot_of(pass)];
    }
  };
  for (std::size_t begin = 0; begin < list.size();) {
    std::size_t end = begin + 1;  // of the passes that run as one block
    while (end < list.size() && list[end - 1].joined) {
      ++end;
    }
    for (std::size_t at = begin; at < end; ++at) {
      const std::size_t slot = slot_of(list[at]);
      if (list[at].kind == PassKind::Forward) {
        ++counts[recomputed[slot] ? inputs + slot : slot];
        rising = true;
      } else if (list[at].kind == PassKind::Recompute) {
        take_from(inputs + slot);
        ++counts[slot];
        rising = true;
      }
    }
    for (; begin < end; ++begin) {
      free(list[begin]);
    }
  }
  if (rising || live.maxima.empty()) {
    maxima.add(counts);
  }
}

// Passes that wait for a copy, or copies that wait for a pass, `shift` units before.
int buffers_between(const sim::PipelineOrder& order, sim::Lane from_lane, std::uint16_t from,
                    std::uint16_t to) {
  for (const sim::Edge& edge : order.edges) {
    if (edge.shift > 0 && edge.from_lane == from_lane && edge.from == from && edge.to == to) {
      return edge.shift;
    }
  }
  return 0;
}

// A stage's activation is given up after a copy on another device, and taken again before one.
void leave_for_host(const sim::PipelineOrder& order, std::vector<LiveCounts>& devices) {
  for (const sim::Hold& hold : order.holds) {
    LiveCounts& live = devices[hold.device];
    if (order.device_of[hold.to] != hold.device) {
      live.leaving = buffers_between(order, sim::Lane::Forward, hold.to, hold.of);
    } else if (order.device_of[hold.from] != hold.device) {
      live.coming = buffers_between(order, sim::Lane::Gradient, hold.of, hold.from);
    }
  }
  for (LiveCounts& live : devices) {
    if (live.leaving > 0) {
      int& count = live.maxima.front().front();
      live.on_host = {count};
      count = std::min(count, live.leaving + live.coming);
    }
  }
}

}  // namespace

std::vector<LiveCounts> live_counts(const sim::PipelineOrder& order) {
  std::vector<LiveCounts> devices(order.passes.size());
  std::vector<int> slot(static_cast<std::size_t>(order.num_virtual_stages), 0);
  for (std::size_t stage = 0; stage < slot.size(); ++stage) {
    std::vector<int>& stages = devices[order.device_of[stage]].stages;
    slot[stage] = static_cast<int>(stages.size());
    stages.push_back(static_cast<int>(stage));
  }
  for (std::size_t device = 0; device < devices.size(); ++device) {
    count_device(order.passes[device], slot, devices[device]);
  }
  for (const sim::Chain& chain : order.chains) {
    if (chain.role == sim::Role::Frozen) {
      devices[order.device_of[static_cast<std::size_t>(chain.first)]].portions = chain.units;
    }
  }
  leave_for_host(order, devices);
  return devices;
}

}  // namespace orrery::plan
