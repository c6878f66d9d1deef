// SPDX-License-Identifier: Apache-2.0
#include "sim/v_pattern.hpp"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "sim/list_builder.hpp"
#include "sim/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kPeriod = 6;
constexpr int kWeightGrad = 4;  // type after the four of VBlock
constexpr int kFree = -1;

struct Slot {
  int at;
  int device;
  int type;
  int unit;  // of weight gradients: which of the device's, in the order of their gradients
  auto operator<=>(const Slot&) const = default;
};

class VPattern {
 public:
  VPattern(const ScheduleParams& params, const std::vector<VBlock>& blocks)
      : params_(params), p_(params.stages), m_(params.micro_batches), slots_(blocks.size()) {
    unit_.stages = params.stages;
    unit_.micro_batches = params.micro_batches;
    unit_.chunks = 2;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (std::size_t type = 0; type < blocks[i].size(); ++type) {
        for (int j = 0; j < m_; ++j) {
          slots_[i][type].push_back(blocks[i][type] + kPeriod * j);
        }
      }
    }
  }

  void reorder() {
    add_weight_grads();
    move_earlier(true);
    squeeze();
    drop_weight_grads();
    move_earlier(false);
    add_weight_grads();
    squeeze();
    drop_weight_grads();
  }

  PipelineOrder order() {
    add_weight_grads();
    return run_lists().take();
  }

 private:
  using Device = std::array<std::vector<int>, 5>;  // slots by type, in order of units

  static int last_slot(const Device& device) {
    int last = 0;
    for (const auto& slots : device) {
      last = slots.empty() ? last : std::max(last, slots.back());
    }
    return last;
  }

  // What each slot of a device holds.
  static std::vector<int> types_of(const Device& device) {
    std::vector<int> types(static_cast<std::size_t>(last_slot(device)) + 1, kFree);
    for (std::size_t type = 0; type < device.size(); ++type) {
      for (const int at : device[type]) {
        types[static_cast<std::size_t>(at)] = static_cast<int>(type);
      }
    }
    return types;
  }

  void add_weight_grads() {
    for (Device& device : slots_) {
      const std::vector<int> types = types_of(device);
      int owed = 0;
      int at = 0;
      for (; at < static_cast<int>(types.size()) || owed > 0; ++at) {
        const int type =
            at < static_cast<int>(types.size()) ? types[static_cast<std::size_t>(at)] : kFree;
        if (type == kFree && owed > 0) {
          device[kWeightGrad].push_back(at);
          --owed;
        }
        owed += type == 2 || type == 3 ? 1 : 0;
      }
    }
  }
  void drop_weight_grads() {
    for (Device& device : slots_) {
      device[kWeightGrad].clear();
    }
  }

  // Largest number of live activations; without weight gradients free slots stand for them.
  static int peak(const Device& device) {
    int live = 0;
    int owed = 0;
    int highest = 0;
    const bool floats = device[kWeightGrad].empty();
    for (const int type : types_of(device)) {
      if (type == kWeightGrad || (type == kFree && floats && owed > 0)) {
        --live;
        --owed;
      }
      live += type == 0 || type == 1 ? 1 : 0;
      owed += type == 2 || type == 3 ? 1 : 0;
      highest = std::max(highest, live);
    }
    return highest;
  }

  std::vector<Slot> in_slot_order() const {
    std::vector<Slot> all;
    for (int i = 0; i < p_; ++i) {
      for (int type = 0; type < 5; ++type) {
        const auto& of_type = slots_[static_cast<std::size_t>(i)][static_cast<std::size_t>(type)];
        for (int unit = 0; unit < static_cast<int>(of_type.size()); ++unit) {
          all.push_back({of_type[static_cast<std::size_t>(unit)], i, type, unit});
        }
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  // The slot from which on a pass may run, given the slots of everything before it.
  int earliest(const Slot& slot) const {
    const auto at = [&](int device, int type, int unit) {
      return slots_[static_cast<std::size_t>(device)][static_cast<std::size_t>(type)]
                   [static_cast<std::size_t>(unit)] +
             1;
    };
    int first = slot.unit > 0 ? at(slot.device, slot.type, slot.unit - 1) : 0;
    if (slot.type == kWeightGrad) {
      const Device& device = slots_[static_cast<std::size_t>(slot.device)];
      std::vector<int> gradients = device[2];
      gradients.insert(gradients.end(), device[3].begin(), device[3].end());
      std::nth_element(gradients.begin(), gradients.begin() + slot.unit, gradients.end());
      return std::max(first, gradients[static_cast<std::size_t>(slot.unit)] + 1);
    }
    const bool down = slot.type == 0 || slot.type == 2;
    const int from = slot.device + (down ? -1 : 1);
    if (from >= 0 && from < p_) {
      first = std::max(first, at(from, slot.type, slot.unit));
    }
    return slot.type > 0 ? std::max(first, at(slot.device, slot.type - 1, slot.unit)) : first;
  }

  // Between the first gradient of the last pass on device 0 and its last forward nothing moves.
  void move_earlier(bool with_weight_grads) {
    int cap = 0;
    std::vector<std::vector<bool>> taken;
    for (const Device& device : slots_) {
      cap = std::max(cap, peak(device));
      taken.emplace_back(static_cast<std::size_t>(last_slot(device)) + 1, false);
    }
    enum { kBefore, kSteady, kAfter } phase = kBefore;
    for (const Slot& slot : in_slot_order()) {
      if (phase == kBefore && slot.type == 3 && slot.device == 0) {
        phase = kSteady;
      }
      const bool moves = phase == kAfter || (phase == kBefore && with_weight_grads);
      if (phase == kSteady && slot.type == 0 && slot.unit + 1 == m_) {
        phase = kAfter;
      }
      std::vector<bool>& taken_here = taken[static_cast<std::size_t>(slot.device)];
      const int at = moves ? earlier_slot(slot, taken_here, cap) : slot.at;
      taken_here[static_cast<std::size_t>(at)] = true;
    }
  }

  int earlier_slot(const Slot& slot, const std::vector<bool>& taken, int cap) {
    Device& device = slots_[static_cast<std::size_t>(slot.device)];
    int& at = device[static_cast<std::size_t>(slot.type)][static_cast<std::size_t>(slot.unit)];
    for (int candidate = earliest(slot); candidate < slot.at; ++candidate) {
      if (!taken[static_cast<std::size_t>(candidate)]) {
        at = candidate;
        if (peak(device) <= cap) {
          return candidate;
        }
      }
    }
    at = slot.at;
    return slot.at;
  }

  Pass pass_of(const Slot& slot, std::deque<int>& owed, std::vector<int>& next) const {
    static constexpr std::array<PassKind, 5> kKinds = {PassKind::Forward, PassKind::Forward,
                                                       PassKind::InputGrad, PassKind::InputGrad,
                                                       PassKind::WeightGrad};
    int stage = slot.type == 0 || slot.type == 3 ? slot.device : 2 * p_ - 1 - slot.device;
    int unit = slot.unit;
    if (slot.type == kWeightGrad) {
      stage = owed.front();
      owed.pop_front();
      unit = next[static_cast<std::size_t>(stage)]++;
    } else if (slot.type > 1) {
      owed.push_back(stage);
    }
    return {kKinds[static_cast<std::size_t>(slot.type)], static_cast<std::uint16_t>(stage),
            static_cast<std::uint32_t>(unit)};
  }

  // The lists in slot order, run with passes of equal length; `starts` gets the new slots.
  ListBuilder run_lists(std::vector<Device>* starts = nullptr) const {
    ListBuilder lists(one_chain(unit_, v_placement(p_), 3), unit_, true);
    std::vector<std::deque<int>> owed(slots_.size());
    std::vector<int> next(2 * slots_.size(), 0);
    for (const Slot& slot : in_slot_order()) {
      lists.put(pass_of(slot, owed[static_cast<std::size_t>(slot.device)], next));
      if (starts != nullptr) {
        (*starts)[static_cast<std::size_t>(slot.device)][static_cast<std::size_t>(slot.type)]
            .push_back(static_cast<int>(lists.free(slot.device)) - 1);
      }
    }
    return lists;
  }

  void squeeze() {
    std::vector<Device> starts(slots_.size());
    run_lists(&starts);
    slots_ = std::move(starts);
  }

  const ScheduleParams& params_;
  ScheduleParams unit_;
  int p_;
  int m_;
  std::vector<Device> slots_;
};

}  // namespace

std::string check_v_pattern(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_chunks(params, 2), check_heuristic_sizes(params),
                       params.warm_up == 0 || params.warm_up == 1
                           ? ""
                           : "warm-up must be 0 (reordered) or 1 (the plain pattern)"});
}

PipelineOrder v_pattern(const ScheduleParams& params, const std::vector<VBlock>& blocks,
                        bool reorder) {
  VPattern pattern(params, blocks);
  if (reorder) {
    pattern.reorder();
  }
  return pattern.order();
}

std::vector<VBlock> v_half_blocks(int stages, int extra) {
  const int p = stages;
  const int late = (p % 2 == 0 ? 3 : 0) + kPeriod * extra;
  std::vector<VBlock> blocks;
  for (int i = 0; i < p; ++i) {
    blocks.push_back({2 * i, 3 * p - i - 2, 3 * p + late + 2 * i - 1, 6 * p + late - i - 2});
  }
  return blocks;
}

}  // namespace orrery::sim
