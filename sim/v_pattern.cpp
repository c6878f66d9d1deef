// SPDX-License-Identifier: Apache-2.0
#include "sim/v_pattern.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "sim/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kPeriod = 6;
constexpr int kWeightGrad = 4;  // type after the four of VBlock
constexpr std::int8_t kFree = -1;

using Slots = std::array<std::vector<int>, 5>;  // of a device by type, in order of units

bool is_forward(int type) { return type == 0 || type == 1; }
bool is_gradient(int type) { return type == 2 || type == 3; }

struct Slot {
  std::size_t at;
  std::size_t device;
  std::size_t type;
  std::size_t unit;  // of weight gradients: which of the device's, in the order of their gradients
};

// A device slot by slot, and its live activations after each; without weight gradients free slots
// stand for them.
class Row {
 public:
  explicit Row(const Slots& slots) : floats_(slots[kWeightGrad].empty()) {
    int last = 0;
    for (const auto& of_type : slots) {
      last = of_type.empty() ? last : std::max(last, of_type.back());
    }
    types_.assign(static_cast<std::size_t>(last) + 1, kFree);
    after_.resize(types_.size());
    for (std::size_t type = 0; type < slots.size(); ++type) {
      for (const int at : slots[type]) {
        types_[static_cast<std::size_t>(at)] = static_cast<std::int8_t>(type);
      }
    }
    keep(0, types_.size());
  }

  std::size_t length() const { return types_.size(); }
  int type(std::size_t at) const { return at < types_.size() ? types_[at] : kFree; }
  int peak() const {
    int peak = 0;
    for (const State& state : after_) {
      peak = std::max(peak, state.live);
    }
    return peak;
  }

  // Moves a pass to an earlier free slot. Nothing moves if more than `cap` activations were then
  // live: the first slot where they would be.
  std::optional<std::size_t> try_move(std::size_t from, std::size_t to, int cap) {
    std::swap(types_[from], types_[to]);
    State state = before(to);
    std::size_t at = to;
    for (; at < types_.size(); ++at) {
      state = step(state, types_[at]);
      if (state.live > cap) {
        std::swap(types_[from], types_[to]);
        return at;
      }
      if (at >= from && state == after_[at]) {
        break;
      }
    }
    keep(to, at);
    return std::nullopt;
  }

 private:
  struct State {
    int live = 0;
    int owed = 0;
    bool operator==(const State&) const = default;
  };

  State before(std::size_t at) const { return at > 0 ? after_[at - 1] : State{}; }

  State step(State state, int type) const {
    if (type == kWeightGrad || (type == kFree && floats_ && state.owed > 0)) {
      --state.live;
      --state.owed;
    }
    state.live += is_forward(type) ? 1 : 0;
    state.owed += is_gradient(type) ? 1 : 0;
    return state;
  }

  void keep(std::size_t begin, std::size_t end) {
    State state = before(begin);
    for (std::size_t at = begin; at < end; ++at) {
      state = step(state, types_[at]);
      after_[at] = state;
    }
  }

  bool floats_;
  std::vector<std::int8_t> types_;
  std::vector<State> after_;
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
        slots_[i][type].reserve(m_);
        for (int j = 0; j < params.micro_batches; ++j) {
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
    static constexpr std::array<PassKind, 4> kKinds = {PassKind::Forward, PassKind::Forward,
                                                       PassKind::InputGrad, PassKind::InputGrad};
    add_weight_grads();
    PipelineOrder order = one_chain(params_, v_placement(params_.stages), 3);
    std::vector<Pass> gradients;  // of a device so far
    for (std::size_t i = 0; i < p_; ++i) {
      gradients.clear();
      const Row row(slots_[i]);
      std::array<std::uint32_t, 5> units{};
      for (std::size_t at = 0; at < row.length(); ++at) {
        if (row.type(at) == kFree) {
          continue;
        }
        const auto type = static_cast<std::size_t>(row.type(at));
        const std::uint32_t unit = units[type]++;
        if (type == kWeightGrad) {
          order.passes[i].push_back(gradients[unit]);
          order.passes[i].back().kind = PassKind::WeightGrad;
          continue;
        }
        const Pass pass{kKinds[type], static_cast<std::uint16_t>(stage(type, i)), unit};
        order.passes[i].push_back(pass);
        if (is_gradient(row.type(at))) {
          gradients.push_back(pass);
        }
      }
    }
    return order;
  }

