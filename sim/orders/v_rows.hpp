// SPDX-License-Identifier: Apache-2.0
// Devices of a V pattern (sim/orders/v_pattern.hpp) slot by slot, of which single passes are moved
// to earlier slots. Passes are looked at in the order of their slots; what is looked at never moves
// behind one that has been. Slots from 0 on. Deterministic; a move costs about its distance.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::sim {

inline constexpr int kWeightGrad = 4;  // type after the four of VBlock
inline constexpr std::int8_t kFree = -1;

using Slots = std::array<std::vector<int>, 5>;  // of a device by type, in order of units

inline bool is_forward(int type) { return type == 0 || type == 1; }
inline bool is_gradient(int type) { return type == 2 || type == 3; }

inline std::size_t length_of(const Slots& slots) {
  int last = -1;
  for (const std::vector<int>& of_type : slots) {
    last = of_type.empty() ? last : std::max(last, of_type.back());
  }
  return static_cast<std::size_t>(last + 1);
}

// The types of a device's slots; those beyond its last one stay as they are.
inline void mark(const Slots& slots, std::int8_t* types) {
  for (std::size_t type = 0; type < slots.size(); ++type) {
    for (const int at : slots[type]) {
      types[at] = static_cast<std::int8_t>(type);
    }
  }
}

// A device whose weight gradients have slots. Passes are looked at in the order of their slots; so
// many activations are live as forwards before have no weight gradient yet.
class Row {
 public:
  explicit Row(const Slots& slots)
      : types_(length_of(slots), kFree), free_(types_.size() / 64 + 1) {
    mark(slots, types_.data());
    for (std::size_t at = 0; at < types_.size(); ++at) {
      free_[at / 64] |= std::uint64_t{types_[at] == kFree ? 1U : 0U} << (at % 64);
    }
  }

  std::size_t length() const { return types_.size(); }
  int type(std::size_t at) const { return at < types_.size() ? types_[at] : kFree; }
  int runs(std::size_t at) const { return type(at); }
  int peak() const {
    int live = 0;
    int peak = 0;
    for (const std::int8_t type : types_) {
      live += change(type);
      peak = std::max(peak, live);
    }
    return peak;
  }

  // Begins to look at the slots from `at` on.
  void begin(std::size_t at) {
    live_ = 0;
    most_live_ = 0;
    for (std::size_t before = 0; before < std::min(at, types_.size()); ++before) {
      live_ += change(types_[before]);
      most_live_ = std::max(most_live_, live_);
    }
  }

  // The earliest free slot for the pass where no more than `cap` activations are live, or its own.
  std::size_t move(std::size_t at, std::size_t earliest, int cap) {
    const int type = types_[at];
    std::size_t to = std::min(next_free(earliest), at);
    // Live in all slots from the new one on.
    if (is_forward(type) && to < at && most_live_ >= cap) {
      int live = live_;
      for (std::size_t slot = at; slot > to; --slot) {
        if (live >= cap) {
          to = std::min(next_free(slot), at);
          break;
        }
        live -= change(types_[slot - 1]);
      }
    }
    live_ += change(type);
    most_live_ = std::max(most_live_ + (is_forward(type) && to < at ? 1 : 0), live_);
    if (to < at) {
      std::swap(types_[at], types_[to]);
      free_[to / 64] &= ~(std::uint64_t{1} << (to % 64));
      free_[at / 64] |= std::uint64_t{1} << (at % 64);
    }
    return to;
  }

 private:
  static int change(int type) { return (is_forward(type) ? 1 : 0) - (type == kWeightGrad ? 1 : 0); }

  std::size_t next_free(std::size_t from) const {
    std::size_t word = from / 64;
    std::uint64_t bits = free_[word] & (~std::uint64_t{0} << (from % 64));
    while (bits == 0 && ++word < free_.size()) {
      bits = free_[word];
    }
    return bits == 0 ? types_.size() : word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
  }

  std::vector<std::int8_t> types_;
  std::vector<std::uint64_t> free_;  // a bit per slot
  int live_ = 0;
  int most_live_ = 0;  // so far, at most
};

// A device whose weight gradients run in the free slots that follow their gradients.
class FloatingRow {
 public:
  explicit FloatingRow(const Slots& slots)
      : types_(length_of(slots), kFree), after_(types_.size()) {
    mark(slots, types_.data());
    keep(0, types_.size());
  }

  std::size_t length() const { return types_.size(); }
  int type(std::size_t at) const { return at < types_.size() ? types_[at] : kFree; }
  // The same with the weight gradients.
  int runs(std::size_t at) const {
    const int found = type(at);
    return found == kFree && at < types_.size() && before(at).owed > 0 ? kWeightGrad : found;
  }
  int peak() const {
    int peak = 0;
    for (const State& state : after_) {
      peak = std::max(peak, state.live);
    }
    return peak;
  }

  void begin(std::size_t) {}

  // As of Row; other activations may live longer where the pass takes the slot of their weight
  // gradient.
  std::size_t move(std::size_t at, std::size_t earliest, int cap) {
    if (is_forward(types_[at])) {  // live at least in all slots from the new one on
      for (std::size_t slot = at; slot > earliest; --slot) {
        if (after_[slot - 1].live >= cap) {
          earliest = slot;
          break;
        }
      }
    }
    for (std::size_t to = earliest; to < at; ++to) {
      if (types_[to] == kFree && try_move(at, to, cap)) {
        return to;
      }
    }
    return at;
  }

 private:
  struct State {
    int live = 0;
    int owed = 0;
    bool operator==(const State&) const = default;
  };

  State before(std::size_t at) const { return at > 0 ? after_[at - 1] : State{}; }

  static State step(State state, int type) {
    if (type == kFree && state.owed > 0) {
      --state.live;
      --state.owed;
    }
    state.live += is_forward(type) ? 1 : 0;
    state.owed += is_gradient(type) ? 1 : 0;
    return state;
  }

  // Nothing moves if more than `cap` activations were then live.
  bool try_move(std::size_t from, std::size_t to, int cap) {
    std::swap(types_[from], types_[to]);
    State state = before(to);
    std::size_t at = to;
    for (; at < types_.size(); ++at) {
      state = step(state, types_[at]);
      if (state.live > cap) {
        std::swap(types_[from], types_[to]);
        return false;
      }
      if (at >= from && state == after_[at]) {
        break;
      }
    }
    keep(to, at);
    return true;
  }

  void keep(std::size_t begin, std::size_t end) {
    State state = before(begin);
    for (std::size_t at = begin; at < end; ++at) {
      state = step(state, types_[at]);
      after_[at] = state;
    }
  }

  std::vector<std::int8_t> types_;
  std::vector<State> after_;
};

}  // namespace orrery::sim
