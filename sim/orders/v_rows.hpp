// SPDX-License-Identifier: Apache-2.0
// Devices of a V pattern (sim/orders/v_pattern.hpp) slot by slot, of which single passes are moved
// to earlier slots. Passes are looked at in the order of their slots; what is looked at never moves
// behind one that has been. Slots from 0 on. Deterministic; a move costs a small part of its
// distance.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/orders/v_slots.hpp"

namespace orrery::sim {

// Live activations, owed weight gradients and those that have run, in one number, so that a slot
// changes all at once. No chunk of a pattern has more of the first two than fit: both stay below
// the micro-batches that a block spans.
class Counts {
 public:
  void add(int type) { all_ += kChanges[static_cast<std::size_t>(type + 1)]; }
  int live() const { return static_cast<int>(all_ & 0xffff); }
  int owed() const { return static_cast<int>(all_ >> 16 & 0xffff); }
  bool owes() const { return (all_ & 0xffff0000) != 0; }
  int weight_grads() const { return static_cast<int>(all_ >> 32); }

 private:
  static constexpr std::int64_t kOwed = 1 << 16;
  static constexpr std::int64_t kWeightGradRuns = (std::int64_t{1} << 32) - kOwed - 1;
  static constexpr std::array<std::int64_t, kTypes + 1> kChanges = {0,     1,     1,
                                                                    kOwed, kOwed, kWeightGradRuns};
  std::int64_t all_ = 0;
};

// The slots of a device, of which those before some slot have been looked at; so many activations
// are live as forwards before have no weight gradient yet.
class LookedAtRow {
 public:
  int type(std::size_t at) const { return types_[at]; }
  // With weight gradients.
  const std::vector<std::int8_t>& runs() const { return types_; }
  std::size_t length() const { return types_.size(); }
  // Looks may go on to a length.
  void extend(std::size_t length) {
    types_.resize(length, kFree);
    blocks_.resize(length / kBlock + 1);
  }
  int peak() const { return peak_; }
  // Looks at the slots from `at` on; of those before, since the last look, none moves.
  void begin(std::size_t at) {
    while (looked_at_ < at) {
      const std::size_t of = looked_at_ / kBlock;
      const bool is_known = of + 2 < before_.size();  // where the block ends
      if (looked_at_ % kBlock != 0 || at - looked_at_ < kBlock || !is_known) {
        look();
        continue;
      }
      const Counts& begin = before_[of];
      const Counts& end = before_[of + 1];
      blocks_[of] = {end.live() - begin.live(), end.weight_grads() - begin.weight_grads()};
      live_ += blocks_[of].added;
      owed_ += end.owed() - begin.owed();
      looked_at_ += kBlock;
    }
  }

 protected:
  struct Block {    // so many slots, of which those count that were looked at
    int added = 0;  // live activations
    int weight_grads = 0;
  };
  static int owed_after(int type) {
    return (is_gradient(type) ? 1 : 0) - (type == kWeightGrad ? 1 : 0);
  }
  static const Block& change_of(int type) {
    static constexpr std::array<Block, kTypes + 1> kChanges = {
        {{0, 0}, {1, 0}, {1, 0}, {0, 0}, {0, 0}, {-1, 1}}};
    return kChanges[static_cast<std::size_t>(type + 1)];
  }

  // Puts weight gradients in the free slots after their gradients; visit(slot, type) of all slots.
  template <typename Visit>
  LookedAtRow(std::vector<std::int8_t> types, Visit visit)
      : types_(std::move(types)),
        blocks_(types_.size() / kBlock + 1),
        before_(types_.size() / kBlock + 2) {
    Counts counts;
    int peak = 0;
    std::int8_t* const slots = types_.data();
    const std::size_t length = types_.size();
    for (std::size_t first = 0; first < length; first += kBlock) {
      before_[first / kBlock] = counts;
      const std::size_t end = std::min(first + kBlock, length);
      for (std::size_t at = first; at < end; ++at) {
        const int type = slots[at];
        const bool runs = (type < 0) & counts.owes();  // branches would be mispredicted
        const int found = runs ? kWeightGrad : type;
        slots[at] = static_cast<std::int8_t>(found);
        counts.add(found);
        visit(at, found);
        peak = std::max(peak, counts.live());
      }
    }
    std::fill(before_.begin() + static_cast<std::ptrdiff_t>((length + kBlock - 1) / kBlock),
              before_.end(), counts);
    peak_ = peak;
  }

  // Weight gradients that found no slot.
  int left() const { return before_.back().owed(); }

  // A pass in a slot before that where looks go on.
  void count(std::size_t at, int type) {
    const Block& more = change_of(type);
    live_ += more.added;
    blocks_[at / kBlock].added += more.added;
    blocks_[at / kBlock].weight_grads += more.weight_grads;
  }
  // No longer.
  void discount(std::size_t at, int type) {
    const Block& less = change_of(type);
    live_ -= less.added;
    blocks_[at / kBlock].added -= less.added;
    blocks_[at / kBlock].weight_grads -= less.weight_grads;
  }
  void look() {
    const int found = types_[looked_at_];
    count(looked_at_++, found);
    owed_ += owed_after(found);
  }

  struct Place {
    std::size_t at = 0;
    int live = 0;  // before it
  };
  // The last slot, after `to` and up to a place, before which `least` activations are live;
  // otherwise one up to `to`.
  Place last_full(Place place, std::size_t to, int least) const {
    while (place.at > to && place.live < least) {
      const std::size_t first = (place.at - 1) / kBlock * kBlock;
      const Block& block = blocks_[first / kBlock];
      const bool is_end = place.at % kBlock == 0 || place.at == looked_at_;
      if (is_end && place.live + block.weight_grads < least) {
        place = {first, place.live - block.added};
      } else {
        --place.at;
        place.live -= change_of(types_[place.at]).added;
      }
    }
    return place;
  }

