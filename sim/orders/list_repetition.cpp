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
    most = std::max(most, lane.done);
  }
  return std::max(0, (complete - 1 - most) / units);
}

void ListRepetition::mark(int unit, std::int64_t now) {
  has_mark_ = true;
  has_just_marked_ = true;
  off_ = times_left(period_) == 0;
  next_mark_ = looks_ + std::max(1, looks_ / 2);
  unit_ = unit;
  now_ = now;
  state_.clear();
  devices_ = lists_.devices_;
  max_bubble_ = lists_.max_bubble_;
  bubble_holders_ = lists_.bubble_holders_;
  listed_.clear();
  for (const std::vector<Pass>& list : lists_.order_.passes) {
    listed_.push_back(list.size());
  }
}

int ListRepetition::times_alike(const std::vector<char>& exceeded,
                                const std::vector<std::int64_t>& floors,
                                const std::vector<std::int64_t>& margins) const {
  const std::int64_t grown = lists_.max_bubble_ - max_bubble_;
  std::int64_t times = most_times();
  bool all_alike = true;
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const std::int64_t own = lists_.devices_[d].bubble - devices_[d].bubble;
    all_alike = all_alike && own == grown;
    if (own > grown) {
      return 0;
    }
    if (grown > 0 && !floors.empty() && max_bubble_ < floors[d]) {
      // The floor counts until it is overtaken; meanwhile the allowance shrinks, so that gaps that
      // won win again and others lose until the margin is used up.
      times = std::min(times, (floors[d] - lists_.max_bubble_) / grown);
      times = own > 0 ? std::min(times, margins[d] / own) : times;
    } else if (own < grown && exceeded[d] != 0) {
      return 0;  // the allowance grows
    }
  }
  // The largest stays that of the same device, so it grows alike at every pass.
  const bool linear = all_alike || bubble_holders_ == lists_.bubble_holders_;
  return linear ? static_cast<int>(std::max<std::int64_t>(times, 0)) : 0;
}

void ListRepetition::repeat(int times) {
  off_ = times >= most_times();  // what is left is less than one more
  has_mark_ = false;
  next_mark_ = looks_ + 1;
  if (times == 0) {
    return;
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    ListBuilder::Device& device = lists_.devices_[d];
    const std::int64_t idle =  // of a whole period, whenever the device ended its last pass before
        time_ - (device.free - devices_[d].free) + device.bubble - devices_[d].bubble;
    device.free += time_ * times;
    device.bubble += idle * times;
    lists_.max_bubble_ = std::max(lists_.max_bubble_, device.bubble);
    std::vector<Pass>& list = lists_.order_.passes[d];
    const std::size_t length = list.size() - listed_[d];
    std::size_t from = listed_[d];
    list.resize(list.size() + length * static_cast<std::size_t>(times));
    for (std::size_t to = from + length; to < list.size(); ++from, ++to) {
      list[to] = list[from];
      list[to].micro_batch += static_cast<std::uint32_t>(units_);
    }
  }
  shift_ends(units_ * times, time_ * times);
  for (ListBuilder::LaneState& lane : lists_.lanes_) {
    lane.done += lane.units > 0 ? units_ * times : 0;
  }
}

// Of the results that somebody waits for; of a device's own only that they are there counts.
void ListRepetition::shift_ends(int units, std::int64_t time) {
  const int stages = lists_.order_.num_virtual_stages;
  std::vector<int> read(lists_.lanes_.size(), std::numeric_limits<int>::max());  // over edges
  for (const Edge& edge : lists_.order_.edges) {
    int& least = read[ListBuilder::number(edge.from_lane, edge.from)];
    least = std::min(least, first_left(edge.to_lane, edge.to));
  }
  for (int s = 0; s < stages; ++s) {
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
    }
  }
}

}  // namespace orrery::sim
