// SPDX-License-Identifier: Apache-2.0
// A 4-ary heap of (key, id), smallest first, that knows where each id is, so that keys can change.
// Equal keys leave in order of id, whatever the history. push, change, erase: O(log n); each id at
// most once. Nothing is allocated beyond the largest number of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace orrery::sim {

template <typename Key>
class IndexedHeap {
 public:
  struct Entry {
    Key key;
    std::uint32_t id;
    bool operator<(const Entry& other) const {
      return key < other.key || (key == other.key && id < other.id);
    }
  };

  void reserve_ids(std::size_t count) { place_.resize(count, kAbsent); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  const Entry& top() const { return entries_.front(); }
  bool contains(std::uint32_t id) const { return place_[id] != kAbsent; }
  Key key(std::uint32_t id) const { return entries_[place_[id]].key; }

  // Inserts the id, or moves it to the new key.
  void set(std::uint32_t id, Key key) {
    if (place_[id] == kAbsent) {
      entries_.push_back({key, id});
      rise(entries_.size() - 1, {key, id});
      return;
    }
    put_at(place_[id], {key, id});
  }

  void erase(std::uint32_t id) {
    const std::size_t hole = place_[id];
    const Entry last = entries_.back();
    entries_.pop_back();
    place_[id] = kAbsent;
    if (hole < entries_.size()) {
      put_at(hole, last);
    }
  }

  void pop() { erase(entries_.front().id); }

 private:
  static constexpr std::uint32_t kAbsent = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kArity = 4;

  void store(std::size_t index, const Entry& entry) {
    entries_[index] = entry;
    place_[entry.id] = static_cast<std::uint32_t>(index);
  }

  void put_at(std::size_t index, const Entry& entry) {
    if (index > 0 && entry < entries_[(index - 1) / kArity]) {
      rise(index, entry);
    } else {
      sink(index, entry);
    }
  }

  void rise(std::size_t index, const Entry& entry) {
    while (index > 0) {
      const std::size_t parent = (index - 1) / kArity;
      if (!(entry < entries_[parent])) {
        break;
      }
      store(index, entries_[parent]);
      index = parent;
    }
    store(index, entry);
  }

  void sink(std::size_t index, const Entry& entry) {
    const std::size_t size = entries_.size();
    for (;;) {
      const std::size_t first = index * kArity + 1;
      if (first >= size) {
        break;
      }
      std::size_t least = first;
      const std::size_t end = first + kArity < size ? first + kArity : size;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (entries_[child] < entries_[least]) {
          least = child;
        }
      }
      if (!(entries_[least] < entry)) {
        break;
      }
      store(index, entries_[least]);
      index = least;
    }
    store(index, entry);
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> place_;  // of each id in entries_
};

}  // namespace orrery::sim
