// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/input_layer.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

// By cycle, which begins with a pass S, the passes that follow its S or T, and those that come too
// late for one. The forwards of the first units, before the second S, have no cycle either:
// `early`.
struct InputPasses {
  int early = 0;
  std::vector<std::vector<Pass>> after;
  std::vector<Pass> late;
};

// The order on the first stage's device decides for all.
InputPasses input_passes(const PipelineOrder& order, std::uint16_t shard) {
  InputPasses passes;
  passes.after.resize(static_cast<std::size_t>(order.micro_batches));
  std::size_t begun = 0;  // cycles
  for (const Pass& pass : order.passes[order.device_of.front()]) {
    const bool forward = pass.kind == PassKind::Forward;
    if (pass.virtual_stage == shard && forward) {
      ++begun;
    } else if (pass.virtual_stage == 0 && forward) {
      if (begun < 2) {
        ++passes.early;
      } else {
        passes.after[begun - 2].emplace_back(PassKind::Forward, 0, pass.micro_batch);
      }
    } else if (pass.virtual_stage == 0 && lane_of(pass.kind) == Lane::Gradient) {
      auto& list = begun + 1 < passes.after.size() ? passes.after[begun + 1] : passes.late;
      list.emplace_back(PassKind::Backward, 0, pass.micro_batch);
    }
  }
  return passes;
}

class ListWithInput {
 public:
  // `late_after`: the virtual stage whose gradients are followed by one late pass each, of a unit
  // whose gradient it sent on `trip` backwards ago or earlier.
  ListWithInput(const InputPasses& passes, PassKind after, std::uint16_t stage,
                std::optional<std::uint16_t> late_after, std::uint32_t trip)
      : passes_(passes), after_(after), stage_(stage), late_after_(late_after), trip_(trip) {}

  // Puts them into a list; `before` is memory for what it was.
  void insert_into(std::vector<Pass>& list, std::vector<Pass>& before, std::uint16_t device,
                   std::uint16_t shard) {
    before.assign(list.begin(), list.end());
    list.resize(before.size() + 2 * passes_.after.size());
    next_ = list.data();
    for (const Pass& pass : before) {
      if (early_ < passes_.early && pass.kind == PassKind::Forward) {
        run_early(pass.virtual_stage == device  ? static_cast<int>(pass.micro_batch) + device + 2
                  : pass.virtual_stage == shard ? passes_.early
                                                : 0);
      }
      *next_++ = pass;
      if (pass.virtual_stage == shard && pass.kind == after_) {
        run(passes_.after[pass.micro_batch]);
        drains_ = pass.micro_batch + std::size_t{1} == passes_.after.size();
      } else if (drains_ && pass.virtual_stage == late_after_ &&
                 lane_of(pass.kind) == Lane::Gradient) {
        run_late(pass.micro_batch);
      }
    }
    run({passes_.late.begin() + late_, passes_.late.end()});
    list.resize(static_cast<std::size_t>(next_ - list.data()));
  }

 private:
  // The first units, up to so many.
  void run_early(int units) {
    for (; early_ < std::min(units, passes_.early); ++early_) {
      *next_++ = Pass(PassKind::Forward, stage_, static_cast<std::uint32_t>(early_));
    }
  }
  // The next late unit, if its gradient has left this device: all that it waits for is then before
  // it.
  void run_late(std::uint32_t unit) {
    const auto next = passes_.late.begin() + late_;
    if (next != passes_.late.end() && next->micro_batch + trip_ <= unit) {
      run({next, next + 1});
      ++late_;
    }
  }
  void run(const std::vector<Pass>& passes) {
    for (Pass pass : passes) {
      pass.virtual_stage = stage_;
      *next_++ = pass;
    }
  }

  const InputPasses& passes_;
  PassKind after_;
  std::uint16_t stage_;
  std::optional<std::uint16_t> late_after_;
  std::uint32_t trip_;
  bool drains_ = false;  // after the last S or T
  std::ptrdiff_t late_ = 0;
  int early_ = 0;
  Pass* next_ = nullptr;  // in the list
};

}  // namespace

PipelineOrder with_input_layer(PipelineOrder order, PassKind after) {
  const auto devices = static_cast<int>(order.passes.size());
  const int first = order.num_virtual_stages;
  const auto output = static_cast<std::uint16_t>(first - devices);
  const InputPasses passes = input_passes(order, output);
  order.parts.resize(static_cast<std::size_t>(first + devices), 0);
  const bool one_stage_each = first == 2 * devices && order.slices == 1;
  // Of many micro-batches the late ones begin far behind the first stage's gradient; of few each
  // one would stop its device until the gradient has come through all stages before it.
  const bool are_few = order.micro_batches < 2 * devices;
  std::vector<Pass> before;
  for (int d = 0; d < devices; ++d) {
    const auto device = static_cast<std::uint16_t>(d);
    const auto stage = static_cast<std::uint16_t>(
        add_chain(order, {device}, {.units = order.micro_batches, .role = Role::Input}));
    order.edges.push_back({Lane::Forward, stage, Lane::Forward, 0});
    order.edges.push_back({Lane::Gradient, 0, Lane::Gradient, stage});
    ListWithInput(passes, after, stage, one_stage_each ? std::optional(device) : std::nullopt,
                  are_few ? device : 0U)
        .insert_into(order.passes[device], before, device, static_cast<std::uint16_t>(output + d));
  }
  return order;
}

}  // namespace orrery::sim
