// SPDX-License-Identifier: Apache-2.0
#include "search/tree/handout.hpp"

#include <algorithm>
#include <unordered_map>

namespace orrery::search {

Handout::Handout(const std::vector<Item>& items, int threads) : items_(items), threads_(threads) {
  std::unordered_map<std::uint64_t, std::size_t> slots;
  for (std::size_t index = 0; index < items_.size(); ++index) {
    const Item& item = items_[index];
    const auto [slot, is_new] = slots.emplace(item.item_class, classes_.size());
    if (is_new) {
      Class& own = classes_.emplace_back();
      own.owner = static_cast<int>(item.item_class % static_cast<std::uint64_t>(threads));
    }
    Class& to = classes_[slot->second];
    to.items.push_back(index);
    to.longest = std::max(to.longest, item.work);
    to.work += item.work;
    left_ += item.work;
  }
  std::stable_sort(classes_.begin(), classes_.end(),
                   [](const Class& a, const Class& b) { return a.longest > b.longest; });
  own_.resize(static_cast<std::size_t>(threads));
  for (std::size_t index = classes_.size(); index-- > 0;) {
    classes_[index].end = classes_[index].items.size();
    own_[static_cast<std::size_t>(classes_[index].owner)].push_back(index);
  }
}

std::size_t Handout::take_from(Class& from, bool front) {
  const std::size_t index = front ? from.items[from.first++] : from.items[--from.end];
  from.work -= items_[index].work;
  left_ -= items_[index].work;
  return index;
}

// Its owner goes through a class forwards, others take from the end.
std::optional<std::size_t> Handout::take_next(int thread) {
  std::vector<std::size_t>& own = own_[static_cast<std::size_t>(thread)];
  while (!own.empty() && classes_[own.back()].first == classes_[own.back()].end) {
    own.pop_back();
  }
  if (!own.empty()) {
    return take_from(classes_[own.back()], true);
  }
  Class* from = nullptr;
  for (Class& some : classes_) {
    if (some.first < some.end && (from == nullptr || some.work > from->work)) {
      from = &some;
    }
  }
  return from == nullptr ? std::nullopt : std::optional(take_from(*from, false));
}

std::optional<std::size_t> Handout::take(int thread) {
  const std::lock_guard lock(mutex_);
  return take_next(thread);
}

std::vector<std::size_t> Handout::take_some(int thread, double most) {
  const std::lock_guard lock(mutex_);
  const double limit = std::min(most, static_cast<double>(left_) / (2.0 * threads_));
  std::vector<std::size_t> taken;
  for (double work = 0; taken.empty() || work < limit;) {
    const std::optional<std::size_t> index = take_next(thread);
    if (!index) {
      break;
    }
    taken.push_back(*index);
    work += static_cast<double>(items_[*index].work);
  }
  return taken;
}

double Handout::share() {
  const std::lock_guard lock(mutex_);
  return static_cast<double>(left_) / (2.0 * threads_);
}

void Handout::stop() {
  const std::lock_guard lock(mutex_);
  classes_.clear();
  for (std::vector<std::size_t>& own : own_) {
    own.clear();
  }
  left_ = 0;
}

}  // namespace orrery::search
