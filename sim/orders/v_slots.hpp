// SPDX-License-Identifier: Apache-2.0
// Slots of the passes of a V pattern (sim/orders/v_pattern.hpp), from 0 on: of all devices by pass,
// of one by slot, and sets of them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace orrery::sim {

inline constexpr int kWeightGrad = 4;  // type after the four of VBlock
inline constexpr std::size_t kTypes = 5;
inline constexpr std::int8_t kFree = -1;

inline bool is_forward(int type) { return type >> 1 == 0; }
inline bool is_gradient(int type) { return type >> 1 == 1; }

// A set of slots, of which all after the last are members.
class SlotSet {
 public:
  SlotSet() = default;
  // Those that are free.
  explicit SlotSet(const std::vector<std::int8_t>& types) : words_(types.size() / 64 + 1) {
    const std::size_t whole = types.size() / 8 * 8;
    for (std::size_t first = 0; first < whole; first += 8) {
      add_eight(&types[first], first);
    }
    std::array<std::int8_t, 8> left;
    left.fill(kFree);
    std::copy(types.begin() + static_cast<std::ptrdiff_t>(whole), types.end(), left.begin());
    add_eight(left.data(), whole);
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
  // Bit k: the sign of byte k, which only free slots have.
  void add_eight(const std::int8_t* types, std::size_t first) {
    static_assert(std::endian::native == std::endian::little && kFree < 0);
    std::uint64_t eight = 0;
    std::memcpy(&eight, types, sizeof(eight));
    words_[first / 64] |=
        ((eight >> 7 & 0x0101010101010101U) * 0x0102040810204080U) >> 56 << first % 64;
  }

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
      std::for_each(of(device, type), of(device, type) + units_, [&](int slot) {
        types[static_cast<std::size_t>(slot)] = static_cast<std::int8_t>(type);
      });
    }
    return types;
  }

 private:
  std::size_t devices_;
  std::size_t units_;
  std::size_t stride_;  // of types, an odd number of cache lines: see ListBuilder
  std::vector<int> at_;
};

}  // namespace orrery::sim
