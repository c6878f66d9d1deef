// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/list_repetition.hpp"

#include <algorithm>
#include <limits>

namespace orrery::sim {

int ListRepetition::times_left(int units) const {
  if (units <= 0) {
    return 0;
  }
  const int complete = lists_.units(0) / period_ * period_;
  int most = 0;
  for (const ListBuilder::LaneState& lane : lists_.lanes_) {
    most = std::max(most, lane.done());
  }
  return std::max(0, (complete - 1 - most) / units);
}

void ListRepetition::mark(int unit, std::int64_t now) {
  has_mark_ = true;
  has_just_marked_ = true;
  off_ = times_left(period_) == 0;
  // Further and further apart, so that long periods are seen soon, but not so far that a run which
  // becomes periodic late is seen only at its end.
  const int since = looks_ - first_look_;
  next_mark_ = looks_ + std::max({1, std::min(since / 2, 16), since / 8});
  unit_ = looked_at_ = unit;
  now_ = now;
  std::fill(slacks_.begin(), slacks_.end(), kNoLook);
  devices_ = lists_.devices_;
  max_bubble_ = lists_.max_bubble_;
  bubble_holders_ = lists_.bubble_holders_;
  listed_.clear();
  for (const std::vector<Pass>& list : lists_.order_.passes) {
    listed_.push_back(list.size());
  }
}

void ListRepetition::set_shifts() {
  shifts_.assign(devices_.size(), time_);
  for (std::size_t d = 0; d < devices_.size() && !by_start_; ++d) {
    shifts_[d] = lists_.devices_[d].free - devices_[d].free;
  }
}

// Where devices shift alike they wait alike. Else none waits for the other, until what arrives
// later every time comes too late.
std::int64_t ListRepetition::times_waiting_alike() const {
  std::int64_t times = most_times();
  for (std::size_t of = 0; of < slacks_.size(); ++of) {
    const std::size_t d = of / 2;
    const std::size_t beside = of % 2 == 0 ? d - 1 : d + 1;
    if (slacks_[of] == kNoLook || shifts_[beside] == shifts_[d]) {
      continue;
    }
    if (slacks_[of] < 1) {
      return 0;
    }
    const std::int64_t later = shifts_[beside] - shifts_[d];
    times = later > 0 ? std::min(times, (slacks_[of] - 1) / later) : times;
  }
  return times;
}

// At most `times`, of a device.
std::int64_t ListRepetition::times_allowed_alike(std::int64_t times, std::size_t d,
                                                 const std::vector<char>& exceeded,
                                                 const std::vector<std::int64_t>& floors,
                                                 const std::vector<std::int64_t>& margins) const {
  const std::int64_t grown = lists_.max_bubble_ - max_bubble_;
  const std::int64_t own = lists_.devices_[d].bubble - devices_[d].bubble;
  const bool floor_counts = !floors.empty() && max_bubble_ < floors[d];
  if (own > grown) {  // until it is the largest
    times = std::min(times, (max_bubble_ - lists_.devices_[d].bubble) / (own - grown));
  }
  if (exceeded[d] == 0 && margins[d] == kNoLook) {
    return times;  // nothing was compared
  }
  if (floor_counts && grown > 0) {  // until it is overtaken
    times = std::min(times, (floors[d] - lists_.max_bubble_) / grown);
  }
  // Gaps that won win again while the allowance shrinks, and others lose until the margin is used
  // up.
  const std::int64_t shrunk = own - (floor_counts ? 0 : grown);
  if (shrunk < 0) {
    return exceeded[d] != 0 ? 0 : times;
  }
  return shrunk > 0 ? std::min(times, margins[d] / shrunk) : times;
}

int ListRepetition::times_alike(const std::vector<char>& exceeded,
                                const std::vector<std::int64_t>& floors,
                                const std::vector<std::int64_t>& margins) const {
  std::int64_t times = times_waiting_alike();
  bool all_alike = true;
  for (std::size_t d = 0; d < devices_.size() && times > 0; ++d) {
    const std::int64_t own = lists_.devices_[d].bubble - devices_[d].bubble;
    all_alike = all_alike && own == lists_.max_bubble_ - max_bubble_;
    times = times_allowed_alike(times, d, exceeded, floors, margins);
  }
  // The largest stays that of the same device, so it grows alike at every pass.
  const bool linear = all_alike || bubble_holders_ == lists_.bubble_holders_;
  return linear ? static_cast<int>(std::max<std::int64_t>(times, 0)) : 0;
}

void ListRepetition::repeat(int times) {
  const bool all = times >= most_times();  // what is left is less than one more
  if (times > 0) {
    copy(times);
  }
  first_look_ = looks_;
  next_mark_ = looks_ + 1;
  has_mark_ = false;
  if (!by_start_) {  // all is here as it was there
    mark(unit_ + units_ * (1 + times), now_);
  }
  off_ = off_ || all;
}

void ListRepetition::copy(int times) {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    ListBuilder::Device& device = lists_.devices_[d];
    const std::int64_t idle =  // of a whole period, whenever the device ended its last pass before
        shifts_[d] - (device.free - devices_[d].free) + device.bubble - devices_[d].bubble;
    device.free += shifts_[d] * times;
    device.bubble += idle * times;
    lists_.max_bubble_ = std::max(lists_.max_bubble_, device.bubble);
    std::vector<Pass>& list = lists_.order_.passes[d];
    const std::size_t end = list.size();
    for (int time = 1; time <= times; ++time) {
      const auto more = static_cast<std::uint32_t>(units_ * time);
      for (std::size_t at = listed_[d]; at < end; ++at) {
        const Pass& pass = list[at];
        list.emplace_back(pass.kind, pass.virtual_stage, pass.micro_batch + more, pass.joined);
      }
    }
  }
  shift_ends(units_ * times, times);
  for (ListBuilder::LaneState& lane : lists_.lanes_) {
    lane.next.micro_batch += lane.units > 0 ? static_cast<std::uint32_t>(units_ * times) : 0;
  }
}

