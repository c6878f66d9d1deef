// SPDX-License-Identifier: Apache-2.0
// Devices of a V pattern (sim/orders/v_pattern.hpp) slot by slot, of which single passes are moved
// to earlier slots. Passes are looked at in the order of their slots; what is looked at never moves
// behind one that has been. Slots from 0 on. Deterministic; a move costs a small part of its
// distance.
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
inline constexpr std::size_t kTypes = 5;
inline constexpr std::int8_t kFree = -1;

inline bool is_forward(int type) { return type >> 1 == 0; }
inline bool is_gradient(int type) { return type >> 1 == 1; }

// Live activations that a pass adds.
inline int change(int type) {
  static constexpr std::array<int, kTypes + 1> kChanges = {0, 1, 1, 0, 0, -1};
  return kChanges[static_cast<std::size_t>(type + 1)];
}

// Puts weight gradients in the free slots after their gradients; visit(slot, type, and after it
// live activations and owed weight gradients). How many are left.
template <typename Visit>
int put_weight_grads(std::vector<std::int8_t>& types, Visit visit) {
  static_assert(kFree + 5 == kWeightGrad);  // branches would be mispredicted
  int live = 0;
  int owed = 0;
  std::int8_t* const slots = types.data();
  const std::size_t length = types.size();
  for (std::size_t at = 0; at < length; ++at) {
    const int type = slots[at];
    const int runs = static_cast<int>(type == kFree) & static_cast<int>(owed > 0);
    slots[at] = static_cast<std::int8_t>(type + 5 * runs);
    live += static_cast<int>(is_forward(type)) - runs;
    owed += static_cast<int>(is_gradient(type)) - runs;
    visit(at, type + 5 * runs, live, owed);
  }
  return owed;
}

// A set of slots, of which all after the last are members.
class SlotSet {
 public:
  SlotSet() = default;
  // Those that are free.
  explicit SlotSet(const std::vector<std::int8_t>& types) : words_(types.size() / 64 + 1) {
    for (std::size_t word = 0; word < words_.size(); ++word) {
      std::uint64_t bits = 0;
      const std::size_t first = 64 * word;
      const std::size_t count = std::min<std::size_t>(64, types.size() - first);
      for (std::size_t at = 0; at < count; ++at) {
        bits |= std::uint64_t{types[first + at] == kFree} << at;
      }
      words_[word] = bits;
    }
    words_.back() |= ~std::uint64_t{0} << (types.size() % 64);
  }
  // Adds one that is no member, or removes one.
  void flip(std::size_t at) { words_[at / 64] ^= std::uint64_t{1} << (at % 64); }
  // The first member from a slot on.
  std::size_t next(std::size_t from) const {
    std::size_t word = from / 64;
    std::uint64_t bits = words_[word] & (~std::uint64_t{0} << (from % 64));
    while (bits == 0) {
      bits = words_[++word];
    }
    return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
  }

 private:
  std::vector<std::uint64_t> words_;
};

// The slots of all passes, by device, type and unit; -1: none, as before the first unit. A device
// has twice as many weight gradients, whose units are in the order of its gradients.
class VSlots {
 public:
  VSlots(std::size_t devices, std::size_t units)
      : devices_(devices),
        units_(units),
        stride_((units + 16) / 16 * 16 | 16),
        at_((6 * devices + 3) * stride_, -1) {}

  std::size_t units(std::size_t type) const { return type == kWeightGrad ? 2 * units_ : units_; }
  int* of(std::size_t device, std::size_t type) { return &at_[(6 * device + type + 1) * stride_]; }
  const int* of(std::size_t device, std::size_t type) const {
    return &at_[(6 * device + type + 1) * stride_];
  }
  // Of the passes on the device beside that a device's passes wait for.
  const int* beside(std::size_t device, std::size_t type) const {
    const bool down = type % 2 == 0;
    const bool waits = type != kWeightGrad && (down ? device > 0 : device + 1 < devices_);
    return waits ? of(down ? device - 1 : device + 1, type) : none();
  }
  const int* none() const { return of(devices_, 0); }

