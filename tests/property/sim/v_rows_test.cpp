// SPDX-License-Identifier: Apache-2.0
// Moves on the devices of a V pattern against a look at every slot.
#include "sim/orders/v_rows.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <vector>

namespace orrery::sim {
namespace {

using Types = std::vector<std::int8_t>;

// Below `end`, all as likely in the first cases as in the last.
std::size_t any_below(std::size_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::size_t>(0, end));
}

// One device: every unit has its types in order, with free slots between.
VSlots any_slots() {
  const std::size_t units = 1 + any_below(24);
  VSlots slots(1, units);
  std::array<std::size_t, kWeightGrad> done{};
  for (int at = 0; done.back() < units; ++at) {
    std::vector<std::size_t> next;  // a pass first: cases shrink to fewer free slots
    for (std::size_t type = 0; type < kWeightGrad; ++type) {
      if (done[type] < (type > 0 ? done[type - 1] : units)) {
        next.push_back(type);
      }
    }
    next.push_back(kWeightGrad);  // none
    const std::size_t type = next[any_below(next.size())];
    if (type < kWeightGrad) {
      slots.of(0, type)[done[type]++] = at;
    }
  }
  return slots;
}

// Live activations after every slot.
std::vector<int> live_after(const Types& types) {
  std::vector<int> live;
  for (const std::int8_t type : types) {
    live.push_back((live.empty() ? 0 : live.back()) + (type == 0 || type == 1 ? 1 : 0) -
                   (type == kWeightGrad ? 1 : 0));
  }
  return live;
}

bool keeps_within(const Types& types, int cap) {
  const std::vector<int> live = live_after(types);
  return std::all_of(live.begin(), live.end(), [cap](int each) { return each <= cap; });
}

// Weight gradients in the free slots after their gradients, those left at the end if `all`.
Types with_weight_grads(Types types, bool all) {
  int owed = 0;
  for (std::size_t at = 0; at < types.size() || (all && owed > 0); ++at) {
    types.resize(std::max(types.size(), at + 1), kFree);
    if (types[at] == kFree && owed > 0) {
      types[at] = kWeightGrad;
      --owed;
    }
    owed += types[at] == 2 || types[at] == 3 ? 1 : 0;
  }
  return types;
}

// The first free slot for a pass at which `fits` is true of the types with it there, or its own.
template <typename Fits>
std::size_t first_place(const Types& types, std::size_t at, std::size_t earliest, Fits fits) {
  for (std::size_t to = earliest; to < at; ++to) {
    Types moved = types;
    std::swap(moved[at], moved[to]);
    if (types[to] == kFree && fits(moved)) {
      return to;
    }
  }
  return at;
}

TEST(VRowsProperty, WeightGradientsThatFloatLeaveRoom) {
  EXPECT_TRUE(rc::check([] {
    const VSlots slots = any_slots();
    Types types = slots.types(0);
    FloatingRow row(slots, 0);
    RC_ASSERT(row.runs() == with_weight_grads(types, false));
    const std::vector<int> live = live_after(row.runs());
    RC_ASSERT(row.peak() == *std::max_element(live.begin(), live.end()));
    const int cap = row.peak() + *rc::gen::inRange(0, 2);
    const std::size_t first = *rc::gen::inRange(0, 2) * any_below(types.size());
    row.begin(first);
    for (std::size_t at = first; at < types.size(); ++at) {
      RC_ASSERT(row.type(at) == types[at]);
      if (types[at] == kFree) {
        continue;
      }
      const std::size_t earliest = any_below(at + 1);
      const std::size_t to = row.move(at, earliest, cap);
      RC_ASSERT(to == first_place(types, at, earliest, [cap](const Types& moved) {
                  return keeps_within(with_weight_grads(moved, false), cap);
                }));
      std::swap(types[at], types[to]);
      RC_ASSERT(row.runs() == with_weight_grads(types, false));
    }
  }));
}

TEST(VRowsProperty, WeightGradientsWithSlotsMoveLikeOthers) {
  EXPECT_TRUE(rc::check([] {
    VSlots slots = any_slots();
    Types types = with_weight_grads(slots.types(0), true);
    Row row(slots, 0);
    RC_ASSERT(row.runs() == types);
    row.extend(types.size());
    const int cap = row.peak() + *rc::gen::inRange(0, 2);
    for (std::size_t at = 0; at < types.size(); ++at) {
      at = std::min(at + *rc::gen::weightedElement<std::size_t>({{8, 0}, {1, 1}, {1, 20}, {1, 80}}),
                    types.size() - 1);
      row.begin(at);
      if (types[at] == kFree) {
        continue;
      }
      const std::size_t earliest = any_below(at + 1);
      const bool is_counted = types[at] == 0 || types[at] == 1;
      const auto fits = [&](const Types& moved) {
        return !is_counted ||
               keeps_within(
                   Types(moved.begin(), moved.begin() + 1 + static_cast<std::ptrdiff_t>(at)), cap);
      };
      const std::size_t to = row.move(at, earliest, cap);
      RC_ASSERT(to == first_place(types, at, earliest, fits));
      std::swap(types[at], types[to]);
      RC_ASSERT(row.runs() == types);
    }
  }));
}

}  // namespace
}  // namespace orrery::sim
