// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/v_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/orders/order_blocks.hpp"
#include "sim/orders/v_rows.hpp"

namespace orrery::sim {
namespace {

class VPattern {
 public:
  VPattern(const ScheduleParams& params, const std::vector<VBlock>& blocks)
      : p_(blocks.size()),
        m_(static_cast<std::size_t>(params.micro_batches)),
        slots_(p_, m_),
        starts_(p_, m_) {
    for (std::size_t i = 0; i < p_; ++i) {
      for (std::size_t type = 0; type < blocks[i].size(); ++type) {
        int* const slots = slots_.of(i, type);
        for (std::size_t unit = 0; unit < m_; ++unit) {
          slots[unit] = blocks[i][type] + kPeriod * static_cast<int>(unit);
        }
      }
    }
  }

  void reorder() {
    move_earlier<Row>(true);
    move_earlier<FloatingRow>(false);
  }

  // Whether, in the middle tenth of the micro-batches, every one follows the one before it by one
  // period on every device.
  bool is_steady() const {
    for (std::size_t i = 0; i < p_; ++i) {
      for (std::size_t type = 0; type < kWeightGrad; ++type) {
        const int* const slots = slots_.of(i, type);
        const auto is_other = [](int a, int b) { return b - a != kPeriod; };
        const int* const end = slots + 11 * m_ / 20;
        if (std::adjacent_find(slots + 9 * m_ / 20, end, is_other) != end) {
          return false;
        }
      }
    }
    return true;
  }

  // Weight gradients in the free slots after their gradients. With room for all micro-batches.
  PipelineOrder order(const ScheduleParams& all) const {
    static constexpr std::array<PassKind, 4> kKinds = {PassKind::Forward, PassKind::Forward,
                                                       PassKind::InputGrad, PassKind::InputGrad};
    PipelineOrder order = one_chain(all, v_placement(all.stages), 3);
    std::vector<Pass> list(6 * m_);           // of a device
    std::vector<Pass> gradients(2 * m_ + 1);  // of a device so far, and what comes next
    for (std::size_t i = 0; i < p_; ++i) {
      Pass* next = list.data();
      std::size_t done = 0;
      std::size_t owed = 0;
      std::array<Pass, 4> passes;
      for (std::size_t type = 0; type < passes.size(); ++type) {
        passes[type] = Pass(kKinds[type], static_cast<std::uint16_t>(stage(type, i)), 0);
      }
      const auto run_weight_grad = [&] {
        *next = gradients[done++];
        (next++)->kind = PassKind::WeightGrad;
        --owed;
      };
      for (const std::int8_t type : slots_.types(i)) {
        if (type != kFree) {
          Pass& pass = passes[static_cast<std::size_t>(type)];
          gradients[done + owed] = *next++ = pass;
          owed += is_gradient(type) ? 1 : 0;
          ++pass.micro_batch;
        } else if (owed > 0) {
          run_weight_grad();
        }
      }
      while (owed > 0) {
        run_weight_grad();
      }
      order.passes[i].assign(list.begin(), list.end());
    }
    return order;
  }

 private:
  struct Track {  // of a device and type
    int* slots = nullptr;
    const int* beside = nullptr;  // slots of what its passes wait for: on the device beside
    const int* own = nullptr;     // and on their own
    std::ptrdiff_t unit = 0;      // the next
    // The slot from which on it may run.
    std::size_t earliest() const {
      return static_cast<std::size_t>(std::max(std::max(slots[unit - 1], beside[unit]), own[unit]) +
                                      1);
    }
  };
  struct Moving {  // a device whose passes move
    const std::int8_t* runs = nullptr;
    std::array<Track, kTypes> tracks{};
    std::vector<int> gradients;  // slots of its gradients so far, where weight gradients move
    std::size_t num_gradients = 0;
    void add_gradient(int slot) {
      int* place = &gradients[num_gradients++];
      for (; place > gradients.data() && place[-1] > slot; --place) {
        *place = place[-1];
      }
      *place = slot;
    }
  };

  // The virtual stage of the four types that are not weight gradients.
  std::size_t stage(std::size_t type, std::size_t device) const {
    return type == 0 || type == 3 ? device : 2 * p_ - 1 - device;
  }