  std::vector<std::int8_t> types_;
  SlotSet free_;
  std::size_t looked_at_ = 0;  // up to this slot
  int live_ = 0;               // there
  int owed_ = 0;               // weight gradients
  int peak_ = 0;

 private:
  static constexpr std::size_t kBlock = 32;
  std::vector<Block> blocks_;
  std::vector<Counts> before_;  // each block, as the row was made, and after the last slot
};

// A device whose weight gradients have slots and move like other passes.
class Row : public LookedAtRow {
 public:
  static constexpr bool kMovesWeightGrads = true;

  // Gives weight gradients the free slots after their gradients.
  Row(VSlots& slots, std::size_t device)
      : LookedAtRow(slots.types(device),
                    [next = slots.of(device, kWeightGrad)](std::size_t at, int type) mutable {
                      *next = static_cast<int>(at);
                      next += type == kWeightGrad ? 1 : 0;
                    }) {
    for (int more = left(); more > 0; --more) {
      slots.of(device, kWeightGrad)[slots.units(kWeightGrad) - static_cast<std::size_t>(more)] =
          static_cast<int>(types_.size());
      types_.push_back(kWeightGrad);
    }
    free_ = SlotSet(types_);
    first_free_ = free_.next(0);
  }

  void begin(std::size_t at) {
    most_live_ = at > looked_at_ ? std::max(most_live_, peak_) : most_live_;
    LookedAtRow::begin(at);
  }

  // The earliest free slot for the pass where no more than `cap` activations are live, or its own.
  std::size_t move(std::size_t at, std::size_t earliest, int cap) {
    const int type = types_[at];
    std::size_t to = std::min(free_.next(std::max(earliest, first_free_)), at);
    if (is_forward(type) && to < at && most_live_ >= cap) {  // live in all slots from the new one
      looked_at_ = at;
      const std::size_t after = last_full({at, live_}, to, cap).at;
      to = after > to ? std::min(free_.next(after), at) : to;
    }
    looked_at_ = at + 1;
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
  std::size_t first_free_ = 0;
  int most_live_ = 0;  // so far, at most
};

// A device whose weight gradients run in the free slots that follow their gradients.
class FloatingRow : public LookedAtRow {
 public:
  static constexpr bool kMovesWeightGrads = false;

  FloatingRow(const VSlots& slots, std::size_t device)
      : LookedAtRow(slots.types(device), [](std::size_t, int) {}) {
    free_ = SlotSet(types_);
  }

  // Without weight gradients.
  int type(std::size_t at) const { return types_[at] == kWeightGrad ? kFree : types_[at]; }

  // As of Row; other activations may live longer where the pass takes the slot of their weight
  // gradient.
  std::size_t move(std::size_t at, std::size_t earliest, int cap) {
    look_on(at);
    const int found = types_[at];
    if (is_forward(found)) {  // live at least in all slots from the new one on
      earliest = std::max(earliest, last_full({at, live_}, earliest, cap).at);
    }
    std::size_t to = earliest;
    while (to < at && (type(to) != kFree || !fits(at, to, cap))) {
      ++to;
    }
    if (to < at) {
      put_earlier(at, to);
    }
    look_on(at + 1);
    return to;
  }

 private:
  // Slots may have changed since the row was made.
  void look_on(std::size_t at) {
    while (looked_at_ < at) {
      look();
    }
  }

  // Whether no more than `cap` activations are then live. More than with the pass are where it
  // takes the slot of a weight gradient, until an idle one.
  bool fits(std::size_t from, std::size_t to, int cap) const {
    if (types_[to] == kFree) {
      return true;
    }
    const std::size_t end = free_.next(to);
    const int least = cap - change_of(types_[from]).added;
    Place place = last_full({from, live_}, to, least);
    while (place.at > end) {
      --place.at;
      place.live -= change_of(types_[place.at]).added;
      place = last_full(place, to, least);
    }
    return place.at <= to;
  }

  // Weight gradients whose slots are taken run in the next free ones, and with the gradient one
  // more does in an idle slot.
  void put_earlier(std::size_t from, std::size_t to) {
    const int found = types_[from];
    const int gradient = is_gradient(found) ? 1 : 0;
    const int takes = types_[to] == kWeightGrad ? 1 : 0;
    discount(to, types_[to]);
    set(to, found);
    count(to, found);
    int owed = takes + gradient;  // more than before
    for (std::size_t idle = free_.next(to); owed > 0 && idle < from; idle = free_.next(idle)) {
      set(idle, kWeightGrad);
      count(idle, kWeightGrad);
      --owed;
    }
    const int runs = owed_ + owed > 0 ? 1 : 0;
    set(from, runs != 0 ? kWeightGrad : kFree);
    run_sooner(from, owed_ + gradient, gradient - owed + runs);
    owed_ += owed;
  }

  // So many weight gradients more have run by a slot, after which `owed` were owed: as many of
  // those that follow leave their slots idle, each the next after which none is owed.
  void run_sooner(std::size_t from, int owed, int sooner) {
    for (std::size_t at = from + 1; at < length() && sooner > 0; ++at) {
      owed += owed_after(types_[at]);
      if (types_[at] == kWeightGrad && owed < sooner) {
        set(at, kFree);
        --sooner;
      }
    }
  }

  void set(std::size_t at, int runs) {
    if ((types_[at] == kFree) != (runs == kFree)) {
      free_.flip(at);
    }
    types_[at] = static_cast<std::int8_t>(runs);
  }
};

}  // namespace orrery::sim
