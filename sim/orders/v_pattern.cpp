// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/v_pattern.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "sim/orders/order_blocks.hpp"
#include "sim/orders/v_rows.hpp"

namespace orrery::sim {
namespace {

constexpr int kPeriod = 6;

struct Slot {
  std::size_t at;
  std::size_t device;
  std::size_t type;
  std::size_t unit;  // of weight gradients: which of the device's, in the order of their gradients
};

class VPattern {
 public:
  VPattern(const ScheduleParams& params, const std::vector<VBlock>& blocks)
      : params_(params),
        p_(blocks.size()),
        m_(static_cast<std::size_t>(params.micro_batches)),
        slots_(p_) {
    for (std::size_t i = 0; i < p_; ++i) {
      for (std::size_t type = 0; type < blocks[i].size(); ++type) {
        slots_[i][type].resize(m_);
        int next = blocks[i][type];
        for (int& slot : slots_[i][type]) {
          slot = next;
          next += kPeriod;
        }
      }
    }
  }

  void reorder() {
    add_weight_grads();
    move_earlier<Row>(true);
    move_earlier<FloatingRow>(false);
  }

  // Whether, in the middle tenth of the micro-batches, every one follows the one before it by one
  // period on every device.
  bool is_steady() const {
    return std::all_of(slots_.begin(), slots_.end(), [this](const Slots& of) {
      return std::all_of(
          of.begin(), of.begin() + kWeightGrad, [this](const std::vector<int>& slots) {
            const auto begin = slots.begin() + static_cast<std::ptrdiff_t>(9 * m_ / 20);
            const auto end = slots.begin() + static_cast<std::ptrdiff_t>(11 * m_ / 20);
            return std::adjacent_find(begin, end, [](int a, int b) { return b - a != kPeriod; }) ==
                   end;
          });
    });
  }

  // Weight gradients in the free slots after their gradients.
  PipelineOrder order() {
    static constexpr std::array<PassKind, 4> kKinds = {PassKind::Forward, PassKind::Forward,
                                                       PassKind::InputGrad, PassKind::InputGrad};
    PipelineOrder order = one_chain(params_, v_placement(params_.stages), 3);
    std::vector<Pass> gradients(2 * m_);  // of a device so far
    for (std::size_t i = 0; i < p_; ++i) {
      std::vector<Pass>& list = order.passes[i];
      list.resize(6 * m_);
      Pass* next = list.data();
      std::size_t done = 0;
      std::size_t owed = 0;
      std::array<std::uint32_t, 4> units{};
      for_each_type(slots_[i], [&](std::size_t, int type) {
        if (type != kFree) {
          const auto of = static_cast<std::size_t>(type);
          *next++ = Pass{kKinds[of], static_cast<std::uint16_t>(stage(of, i)), units[of]++};
          if (is_gradient(type)) {
            gradients[done + owed++] = next[-1];
          }
        } else if (owed > 0) {
          *next = gradients[done++];
          (next++)->kind = PassKind::WeightGrad;
          --owed;
        }
        return owed > 0;
      });
    }
    return order;
  }

 private:
  // The virtual stage of the four types that are not weight gradients.
  std::size_t stage(std::size_t type, std::size_t device) const {
    return type == 0 || type == 3 ? device : 2 * p_ - 1 - device;
  }

  // Slot by slot to the last pass, and further while `visit` says so.
  template <typename Visit>
  void for_each_type(const Slots& slots, Visit visit) {
    const std::size_t length = length_of(slots);
    types_.assign(length, kFree);
    mark(slots, types_.data());
    bool more = true;
    for (std::size_t at = 0; at < length; ++at) {
      more = visit(at, types_[at]);
    }
    for (std::size_t at = length; more; ++at) {
      more = visit(at, kFree);
    }
  }

  void add_weight_grads() {
    for (Slots& slots : slots_) {
      std::vector<int> weight_grads(2 * m_);
      int* next = weight_grads.data();
      int owed = 0;
      for_each_type(slots, [&](std::size_t at, int type) {
        if (type == kFree && owed > 0) {
          *next++ = static_cast<int>(at);
          --owed;
        }
        owed += is_gradient(type) ? 1 : 0;
        return owed > 0;
      });
      slots[kWeightGrad] = std::move(weight_grads);
    }
  }