  // The types of a device's slots up to its last pass, without weight gradients.
  std::vector<std::int8_t> types(std::size_t device) const {
    int last = 0;
    for (std::size_t type = 0; type < kWeightGrad; ++type) {
      last = std::max(last, of(device, type)[units_ - 1]);
    }
    std::vector<std::int8_t> types(static_cast<std::size_t>(last + 1), kFree);
    for (std::size_t type = 0; type < kWeightGrad; ++type) {
      const int* const slots = of(device, type);
      for (std::size_t unit = 0; unit < units_; ++unit) {
        types[static_cast<std::size_t>(slots[unit])] = static_cast<std::int8_t>(type);
      }
    }
    return types;
  }

 private:
  std::size_t devices_;
  std::size_t units_;
  std::size_t stride_;  // of types, an odd number of cache lines: see ListBuilder
  std::vector<int> at_;
};

// A device whose weight gradients have slots. Passes are looked at in the order of their slots; so
// many activations are live as forwards before have no weight gradient yet.
class Row {
 public:
  static constexpr bool kMovesWeightGrads = true;

  // Gives weight gradients the free slots after their gradients.
  Row(VSlots& slots, std::size_t device) : types_(slots.types(device)) {
    int* weight_grad = slots.of(device, kWeightGrad);
    int peak = 0;
    int left = put_weight_grads(types_, [&](std::size_t at, int type, int live, int) {
      peak = std::max(peak, live);
      *weight_grad = static_cast<int>(at);
      weight_grad += type == kWeightGrad ? 1 : 0;
    });
    for (; left > 0; --left) {
      *weight_grad++ = static_cast<int>(types_.size());
      types_.push_back(kWeightGrad);
    }
    peak_ = peak;
    free_ = SlotSet(types_);
    first_free_ = free_.next(0);
  }

  std::size_t length() const { return types_.size(); }
  // Looks may go on to a length.
  void extend(std::size_t length) {
    types_.resize(length, kFree);
    blocks_.resize(length / kBlock + 1);
  }
  int type(std::size_t at) const { return types_[at]; }
  const std::vector<std::int8_t>& runs() const { return types_; }
  int peak() const { return peak_; }

  // Looks at the slots from `at` on, after those that it has looked at; none between them moves.
  void begin(std::size_t at) {
    for (; looked_at_ < at; ++looked_at_) {
      count(looked_at_, types_[looked_at_]);
      most_live_ = std::max(most_live_, live_);
    }
  }

  // The earliest free slot for the pass where no more than `cap` activations are live, or its own.
  std::size_t move(std::size_t at, std::size_t earliest, int cap) {
    looked_at_ = at + 1;
    const int type = types_[at];
    std::size_t to = std::min(free_.next(std::max(earliest, first_free_)), at);
    if (is_forward(type) && to < at && most_live_ >= cap) {  // live in all slots from the new one
      const std::size_t after = last_full(at, to, cap);
      to = after > to ? std::min(free_.next(after), at) : to;
    }
    count(to, type);
    most_live_ = std::max(most_live_ + (is_forward(type) && to < at ? 1 : 0), live_);
    if (to < at) {
      std::swap(types_[at], types_[to]);
      free_.flip(to);
      free_.flip(at);
      first_free_ = to == first_free_ ? free_.next(to) : first_free_;
    }
    return to;
  }

 private:
  static constexpr std::size_t kBlock = 16;
  struct Block {  // so many slots, of which those count that were looked at
    int added = 0;
    int weight_grads = 0;
  };

  void count(std::size_t at, int type) {
    const int more = change(type);
    Block& block = blocks_[at / kBlock];
    live_ += more;
    block.added += more;
    block.weight_grads += type == kWeightGrad ? 1 : 0;
  }

  // The last slot up to `at` and after `to` before which `cap` activations are live, else `to`.
  std::size_t last_full(std::size_t at, std::size_t to, int cap) const {
    int live = live_;
    while (at > to) {
      const std::size_t first = (at - 1) / kBlock * kBlock;
      const Block& block = blocks_[first / kBlock];
      if (live + block.weight_grads < cap) {
        live -= block.added;
        at = first;
        continue;
      }
      for (; at > std::max(first, to); --at) {
        if (live >= cap) {
          return at;
        }
        live -= change(types_[at - 1]);
      }
    }
    return to;
  }

  std::vector<std::int8_t> types_;
  SlotSet free_;
  std::size_t first_free_ = 0;
  std::vector<Block> blocks_;
  std::size_t looked_at_ = 0;
  int peak_ = 0;
  int live_ = 0;
  int most_live_ = 0;  // so far, at most
};

