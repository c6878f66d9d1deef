// SPDX-License-Identifier: Apache-2.0
// Iterations in which every request decodes and none ends, counted together.
#include <algorithm>
#include <limits>

#include "plan/serving/replica.hpp"

namespace orrery::plan {

// A token of every request, all of which decode; false where there is no room.
bool ServingReplica::grow_steadily(const Group& group) {
  const SteadyDecode& steady = group.steady;
  std::int64_t growth = steady.new_pages[steady.next_page] * cache_.per_page();
  auto needed = static_cast<std::int64_t>(group.size());
  if (cache_.frees()) {
    growth = needed = 0;
    for (const Active& active : group.active) {
      const std::int64_t held = active.held + steady.taken;
      growth += cache_.growth(held);
      needed += cache_.needed_growth(held);
    }
  }
  if (!fits(cache_.reserved() + growth)) {
    return false;
  }
  cache_.grow_all(needed, growth);
  return true;
}

// One more iteration like the last; false where somebody ends, waits or lacks room.
bool ServingReplica::decode_steadily(Group& group, Iteration& iteration) {
  SteadyDecode& steady = group.steady;
  const bool continues = options_.overlap_chunks && open_prompts_ > 0;
  if (steady.left == 0 || continues || may_admit(group) || !grow_steadily(group)) {
    return false;
  }
  const auto requests = static_cast<std::int64_t>(group.size());
  iteration.decodes = requests;
  iteration.sampled = requests;
  iteration.keys = steady.keys;
  iteration.windowed_keys = steady.windowed;
  run_.decoded += requests;
  run_.generated += requests;
  run_.kv_peak = std::max(run_.kv_peak, cache_.reserved());
  --steady.left;
  ++steady.taken;
  steady.keys += requests;
  steady.windowed += steady.more_windowed;
  steady.next_page = (steady.next_page + 1) % steady.new_pages.size();
  steady.in_flight = true;
  return true;
}

// How many iterations like this one can follow.
void ServingReplica::expect_steady(Group& group) const {
  SteadyDecode& steady = group.steady;
  steady.left = 0;
  steady.in_flight = false;
  std::int64_t left = group.active.empty() ? 0 : std::numeric_limits<std::int64_t>::max();
  std::int64_t keys = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = 0;
  for (const Active& active : group.active) {
    const std::int64_t ahead = request_of(active).output - active.generated - 1;
    if (active.prefilling() || active.stopping || ahead <= 0) {
      return;
    }
    left = std::min(left, ahead);
    keys += active.context();
    least = std::min(least, active.context());
    most = std::max(most, active.context());
  }
  const auto requests = static_cast<std::int64_t>(group.size());
  const bool beyond_window = window_ > 0 && least >= window_;
  if (window_ > 0 && !beyond_window) {  // until the first reaches its window
    left = std::min(left, std::max<std::int64_t>(0, window_ - most + 1));
  }
  steady.left = left;
  steady.keys = keys;
  steady.windowed = beyond_window ? requests * window_ : keys;
  steady.more_windowed = beyond_window ? 0 : requests;
  const std::int64_t page = cache_.per_page();
  steady.new_pages.assign(static_cast<std::size_t>(std::min(page, std::max<std::int64_t>(1, left))),
                          0);
  steady.next_page = 0;
  if (page == 1) {
    steady.new_pages.front() = requests;
    return;
  }
  for (const Active& active : group.active) {
    const std::int64_t room = (page - active.held % page) % page;  // tokens before the next page
    if (room < std::ssize(steady.new_pages)) {
      ++steady.new_pages[static_cast<std::size_t>(room)];
    }
  }
}

}  // namespace orrery::plan
