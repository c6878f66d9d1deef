// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/serial_body.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace orrery::sim {
namespace {

// All blocks of a micro-batch, in this order, before the next one, if that fits.
bool one_after_the_other(const BodyFacts& facts, const std::vector<std::size_t>& order,
                         PeriodicBody& body) {
  std::vector<std::int64_t> held(facts.on.size(), 0);
  std::vector<int> starts(facts.blocks.size(), 0);
  int at = 0;
  for (const std::size_t b : order) {
    const BodyBlock& block = facts.blocks[b];
    for (const BodyBlock::After& after : block.after) {
      const auto before = static_cast<std::size_t>(after.block);
      at = std::max(at, starts[before] + facts.blocks[before].time + after.delay);
    }
    starts[b] = at;
    at += block.time;
    for (const int device : block.devices) {
      if ((held[static_cast<std::size_t>(device)] += block.memory) > facts.limits.cap) {
        return false;
      }
    }
  }
  body.starts = std::move(starts);
  body.period = std::max(at, 1);
  return true;
}

// An order of a micro-batch's blocks that fits the memory, each as early in the list as possible.
// Blocks that keep nothing come as soon as they are ready, which is never wrong; of the others any
// may be next, unless the same blocks before it have failed already.
class SerialOrder {
 public:
  explicit SerialOrder(const BodyFacts& facts)
      : facts_(facts), done_(facts.blocks.size(), false), held_(facts.on.size(), 0) {}

  std::optional<std::vector<std::size_t>> find() {
    return extend() ? std::optional(order_) : std::nullopt;
  }

 private:
  static constexpr std::size_t kMostFailed = 100'000;

  bool extend() {
    const std::size_t before = order_.size();
    for (std::size_t b = 0; b < done_.size();) {
      const bool runs = facts_.blocks[b].memory <= 0 && is_ready(b);
      if (runs) {
        run(b);
      }
      b = runs ? 0 : b + 1;
    }
    if (order_.size() == done_.size()) {
      return true;
    }
    for (std::size_t b = 0; b < done_.size() && failed_.size() < kMostFailed; ++b) {
      if (is_ready(b) && fits(b) && !failed_.contains(done_)) {
        run(b);
        if (extend()) {
          return true;
        }
        take_back(order_.size() - 1);
      }
    }
    failed_.insert(done_);
    take_back(before);
    return false;
  }

  bool is_ready(std::size_t b) const {
    const std::vector<BodyBlock::After>& after = facts_.blocks[b].after;
    return !done_[b] && std::all_of(after.begin(), after.end(), [&](const auto& each) {
      return done_[static_cast<std::size_t>(each.block)];
    });
  }
  bool fits(std::size_t b) const {
    const std::vector<int>& devices = facts_.blocks[b].devices;
    return std::all_of(devices.begin(), devices.end(), [&](int device) {
      return held_[static_cast<std::size_t>(device)] + facts_.blocks[b].memory <= facts_.limits.cap;
    });
  }
  void run(std::size_t b) {
    done_[b] = true;
    order_.push_back(b);
    for (const int device : facts_.blocks[b].devices) {
      held_[static_cast<std::size_t>(device)] += facts_.blocks[b].memory;
    }
  }
  void take_back(std::size_t to) {
    for (; order_.size() > to; order_.pop_back()) {
      done_[order_.back()] = false;
      for (const int device : facts_.blocks[order_.back()].devices) {
        held_[static_cast<std::size_t>(device)] -= facts_.blocks[order_.back()].memory;
      }
    }
  }

  const BodyFacts& facts_;
  std::vector<bool> done_;
  std::vector<std::int64_t> held_;  // per device
  std::vector<std::size_t> order_;
  std::set<std::vector<bool>> failed_;
};

}  // namespace

bool fits_in_series(const BodyFacts& facts, PeriodicBody& body) {
  std::vector<std::size_t> listed(facts.blocks.size());
  std::iota(listed.begin(), listed.end(), std::size_t{0});
  if (one_after_the_other(facts, listed, body)) {
    return true;
  }
  const auto order = SerialOrder(facts).find();
  return order && one_after_the_other(facts, *order, body);
}

}  // namespace orrery::sim
