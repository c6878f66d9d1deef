// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/body_facts.hpp"

#include <algorithm>
#include <cstdint>

namespace orrery::sim {

BodyFacts::BodyFacts(const std::vector<BodyBlock>& of, int devices, const BodyLimits& given)
    : blocks(of),
      limits(given),
      on(static_cast<std::size_t>(devices)),
      tail(of.size(), 0),
      late(of.size(), false) {
  for (std::size_t b = 0; b < of.size(); ++b) {
    for (const int device : of[b].devices) {
      on[static_cast<std::size_t>(device)].push_back(b);
    }
    if (of[b].after.empty()) {
      last_root = b;
    }
  }
  for (std::size_t b = of.size(); b-- > 0;) {
    tail[b] += of[b].time;
    for (const BodyBlock::After& after : of[b].after) {
      int& before = tail[static_cast<std::size_t>(after.block)];
      before = std::max(before, after.delay + tail[b]);
    }
  }
  for (std::size_t device = 0; device < on.size(); ++device) {
    std::int64_t frees = 0;
    for (const std::size_t b : on[device]) {
      frees -= std::min<std::int64_t>(0, of[b].memory);
    }
    if (frees * given.in_flight > given.cap) {
      binding.push_back(device);
      for (const std::size_t b : on[device]) {
        late[b] = late[b] || of[b].memory > 0;
      }
    }
  }
}

}  // namespace orrery::sim
