// SPDX-License-Identifier: Apache-2.0
// Meetings of all devices, one for every unit, as of the shards of an output layer. O(1) for each
// that comes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace orrery::sim {

// Which devices have run a pass of every unit, and when the last two of them ended. Each device
// runs its units in order.
class Meeting {
 public:
  Meeting(int units, std::size_t devices)
      : devices_(devices), of_unit_(static_cast<std::size_t>(units)) {}

  void add(std::size_t unit, std::size_t device, std::int64_t end) {
    Ends& ends = of_unit_[unit];
    if (end >= ends.last) {
      ends.before = ends.last;
      ends.last = end;
      ends.last_device = device;
    } else {
      ends.before = std::max(ends.before, end);
    }
    next_ += ++ends.met == devices_ ? 1 : 0;
  }
  // The first unit that some device has not run.
  std::size_t next() const { return next_; }
  // What a later look at a unit can depend on, when nothing starts before `now`.
  template <typename Add>
  bool visit(std::size_t unit, std::int64_t now, std::int64_t send, Add add) const {
    const Ends& ends = of_unit_[unit];
    const auto since = [&](std::int64_t end) {
      return std::max<std::int64_t>(end + send - now, -1);
    };
    return add(static_cast<std::int64_t>(ends.met)) &&
           add(static_cast<std::int64_t>(ends.last_device)) && add(since(ends.last)) &&
           add(since(ends.before));
  }
  // All is so many units and so much later; `begin` and `end` are the units that can still matter.
  void shift(std::size_t begin, std::size_t end, std::size_t units, std::int64_t time) {
    for (std::size_t unit = end; unit-- > begin;) {
      Ends& to = of_unit_[unit + units];
      to = of_unit_[unit];
      to.last += time;
      to.before += time;
    }
    next_ += units;
  }
  // When a device knows of all, with `send` from the others.
  std::int64_t known(std::size_t unit, std::size_t device, std::int64_t send) const {
    const Ends& ends = of_unit_[unit];
    return ends.last_device == device ? std::max(ends.last, ends.before + send) : ends.last + send;
  }

 private:
  static constexpr std::int64_t kLongAgo = std::numeric_limits<std::int64_t>::min() / 2;
  struct Ends {
    std::size_t met = 0;
    std::size_t last_device = 0;
    std::int64_t last = kLongAgo;
    std::int64_t before = kLongAgo;  // also after all, if there is but one device
  };
  std::size_t devices_;
  std::size_t next_ = 0;
  std::vector<Ends> of_unit_;
};

}  // namespace orrery::sim
