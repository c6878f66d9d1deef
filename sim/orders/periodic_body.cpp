// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/periodic_body.hpp"

#include <algorithm>
#include <utility>

#include "sim/orders/body_facts.hpp"
#include "sim/orders/serial_body.hpp"

namespace orrery::sim {
namespace {

constexpr std::int64_t kLooks = 512;  // at start times, a step in the mean

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

// How a search goes: which start times it tries, in which order, and how many.
struct SearchWay {
  bool wide = false;         // all start times that could matter
  bool tight_first = false;  // where no gap is left to another block, if possible
  std::int64_t looks = 0;
};

class Search {
 public:
  Search(const BodyFacts& facts, int period, SearchWay way)
      : facts_(facts),
        blocks_(facts.blocks),
        period_(period),
        window_(std::int64_t{facts.limits.in_flight} * period),
        way_(way),
        steps_left_(facts.limits.steps),
        looks_left_(way.looks),
        busy_(facts.on.size(), std::vector<bool>(static_cast<std::size_t>(period), false)),
        start_(blocks_.size(), 0),
        earliest_(blocks_.size(), 0) {}

  bool solve() { return place(0); }
  bool exhausted() const { return steps_left_ <= 0 || looks_left_ <= 0; }
  std::int64_t looks() const { return way_.looks - looks_left_; }
  std::vector<int> take() { return std::move(start_); }

 private:
  bool place(std::size_t index) {
    if (--steps_left_ < 0) {
      return false;
    }
    if (index == blocks_.size()) {
      return true;
    }
    const BodyBlock& block = blocks_[index];
    const int ready = ready_at(index, start_);
    const std::int64_t last = last_start(index, ready);
    for (const bool tight : {true, false}) {
      for (int start = ready; start <= last && start + block.time <= window_; ++start) {
        if (--looks_left_ < 0) {
          return false;
        }
        if (!free_at(block, start) || (way_.tight_first && touches(block, start)) != tight) {
          continue;
        }
        mark(block, start, true);
        start_[index] = start;
        roots_at_zero_ += start == 0 ? 1 : 0;
        if (memory_fits(index) && may_fit_later(index) && place(index + 1)) {
          return true;
        }
        roots_at_zero_ -= start == 0 ? 1 : 0;
        mark(block, start, false);
        if (exhausted()) {
          return false;
        }
      }
    }
    return false;
  }

  int ready_at(std::size_t index, const std::vector<int>& starts) const {
    int ready = 0;
    for (const BodyBlock::After& after : blocks_[index].after) {
      const auto before = static_cast<std::size_t>(after.block);
      ready = std::max(ready, starts[before] + blocks_[before].time + after.delay);
    }
    return ready;
  }

  // A block that starts a period earlier repeats, so that only those that keep memory may gain by
  // a later start than that. All blocks may be moved until the first of them starts at 0; the
  // narrow search takes the first in the list for it.
  std::int64_t last_start(std::size_t index, int ready) const {
    if (!way_.wide) {
      return index == 0 ? 0 : ready + period_ - 1;
    }
    if (index == facts_.last_root && roots_at_zero_ == 0) {
      return 0;
    }
    const std::int64_t within = window_ - facts_.tail[index];
    return facts_.late[index] ? within : std::min<std::int64_t>(within, ready + period_ - 1);
  }

  // Whether another block ends where it starts or starts where it ends.
  bool touches(const BodyBlock& block, int start) const {
    return std::any_of(block.devices.begin(), block.devices.end(), [&](int device) {
      const std::vector<bool>& slots = busy_[static_cast<std::size_t>(device)];
      const auto before = static_cast<std::size_t>((start + period_ - 1) % period_);
      const auto after = static_cast<std::size_t>((start + block.time) % period_);
      return slots[before] || slots[after];
    });
  }

  bool free_at(const BodyBlock& block, int start) const {
    return std::all_of(block.devices.begin(), block.devices.end(), [&](int device) {
      const std::vector<bool>& slots = busy_[static_cast<std::size_t>(device)];
      for (int t = 0; t < block.time; ++t) {
        if (slots[static_cast<std::size_t>((start + t) % period_)]) {
          return false;
        }
      }
      return true;
    });
  }
  void mark(const BodyBlock& block, int start, bool busy) {
    for (const int device : block.devices) {
      for (int t = 0; t < block.time; ++t) {
        busy_[static_cast<std::size_t>(device)][static_cast<std::size_t>((start + t) % period_)] =
            busy;
      }
    }
  }

  // Of the devices whose last block this is, at the instants at which memory grows.
  bool memory_fits(std::size_t index) const {
    const std::vector<int>& devices = blocks_[index].devices;
    return std::all_of(devices.begin(), devices.end(), [&](int device) {
      const std::vector<std::size_t>& on = facts_.on[static_cast<std::size_t>(device)];
      return on.back() != index || std::all_of(on.begin(), on.end(), [&](std::size_t grows) {
               return blocks_[grows].memory <= 0 ||
                      held(on, start_[grows] % period_) <= facts_.limits.cap;
             });
    });
  }
  std::int64_t held(const std::vector<std::size_t>& on, int t) const {
    std::int64_t sum = 0;
    for (const std::size_t b : on) {  // micro-batches that have passed the block
      const BodyBlock& block = blocks_[b];
      const int instant = start_[b] + (block.memory < 0 ? block.time : 0);
      sum += block.memory * floor_div(t - instant, period_);
    }
    return sum;
  }