  // The slot from which on a pass may run, given the slots of everything before it; `gradients` are
  // those of its device so far.
  std::size_t earliest(const Slot& slot, const std::vector<int>& gradients) const {
    int after = slot.unit > 0 ? slots_[slot.device][slot.type][slot.unit - 1] : -1;
    if (slot.type == kWeightGrad) {
      return static_cast<std::size_t>(std::max(after, gradients[slot.unit])) + 1;
    }
    const bool down = slot.type == 0 || slot.type == 2;
    if (down ? slot.device > 0 : slot.device + 1 < p_) {
      const std::size_t from = down ? slot.device - 1 : slot.device + 1;
      after = std::max(after, slots_[from][slot.type][slot.unit]);
    }
    if (slot.type > 0) {
      after = std::max(after, slots_[slot.device][slot.type - 1][slot.unit]);
    }
    return static_cast<std::size_t>(after + 1);
  }

  // From the first gradient of the last pass on device 0 until the first device has had its last
  // forward of the first chunk nothing moves. Then all runs as early as it can.
  template <typename AnyRow>
  void move_earlier(bool from_the_start) {
    std::vector<AnyRow> rows(slots_.begin(), slots_.end());
    int cap = 0;
    std::size_t length = 0;
    for (const AnyRow& row : rows) {
      cap = std::max(cap, row.peak());
      length = std::max(length, row.length());
    }
    const auto first_gradient = static_cast<std::size_t>(slots_[0][3].front());
    if (from_the_start) {
      move_slots(rows, cap, {0, 0}, first_gradient);
    }
    std::pair<std::size_t, std::size_t> last_forward{length, 0};  // the first such one after that
    for (std::size_t i = 0; i < p_; ++i) {
      const auto at = static_cast<std::size_t>(slots_[i][0].back());
      if (at >= first_gradient) {
        last_forward = std::min(last_forward, {at, i + 1});
      }
    }
    move_slots(rows, cap, last_forward, length);
    squeeze(rows, length);
  }

  // Moves the passes from a slot and device on, in the order of slots, then devices.
  template <typename AnyRow>
  void move_slots(std::vector<AnyRow>& rows, int cap, std::pair<std::size_t, std::size_t> from,
                  std::size_t end) {
    std::vector<std::array<std::size_t, 5>> units(p_);
    std::vector<std::vector<int>> gradients(p_);  // slots, per device, where weight gradients move
    for (std::size_t i = 0; i < p_; ++i) {
      const auto begin = static_cast<int>(from.first + (i < from.second ? 1 : 0));
      for (std::size_t type = 0; type < units[i].size(); ++type) {
        const std::vector<int>& all = slots_[i][type];
        const auto left = std::lower_bound(all.begin(), all.end(), begin);
        units[i][type] = static_cast<std::size_t>(left - all.begin());
      }
      const auto first = [&](std::size_t type) {
        return std::pair(slots_[i][type].begin(),
                         slots_[i][type].begin() + static_cast<std::ptrdiff_t>(units[i][type]));
      };
      if (!slots_[i][kWeightGrad].empty()) {
        const auto [begin2, end2] = first(2);
        const auto [begin3, end3] = first(3);
        std::merge(begin2, end2, begin3, end3, std::back_inserter(gradients[i]));
      }
      rows[i].begin(static_cast<std::size_t>(begin));
    }
    for (std::size_t at = from.first; at < end; ++at) {
      for (std::size_t i = at == from.first ? from.second : 0; i < p_; ++i) {
        const int found = rows[i].type(at);
        if (found == kFree) {
          continue;
        }
        const auto type = static_cast<std::size_t>(found);
        const Slot slot{at, i, type, units[i][type]++};
        const auto to = static_cast<int>(rows[i].move(at, earliest(slot, gradients[i]), cap));
        slots_[i][type][slot.unit] = to;
        if (is_gradient(found) && !slots_[i][kWeightGrad].empty()) {
          gradients[i].insert(std::upper_bound(gradients[i].begin(), gradients[i].end(), to), to);
        }
      }
    }
  }