 private:
  // The virtual stage of the four types that are not weight gradients.
  std::size_t stage(std::size_t type, std::size_t device) const {
    return type == 0 || type == 3 ? device : 2 * p_ - 1 - device;
  }

  std::vector<Row> rows() const { return {slots_.begin(), slots_.end()}; }

  // In the order of slots, then devices. `visit` may move the pass it is given to an earlier slot.
  template <typename Visit>
  static void for_each_slot(const std::vector<Row>& rows, Visit visit) {
    std::size_t length = 0;
    for (const Row& row : rows) {
      length = std::max(length, row.length());
    }
    std::vector<std::array<std::size_t, 5>> units(rows.size(), std::array<std::size_t, 5>{});
    for (std::size_t at = 0; at < length; ++at) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].type(at) != kFree) {
          const auto type = static_cast<std::size_t>(rows[i].type(at));
          visit(Slot{at, i, type, units[i][type]++});
        }
      }
    }
  }

  void add_weight_grads() {
    for (Slots& slots : slots_) {
      const Row row(slots);
      slots[kWeightGrad].reserve(2 * m_);
      int owed = 0;
      for (std::size_t at = 0; at < row.length() || owed > 0; ++at) {
        if (row.type(at) == kFree && owed > 0) {
          slots[kWeightGrad].push_back(static_cast<int>(at));
          --owed;
        }
        owed += is_gradient(row.type(at)) ? 1 : 0;
      }
    }
  }
  void drop_weight_grads() {
    for (Slots& slots : slots_) {
      slots[kWeightGrad].clear();
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

  // Between the first gradient of the last pass on device 0 and its last forward nothing moves.
  void move_earlier(bool with_weight_grads) {
    std::vector<Row> rows = this->rows();
    int cap = 0;
    for (const Row& row : rows) {
      cap = std::max(cap, row.peak());
    }
    std::vector<std::vector<int>> gradients(p_);  // slots, per device
    enum { kBefore, kSteady, kAfter } phase = kBefore;
    for_each_slot(rows, [&](const Slot& slot) {
      if (phase == kBefore && slot.type == 3 && slot.device == 0) {
        phase = kSteady;
      }
      const bool moves = phase == kAfter || (phase == kBefore && with_weight_grads);
      if (phase == kSteady && slot.type == 0 && slot.unit + 1 == m_) {
        phase = kAfter;
      }
      std::vector<int>& done = gradients[slot.device];
      int at = static_cast<int>(slot.at);
      if (moves) {
        at = earlier_slot(slot, rows[slot.device], earliest(slot, done), cap);
        slots_[slot.device][slot.type][slot.unit] = at;
      }
      if (slot.type == 2 || slot.type == 3) {
        done.insert(std::upper_bound(done.begin(), done.end(), at), at);
      }
    });
  }

  int earlier_slot(const Slot& slot, Row& row, std::size_t earliest, int cap) {
    const bool floats = slots_[slot.device][kWeightGrad].empty();
    for (std::size_t to = earliest; to < slot.at; ++to) {
      if (row.type(to) != kFree) {
        continue;
      }
      const std::optional<std::size_t> full = row.try_move(slot.at, to, cap);
      if (!full) {
        return static_cast<int>(to);
      }
      if (!floats) {
        to = *full;  // from any slot up to there the pass is live there, too
      }
    }
    return static_cast<int>(slot.at);
  }

  // Runs all in slot order as early as it can with passes of equal length: the new slots.
  void squeeze() {
    std::vector<Slots> starts(p_);
    std::vector<int> free(p_, 0);
    for_each_slot(rows(), [&](const Slot& slot) {
      const auto end_of = [&](std::size_t device, std::size_t type) {
        return starts[device][type][slot.unit] + 1;
      };
      int start = free[slot.device];
      if (slot.type != kWeightGrad) {
        const bool down = slot.type == 0 || slot.type == 2;
        if (down ? slot.device > 0 : slot.device + 1 < p_) {
          start = std::max(start, end_of(down ? slot.device - 1 : slot.device + 1, slot.type));
        }
        if (slot.type > 0) {
          start = std::max(start, end_of(slot.device, slot.type - 1));
        }
      }
      starts[slot.device][slot.type].push_back(start);
      free[slot.device] = start + 1;
    });
    slots_ = std::move(starts);
  }

  const ScheduleParams& params_;
  std::size_t p_;
  std::size_t m_;
  std::vector<Slots> slots_;
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