  // Whether a device may hold no more than the cap on average: memory that blocks up to this one
  // keep, until those behind it could free it. Heuristics (`coarse`) go without.
  bool may_fit_later(std::size_t index) {
    if (facts_.binding.empty() || facts_.limits.coarse > 0) {
      return true;
    }
    std::copy_n(start_.begin(), index + 1, earliest_.begin());
    for (std::size_t b = index + 1; b < blocks_.size(); ++b) {
      earliest_[b] = ready_at(b, earliest_);
      if (earliest_[b] + facts_.tail[b] > window_) {
        return false;
      }
    }
    looks_left_ -= static_cast<std::int64_t>(blocks_.size());
    return std::all_of(facts_.binding.begin(), facts_.binding.end(), [&](std::size_t device) {
      std::int64_t kept = 0;  // memory x time
      for (const std::size_t b : facts_.on[device]) {
        const BodyBlock& block = blocks_[b];
        const std::int64_t instant = block.memory < 0 ? earliest_[b] + block.time
                                     : b <= index     ? start_[b]
                                                      : window_ - facts_.tail[b];
        kept -= block.memory * instant;
      }
      return kept <= facts_.limits.cap * period_;
    });
  }

  const BodyFacts& facts_;
  const std::vector<BodyBlock>& blocks_;
  int period_;
  std::int64_t window_;  // of all micro-batches in flight
  SearchWay way_;
  std::int64_t steps_left_;
  std::int64_t looks_left_;
  std::vector<std::vector<bool>> busy_;  // per device
  std::vector<int> start_;
  std::vector<int> earliest_;  // of blocks that are not placed yet
  int roots_at_zero_ = 0;      // blocks that start at 0: they wait for nothing
};

// Searches of one period after the other, with a bound on all of them together.
class PeriodSearch {
 public:
  PeriodSearch(const BodyFacts& facts, PeriodicBody& body)
      : facts_(facts), body_(body), looks_left_(kSearches * facts.limits.steps * kLooks) {}

  // The narrow start times first: most bodies are found among them.
  bool solves(int period) {
    return tries(period, false) || (!exhausted_ && !facts_.narrow_is_all() &&
                                    facts_.limits.coarse == 0 && tries(period, true));
  }
  bool exhausted() const { return exhausted_; }  // by the period that was tried last

 private:
  static constexpr std::int64_t kSearches = 6;  // of full length

  bool tries(int period, bool wide) {
    for (const bool tight_first : {true, false}) {
      std::int64_t looks = facts_.limits.steps * kLooks;
      if (facts_.limits.coarse == 0) {
        looks = std::min(looks, looks_left_ / 4 + 1);
      }
      Search search(facts_, period, {wide, tight_first, looks});
      const bool found = search.solve();
      looks_left_ -= search.looks();
      exhausted_ = !found && search.exhausted();
      if (found) {
        body_.starts = search.take();
        body_.period = period;
        return true;
      }
      if (!exhausted_) {
        break;
      }
    }
    return false;
  }

  const BodyFacts& facts_;
  PeriodicBody& body_;
  std::int64_t looks_left_;
  bool exhausted_ = false;
};

}  // namespace

std::optional<PeriodicBody> shortest_body(const std::vector<BodyBlock>& blocks, int devices,
                                          const BodyLimits& limits) {
  std::vector<int> load(static_cast<std::size_t>(devices), 0);
  int total = 0;
  for (const BodyBlock& block : blocks) {
    total += block.time;
    for (const BodyBlock::After& after : block.after) {
      total += after.delay;
    }
    for (const int device : block.devices) {
      load[static_cast<std::size_t>(device)] += block.time;
    }
  }
  const BodyFacts facts(blocks, devices, limits);
  PeriodicBody body;
  body.load_bound = *std::max_element(load.begin(), load.end());
  PeriodSearch search(facts, body);
  int stride = 1;
  int longest_failed = 0;
  for (int period = std::max(body.load_bound, limits.least); period < total;) {
    if (search.solves(period)) {
      break;
    }
    stride *= search.exhausted() ? 2 : 1;
    const int more = limits.coarse > 0 ? std::max(1, period / limits.coarse) : stride;
    body.proven = body.proven && !search.exhausted() && more == 1;
    longest_failed = period;
    period += more;
  }
  // No period is longer than all blocks one after the other, in some order.
  if (body.starts.empty()) {
    const bool found = fits_in_series(facts, body) || search.solves(std::max(total, 1));
    return found ? std::optional(std::move(body)) : std::nullopt;
  }
  while (stride > 1 && limits.coarse == 0 && longest_failed + 1 < body.period) {
    const int between = longest_failed + (body.period - longest_failed) / 2;
    longest_failed = search.solves(between) ? longest_failed : between;
  }
  return body;
}

}  // namespace orrery::sim