  // From the first gradient of the last pass on device 0 until the first device has had its last
  // forward of the first chunk nothing moves. Then all runs as early as it can.
  template <typename AnyRow>
  void move_earlier(bool from_the_start) {
    std::vector<AnyRow> rows;
    rows.reserve(p_);
    int cap = 0;
    std::size_t length = 0;
    for (std::size_t i = 0; i < p_; ++i) {
      const AnyRow& row = rows.emplace_back(slots_, i);
      cap = std::max(cap, row.peak());
      length = std::max(length, row.length());
    }
    for (AnyRow& row : rows) {
      row.extend(length);
    }
    const auto first_gradient = static_cast<std::size_t>(slots_.of(0, 3)[0]);
    if (from_the_start) {
      move_slots(rows, cap, {0, 0}, first_gradient);
    }
    std::pair<std::size_t, std::size_t> last_forward{length, 0};  // the first such one after that
    for (std::size_t i = 0; i < p_; ++i) {
      const auto at = static_cast<std::size_t>(slots_.of(i, 0)[m_ - 1]);
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
    if (from.first >= end) {
      return;
    }
    std::vector<Moving> moving(p_);
    for (std::size_t i = 0; i < p_; ++i) {
      const std::size_t begin = from.first + (i < from.second ? 1 : 0);
      moving[i] = begin_moving(i, begin, AnyRow::kMovesWeightGrads);
      moving[i].runs = rows[i].runs().data();
      rows[i].begin(begin);
    }
    for (std::size_t at = from.first; at < end; ++at) {
      for (std::size_t i = at == from.first ? from.second : 0; i < p_; ++i) {
        Moving& device = moving[i];
        const int found = device.runs[at];
        if (found == kFree || (!AnyRow::kMovesWeightGrads && found == kWeightGrad)) {
          continue;
        }
        Track& track = device.tracks[static_cast<std::size_t>(found)];
        const auto to = static_cast<int>(rows[i].move(at, track.earliest(), cap));
        track.slots[track.unit++] = to;
        if (AnyRow::kMovesWeightGrads && is_gradient(found)) {
          device.add_gradient(to);
        }
      }
    }
  }

  // From a slot on.
  Moving begin_moving(std::size_t device, std::size_t slot, bool with_weight_grads) {
    Moving moving;
    for (std::size_t type = 0; type < (with_weight_grads ? kTypes : kWeightGrad); ++type) {
      int* const all = slots_.of(device, type);
      const int* const left =
          std::lower_bound(all, all + slots_.units(type), static_cast<int>(slot));
      const int* const own = type > 0 ? slots_.of(device, type - 1) : slots_.none();
      moving.tracks[type] = {all, slots_.beside(device, type), own, left - all};
    }
    if (with_weight_grads) {
      moving.gradients.resize(2 * m_);
      const Track& a = moving.tracks[2];
      const Track& b = moving.tracks[3];
      std::merge(a.slots, a.slots + a.unit, b.slots, b.slots + b.unit, moving.gradients.begin());
      moving.num_gradients = static_cast<std::size_t>(a.unit + b.unit);
      moving.tracks[kWeightGrad].own = moving.gradients.data();
    }
    return moving;
  }

  // Runs all in slot order as early as it can with passes of equal length: the new slots.
  template <typename AnyRow>
  void squeeze(const std::vector<AnyRow>& rows, std::size_t length) {
    struct Next {  // of a device and type
      int* start = nullptr;
      const int* input = nullptr;  // the start that it waits for, on the device beside
    };
    struct Device {
      const std::int8_t* runs = nullptr;
      int free = 0;
      std::array<Next, kWeightGrad> next;
    };
    std::vector<Device> devices(p_);
    for (std::size_t i = 0; i < p_; ++i) {
      devices[i].runs = rows[i].runs().data();
      for (std::size_t type = 0; type < kWeightGrad; ++type) {
        devices[i].next[type] = {starts_.of(i, type), starts_.beside(i, type)};
      }
    }
    for (std::size_t at = 0; at < length; ++at) {
      for (Device& device : devices) {
        const int found = device.runs[at];
        if (found == kWeightGrad) {
          ++device.free;
        } else if (found != kFree) {
          Next& next = device.next[static_cast<std::size_t>(found)];
          const int start = std::max(device.free, *next.input++ + 1);
          *next.start++ = start;
          device.free = start + 1;
        }
      }
    }
    std::swap(slots_, starts_);
  }

  std::size_t p_;
  std::size_t m_;
  VSlots slots_;
  VSlots starts_;  // to be
};

// Lists of so many more micro-batches. What moves at either end looks at nothing further away than
// the micro-batches that a block spans, so that with twice as many and a steady middle more of them
// only make that longer.
void repeat_middle(PipelineOrder& order, int more) {
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

Refusal check_v_pattern(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_chunks(params, 2), check_heuristic_sizes(params),
                       check_pattern_slots(params, 1),
                       check_warm_up(params, 1, "0: reordered, 1: the plain pattern")});
}

Refusal check_pattern_slots(const ScheduleParams& params, int patterns) {
  if (!check_sizes(params).empty()) {
    return {};  // named elsewhere
  }
  // A sixth of the slots of v-zb, which spans the most: 0.2 to 0.3 us each.
  const std::int64_t most = 60'000'000 / patterns;
  const std::int64_t slots =
      params.stages * (params.micro_batches + std::int64_t{2} * params.stages);
  if (slots <= most) {
    return {};
  }
  const double m = params.micro_batches;  // stages x (m + 2 stages) = most
  const double stages = std::floor((std::sqrt(m * m + 8.0 * static_cast<double>(most)) - m) / 4);
  return too_many(
      fmt::format("with so many stages this takes too long: stages x (micro-batches + 2 "
                  "stages) must be at most {}, not {}",
                  most, slots),
      Size::Stages, std::max(stages, 1.0));
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
      PipelineOrder order = pattern.order(params);
      repeat_middle(order, params.micro_batches - fewer.micro_batches);
      return order;
    }
  }
  return pattern_of(params).order(params);
}

std::vector<VBlock> v_min_blocks(int stages) {
  const int p = stages;
  const int late = p % 3 == 0 ? 2 : 0;  // keeps the slots of a device apart
  std::vector<VBlock> blocks;
  for (int i = 0; i < p; ++i) {
    blocks.push_back({i, 2 * p - i - 1, 2 * p + late + i, 4 * p + late - i - 1});
  }
  return blocks;
}

std::vector<VBlock> v_zb_blocks(int stages) {
  const int p = stages;
  std::vector<VBlock> blocks;
  for (int i = 0; i < p; ++i) {
    blocks.push_back({4 * i, 6 * p - 5 - 2 * i, 6 * p - 4 + 4 * i, 12 * p - 9 - 2 * i});
  }
  return blocks;
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