// Of the results that somebody waits for; of a device's own only that they are there counts.
void ListRepetition::shift_ends(int units, int times) {
  const int stages = lists_.order_.num_virtual_stages;
  std::vector<int> read(lists_.lanes_.size(), std::numeric_limits<int>::max());  // over edges
  for (const Edge& edge : lists_.order_.edges) {
    int& least = read[ListBuilder::number(edge.from_lane, edge.from)];
    least = std::min(least, first_left(edge.to_lane, edge.to));
  }
  for (int s = 0; s < stages; ++s) {
    const std::int64_t time = shifts_[device_of(s)] * times;
    for (const Lane lane : {Lane::Forward, Lane::Gradient}) {
      const int beside = lane == Lane::Forward ? s + 1 : s - 1;
      int k = lists_.done(lane, s);
      int first = lane == Lane::Forward ? first_left(Lane::Gradient, s)
                  : has_weight_grads(s) ? first_left(Lane::WeightGrad, s)
                                        : k;
      if (beside >= 0 && beside < stages) {
        first = std::min(first, first_left(lane, beside));
      }
      const std::size_t number = ListBuilder::number(lane, s);
      first = std::min(first, read[number]);
      const std::size_t row = lists_.lanes_[number].row;
      while (k-- > first) {
        const std::size_t at = row + static_cast<std::size_t>(unit_of(lane, s, k));
        lists_.end_[at + static_cast<std::size_t>(units)] = lists_.end_[at] + time;
      }
      // The unit after the last is marked as not there yet; rows of slices are filled as a whole.
      if (lists_.order_.slices == 1) {
        lists_.end_[row + static_cast<std::size_t>(lists_.done(lane, s) + units)] = -1;
      }
    }
  }
}

}  // namespace orrery::sim
