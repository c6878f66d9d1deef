// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/periodic_body.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::sim {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

class Search {
 public:
  Search(const std::vector<BodyBlock>& blocks, int devices, int period, const BodyLimits& limits,
         bool tight_first)
      : blocks_(blocks),
        period_(period),
        in_flight_(limits.in_flight),
        cap_(limits.cap),
        steps_left_(limits.steps),
        looks_left_(limits.steps * kLooks),
        tight_first_(tight_first),
        busy_(static_cast<std::size_t>(devices),
              std::vector<bool>(static_cast<std::size_t>(period), false)),
        on_(busy_.size()),
        start_(blocks.size(), 0) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (const int device : blocks[b].devices) {
        on_[static_cast<std::size_t>(device)].push_back(b);
      }
    }
  }

  bool solve() { return place(0); }
  bool exhausted() const { return steps_left_ <= 0 || looks_left_ <= 0; }
  std::vector<int> take() { return std::move(start_); }

 private:
  static constexpr std::int64_t kLooks = 512;  // at start times, a step in the mean

  bool place(std::size_t index) {
    if (--steps_left_ < 0) {
      return false;
    }
    if (index == blocks_.size()) {
      return true;
    }
    const BodyBlock& block = blocks_[index];
    int ready = 0;
    for (const BodyBlock::After& after : block.after) {
      const auto before = static_cast<std::size_t>(after.block);
      ready = std::max(ready, start_[before] + blocks_[before].time + after.delay);
    }
    // A later start repeats after one period, and the first block may as well start at 0.
    const int last = index == 0 ? 0 : ready + period_ - 1;
    for (const bool tight : {true, false}) {
      for (int start = ready; start <= last && start + block.time <= in_flight_ * period_;
           ++start) {
        if (--looks_left_ < 0) {
          return false;
        }
        if (!free_at(block, start) || (tight_first_ && touches(block, start)) != tight) {
          continue;
        }
        mark(block, start, true);
        start_[index] = start;
        if (memory_fits(index) && place(index + 1)) {
          return true;
        }
        mark(block, start, false);
        if (exhausted()) {
          return false;
        }
      }
    }
    return false;
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
      const std::vector<std::size_t>& on = on_[static_cast<std::size_t>(device)];
      return on.back() != index || std::all_of(on.begin(), on.end(), [&](std::size_t grows) {
               return blocks_[grows].memory <= 0 || held(on, start_[grows] % period_) <= cap_;
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

  const std::vector<BodyBlock>& blocks_;
  int period_;
  int in_flight_;
  std::int64_t cap_;
  std::int64_t steps_left_;
  std::int64_t looks_left_;
  bool tight_first_;                     // start where no gap is left to another block, if possible
  std::vector<std::vector<bool>> busy_;  // per device
  std::vector<std::vector<std::size_t>> on_;  // blocks, per device
  std::vector<int> start_;
};

// All blocks of a micro-batch before the next one, if that fits.
std::optional<PeriodicBody> one_after_the_other(const std::vector<BodyBlock>& blocks, int devices,
                                                std::int64_t cap, PeriodicBody body) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(devices), 0);
  int at = 0;
  for (const BodyBlock& block : blocks) {
    for (const BodyBlock::After& after : block.after) {
      const auto before = static_cast<std::size_t>(after.block);
      at = std::max(at, body.starts[before] + blocks[before].time + after.delay);
    }
    body.starts.push_back(at);
    at += block.time;
    for (const int device : block.devices) {
      if ((held[static_cast<std::size_t>(device)] += block.memory) > cap) {
        return std::nullopt;
      }
    }
  }
  body.period = std::max(at, 1);
  return body;
}

// Times in at most this many units: the search looks at single units.
constexpr std::int64_t kUnits = 16;
constexpr std::int64_t kSteps = 1'000;
constexpr int kCoarse = 8;

// The passes of a micro-batch as blocks, each after those it needs.
class Blocks {
 public:
  Blocks(const PipelineOrder& order, const ScheduleParams& params)
      : order_(order),
        params_(params),
        inputs_(order),
        number_(2 * static_cast<std::size_t>(order.num_virtual_stages), -1) {
    const int stages = order.num_virtual_stages;
    for (std::size_t placed = 0, before = 1; placed != before;) {
      before = placed;
      for (int s = 0; s < stages; ++s) {
        add(PassKind::Forward, s);
      }
      for (int s = stages - 1; s >= 0; --s) {
        add(PassKind::Backward, s);
      }
      placed = blocks.size();
    }
    ORRERY_CHECK(blocks.size() == number_.size(), "passes of a micro-batch that wait in a circle");
    shorten();
  }

