// SPDX-License-Identifier: Apache-2.0
// The passes of a pipeline as blocks of a repeating body, and the order that repeats it.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/periodic_body.hpp"
#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::sim {
namespace {

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