// A device whose weight gradients run in the free slots that follow their gradients.
class FloatingRow {
 public:
  static constexpr bool kMovesWeightGrads = false;

  FloatingRow(const VSlots& slots, std::size_t device)
      : runs_(slots.types(device)), live_(runs_.size()), owed_(runs_.size()) {
    int* const live_after = live_.data();
    int* const owed_after = owed_.data();
    int peak = 0;
    put_weight_grads(runs_, [&](std::size_t at, int, int live, int owed) {
      live_after[at] = live;
      owed_after[at] = owed;
      peak = std::max(peak, live);
    });
    idle_ = SlotSet(runs_);
    peak_ = peak;
  }

  std::size_t length() const { return live_.size(); }
  void extend(std::size_t length) { runs_.resize(length, kFree); }
  // Without weight gradients.
  int type(std::size_t at) const { return runs_[at] == kWeightGrad ? kFree : runs_[at]; }
  const std::vector<std::int8_t>& runs() const { return runs_; }
  int peak() const { return peak_; }

  void begin(std::size_t) {}

  // As of Row; other activations may live longer where the pass takes the slot of their weight
  // gradient.
  std::size_t move(std::size_t at, std::size_t earliest, int cap) {
    if (is_forward(runs_[at])) {  // live at least in all slots from the new one on
      for (std::size_t slot = at; slot > earliest; --slot) {
        if (live_[slot - 1] >= cap) {
          earliest = slot;
          break;
        }
      }
    }
    for (std::size_t to = earliest; to < at; ++to) {
      if (type(to) == kFree && try_move(at, to, cap)) {
        return to;
      }
    }
    return at;
  }

 private:
  struct More {  // than before a move
    int live = 0;
    int owed = 0;
  };

  // Nothing moves if more than `cap` activations were then live.
  bool try_move(std::size_t from, std::size_t to, int cap) {
    const bool fits = each_stretch(from, to, [&](std::size_t begin, std::size_t end, More more) {
      int most = 0;
      for (std::size_t at = begin; at < end; ++at) {
        most = std::max(most, live_[at]);
      }
      return most + more.live <= cap;
    });
    if (!fits) {
      return false;
    }
    each_stretch(from, to, [&](std::size_t begin, std::size_t end, More more) {
      set(begin, begin == to ? runs_[from] : kWeightGrad);
      for (std::size_t at = begin; at < end; ++at) {
        live_[at] += more.live;
        owed_[at] += more.owed;
      }
      return true;
    });
    const int runs = owed_[from - 1] > 0 ? 1 : 0;
    set(from, runs != 0 ? kWeightGrad : kFree);
    run_sooner(from, owed_[from] - (owed_[from - 1] - runs));
    return true;
  }

  // Slots with as much more before the pass moves from its slot. Weight gradients whose slots are
  // taken run in the next free ones, and with the gradient one more does in an idle slot.
  template <typename Visit>
  bool each_stretch(std::size_t from, std::size_t to, Visit visit) const {
    const int takes = runs_[to] == kWeightGrad ? 1 : 0;
    More more{takes + change(runs_[from]), takes + (is_gradient(runs_[from]) ? 1 : 0)};
    std::size_t begin = to;
    while (more.owed > 0) {
      const std::size_t idle = idle_.next(begin + 1);
      if (idle >= from) {
        break;
      }
      if (!visit(begin, idle, more)) {
        return false;
      }
      begin = idle;
      --more.live;
      --more.owed;
    }
    return visit(begin, from, more);
  }

  // So many weight gradients more have run by a slot: as many of those that follow leave their
  // slots idle, each the next after which none is owed.
  void run_sooner(std::size_t from, int sooner) {
    for (std::size_t at = from; at < length() && sooner > 0; ++at) {
      if (at > from && runs_[at] == kWeightGrad && owed_[at] < sooner) {
        set(at, kFree);
        --sooner;
      }
      live_[at] -= sooner;
      owed_[at] -= sooner;
    }
  }

  void set(std::size_t at, int runs) {
    if ((runs_[at] == kFree) != (runs == kFree)) {
      idle_.flip(at);
    }
    runs_[at] = static_cast<std::int8_t>(runs);
  }

  std::vector<std::int8_t> runs_;
  std::vector<int> live_;  // after every slot
  std::vector<int> owed_;
  SlotSet idle_;
  int peak_ = 0;
};

}  // namespace orrery::sim