  // Activations live at least along the path from their forward to the end of their backward; what
  // a device holds on average cannot exceed the cap.
  int least_period(int devices, std::int64_t cap) const {
    std::vector<std::int64_t> ends(blocks.size(), 0);
    std::vector<std::int64_t> held(static_cast<std::size_t>(devices), 0);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      std::int64_t start = 0;
      for (const BodyBlock::After& after : blocks[b].after) {
        start = std::max(start, ends[static_cast<std::size_t>(after.block)] + after.delay);
      }
      ends[b] = start + blocks[b].time;
      held[static_cast<std::size_t>(blocks[b].devices.front())] -=
          blocks[b].memory * (blocks[b].memory > 0 ? start : ends[b]);
    }
    const std::int64_t most = *std::max_element(held.begin(), held.end());
    return static_cast<int>(std::max<std::int64_t>(1, (most + cap - 1) / cap));
  }

  std::vector<BodyBlock> blocks;
  std::vector<Pass> passes;

 private:
  int& number(Lane lane, std::size_t stage) {
    return number_[(lane == Lane::Forward ? 0 : number_.size() / 2) + stage];
  }

  void add(PassKind kind, int s) {
    const Pass pass{kind, static_cast<std::uint16_t>(s), 0};
    const std::size_t stage = pass.virtual_stage;
    const bool forward = kind == PassKind::Forward;
    bool ready = number(lane_of(kind), stage) < 0 && (forward || number(Lane::Forward, stage) >= 0);
    BodyBlock block;
    if (!forward) {
      block.after.push_back({number(Lane::Forward, stage), 0});
    }
    inputs_.for_each(pass, [&](const PassInput& input) {
      const int before = number(input.lane, input.virtual_stage);
      const bool crosses = order_.device_of[input.virtual_stage] != order_.device_of[stage];
      const std::size_t sender = std::min<std::size_t>(input.virtual_stage, stage);
      ready = ready && before >= 0;
      block.after.push_back(
          {before, crosses ? static_cast<int>(units(params_.times_of(sender).send.ps)) : 0});
    });
    if (!ready) {
      return;
    }
    const PassTimes& times = params_.times_of(stage);
    const SimTime time = forward ? times.forward : times.backward();
    block.devices = {order_.device_of[stage]};
    block.time = static_cast<int>(std::max<std::int64_t>(1, units(time.ps)));
    if (inputs_.role(stage) == Role::Layers) {
      block.memory = (forward ? 1 : -1) * params_.activation_of(stage);
    }
    number(lane_of(kind), stage) = static_cast<int>(blocks.size());
    blocks.push_back(std::move(block));
    passes.push_back(pass);
  }

  std::int64_t units(std::int64_t time) {
    if (longest_ == 0) {
      longest_ = 1;
      for (std::size_t s = 0; s < number_.size() / 2; ++s) {
        const PassTimes& times = params_.times_of(s);
        longest_ = std::max({longest_, times.forward.ps, times.backward().ps, times.send.ps});
      }
    }
    // Of long times too: no product may leave the range.
    return static_cast<std::int64_t>(static_cast<double>(time) / static_cast<double>(longest_) *
                                         static_cast<double>(kUnits) +
                                     0.5);
  }

  // Divides all times by what they have in common.
  void shorten() {
    int common = 0;
    for (const BodyBlock& block : blocks) {
      common = std::gcd(common, block.time);
      for (const BodyBlock::After& after : block.after) {
        common = std::gcd(common, after.delay);
      }
    }
    for (BodyBlock& block : blocks) {
      block.time /= common;
      for (BodyBlock::After& after : block.after) {
        after.delay /= common;
      }
    }
  }

  const PipelineOrder& order_;
  const ScheduleParams& params_;
  PassInputs inputs_;
  std::vector<int> number_;  // of the block of each forward and backward; negative: none yet
  std::int64_t longest_ = 0;
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
  PeriodicBody body;
  body.load_bound = *std::max_element(load.begin(), load.end());
  bool exhausted = false;  // by the period that was tried last
  const auto solves = [&](int period) {
    for (const bool tight_first : {true, false}) {
      Search search(blocks, devices, period, limits, tight_first);
      if (search.solve()) {
        body.starts = search.take();
        body.period = period;
        return true;
      }
      exhausted = search.exhausted();
      if (!exhausted) {
        break;
      }
    }
    return false;
  };
  int stride = 1;
  int longest_failed = 0;
  for (int period = std::max(body.load_bound, limits.least); period < total;) {
    if (solves(period)) {
      break;
    }
    stride *= exhausted ? 2 : 1;
    const int more = limits.coarse > 0 ? std::max(1, period / limits.coarse) : stride;
    body.proven = body.proven && !exhausted && more == 1;
    longest_failed = period;
    period += more;
  }
  if (body.starts.empty()) {
    return one_after_the_other(blocks, devices, limits.cap, std::move(body));
  }
  while (stride > 1 && limits.coarse == 0 && longest_failed + 1 < body.period) {
    const int between = longest_failed + (body.period - longest_failed) / 2;
    longest_failed = solves(between) ? longest_failed : between;
  }
  return body;
}

PipelineOrder repeat_shortest_body(PipelineOrder order, const ScheduleParams& params,
                                   std::int64_t cap) {
  const Blocks of(order, params);
  const auto devices = static_cast<int>(order.passes.size());
  const auto body = shortest_body(of.blocks, devices,
                                  {.in_flight = 2 * devices,
                                   .cap = cap,
                                   .steps = kSteps,
                                   .coarse = kCoarse,
                                   .least = of.least_period(devices, cap)});
  ORRERY_CHECK(body.has_value(), "one micro-batch after the other fits the cap");
  std::vector<std::size_t> by_slot(of.blocks.size());
  std::iota(by_slot.begin(), by_slot.end(), std::size_t{0});
  std::stable_sort(by_slot.begin(), by_slot.end(), [&](std::size_t a, std::size_t b) {
    return body->starts[a] % body->period < body->starts[b] % body->period;
  });
  const int last = *std::max_element(body->starts.begin(), body->starts.end()) / body->period;
  for (int round = 0; round < order.micro_batches + last; ++round) {
    for (const std::size_t b : by_slot) {
      const int unit = round - body->starts[b] / body->period;
      if (unit >= 0 && unit < order.micro_batches) {
        add_pass(order, of.passes[b].kind, of.passes[b].virtual_stage, unit);
      }
    }
  }
  return order;
}

}  // namespace orrery::sim