  // Runs all in slot order as early as it can with passes of equal length: the new slots, of weight
  // gradients none.
  template <typename AnyRow>
  void squeeze(const std::vector<AnyRow>& rows, std::size_t length) {
    std::vector<Slots> starts(p_);
    std::vector<std::array<int*, 4>> next(p_);  // in `starts`
    for (std::size_t i = 0; i < p_; ++i) {
      for (std::size_t type = 0; type < kWeightGrad; ++type) {
        starts[i][type].resize(m_);
        next[i][type] = starts[i][type].data();
      }
    }
    // Where the starts of the passes that they wait for are: on the device before or after.
    std::vector<std::array<const int*, 4>> input(p_);
    for (std::size_t i = 0; i < p_; ++i) {
      for (std::size_t type = 0; type < kWeightGrad; ++type) {
        const bool down = type % 2 == 0;
        const bool waits = down ? i > 0 : i + 1 < p_;
        input[i][type] = waits ? starts[down ? i - 1 : i + 1][type].data() : nullptr;
      }
    }
    std::vector<int> free(p_, 0);
    for (std::size_t at = 0; at < length; ++at) {
      for (std::size_t i = 0; i < p_; ++i) {
        const int found = rows[i].runs(at);
        if (found == kWeightGrad) {
          ++free[i];
        } else if (found != kFree) {
          const auto type = static_cast<std::size_t>(found);
          int start = free[i];
          if (const int*& neighbour = input[i][type]; neighbour != nullptr) {
            start = std::max(start, *neighbour++ + 1);
          }
          *next[i][type]++ = start;
          free[i] = start + 1;
        }
      }
    }
    slots_ = std::move(starts);
  }

  const ScheduleParams& params_;
  std::size_t p_;
  std::size_t m_;
  std::vector<Slots> slots_;
  std::vector<std::int8_t> types_;  // of slots, while they are looked at
};

// Lists of so many more micro-batches. What moves at either end looks at nothing further away than
// the micro-batches that a block spans, so that with twice as many and a steady middle more of them
// only make that longer.
void repeat_middle(PipelineOrder& order, int more) {
  order.micro_batches += more;
  const std::size_t added = kPeriod * static_cast<std::size_t>(more);
  for (std::vector<Pass>& list : order.passes) {
    const std::size_t middle = list.size() / 2;
    list.resize(list.size() + added);
    std::move_backward(list.begin() + static_cast<std::ptrdiff_t>(middle),
                       list.end() - static_cast<std::ptrdiff_t>(added), list.end());
    const Pass* const period = &list[middle - kPeriod];
    Pass* to = &list[middle];
    for (std::uint32_t later = 1; later <= static_cast<std::uint32_t>(more); ++later) {
      for (const Pass* of = period; of < period + kPeriod; ++of, ++to) {
        *to = Pass(of->kind, of->virtual_stage, of->micro_batch + later);
      }
    }
    for (std::size_t at = middle + added; at < list.size(); ++at) {
      list[at].micro_batch += static_cast<std::uint32_t>(more);
    }
  }
}

}  // namespace

std::string check_v_pattern(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_chunks(params, 2), check_heuristic_sizes(params),
                       check_warm_up(params, 1, "0: reordered, 1: the plain pattern")});
}

PipelineOrder v_pattern(const ScheduleParams& params, const std::vector<VBlock>& blocks,
                        bool reorder) {
  const auto pattern_of = [&](const ScheduleParams& of) {
    VPattern pattern(of, blocks);
    if (reorder) {
      pattern.reorder();
    }
    return pattern;
  };
  int last_slot = 0;
  for (const VBlock& block : blocks) {
    last_slot = std::max(last_slot, block.back());
  }
  ScheduleParams fewer = params;
  fewer.micro_batches = 9 * (last_slot / kPeriod + 1) / 4 + 9;
  if (fewer.micro_batches < params.micro_batches && !params.decides_all) {
    VPattern pattern = pattern_of(fewer);
    if (pattern.is_steady()) {
      PipelineOrder order = pattern.order();
      repeat_middle(order, params.micro_batches - fewer.micro_batches);
      return order;
    }
  }
  return pattern_of(params).order();
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
