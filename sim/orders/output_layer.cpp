// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/output_layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "sim/orders/input_layer.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/output_insertion.hpp"
#include "sim/orders/policy.hpp"
#include "sim/orders/v_pattern.hpp"

namespace orrery::sim {

PipelineOrder output_layer_skeleton(const PipelineOrder& base, int barriers) {
  const auto devices = static_cast<int>(base.passes.size());
  PipelineOrder order = bare_order(devices, pieces_of(base));
  order.num_virtual_stages = base.num_virtual_stages;
  order.device_of = base.device_of;
  order.micro_batches = base.micro_batches;
  order.slices = base.slices;
  const int shards = base.num_virtual_stages;  // virtual stage of the first shard
  const auto last = static_cast<std::uint16_t>(shards - 1);
  order.parts.assign(static_cast<std::size_t>(shards), devices);
  order.parts.resize(static_cast<std::size_t>(shards + devices), order.pieces / base.slices);
  order.parts_per_share = devices * order.pieces;
  order.chains = chains_of(base);
  for (int d = 0; d < devices; ++d) {
    add_chain(order, {static_cast<std::uint16_t>(d)},
              {.units = base.micro_batches, .role = Role::Output});
  }
  for (int d = 0; d < devices; ++d) {
    const auto shard = static_cast<std::uint16_t>(shards + d);
    order.edges.push_back({Lane::Forward, last, Lane::Forward, shard});
    order.edges.push_back(
        {barriers == 1 ? Lane::Forward : Lane::Gradient, shard, Lane::Gradient, last});
    for (int other = 0; other < devices; ++other) {
      order.edges.push_back(
          {Lane::Forward, static_cast<std::uint16_t>(shards + other), Lane::Gradient, shard});
    }
  }
  return order;
}

PipelineOrder with_vocabulary(const PipelineOrder& base, const ScheduleParams& params,
                              int barriers) {
  ScheduleParams of_output = params;
  const std::size_t shards = base.device_of.size() + base.passes.size();
  of_output.times.resize(std::min(params.times.size(), shards));
  PipelineOrder order = insert_output_layer(base, of_output, barriers);
  for (std::size_t d = 0; d < base.passes.size(); ++d) {
    ORRERY_CHECK(order.passes[d].size() ==
                     base.passes[d].size() + 2 * static_cast<std::size_t>(base.micro_batches),
                 "the output layer's barriers deadlock with the base order");
  }
  return with_input_layer(std::move(order), PassKind::Forward);
}

namespace {

// The slots of a plain order's passes, each one slot long.
class Slots {
 public:
  explicit Slots(const PipelineOrder& order)
      : order_(order),
        units_(static_cast<std::size_t>(order.micro_batches)),
        last_(static_cast<std::size_t>(order.num_virtual_stages) - 1),
        starts_(order.passes.size()),
        ends_(2 * (last_ + 1) * units_, 0) {
    std::size_t left = 0;
    for (std::size_t d = 0; d < starts_.size(); ++d) {
      starts_[d].reserve(order.passes[d].size());
      left += order.passes[d].size();
    }
    while (left > 0) {
      const std::size_t before = left;
      for (std::size_t d = 0; d < starts_.size(); ++d) {
        left -= run(d);
      }
      ORRERY_CHECK(left < before, "the base order deadlocks");
    }
  }
  int start(std::size_t device, std::size_t position) const { return starts_[device][position]; }
  // After the last forward of a unit.
  int end_of_forwards(std::size_t unit) const { return ends_[last_ * units_ + unit]; }

 private:
  // The passes of a device that are no longer waited for; how many.
  std::size_t run(std::size_t device) {
    const std::vector<Pass>& list = order_.passes[device];
    std::vector<int>& starts = starts_[device];
    const std::size_t begun = starts.size();
    for (int free = begun > 0 ? starts.back() + 1 : 0; starts.size() < list.size(); ++free) {
      const Pass& pass = list[starts.size()];
      if (pass.kind != PassKind::WeightGrad) {
        const bool forward = pass.kind == PassKind::Forward;
        int* const gradients = &ends_[(last_ + 1) * units_];
        int* const end =
            (forward ? ends_.data() : gradients) + pass.virtual_stage * units_ + pass.micro_batch;
        const bool first = forward && pass.virtual_stage == 0;
        const int arrives = first                         ? 0
                            : forward                     ? *(end - units_)
                            : pass.virtual_stage == last_ ? end_of_forwards(pass.micro_batch)
                                                          : *(end + units_);
        if (!first && arrives == 0) {
          break;
        }
        free = std::max(free, arrives);
        *end = free + 1;
      }
      starts.push_back(free);
    }
    return starts.size() - begun;
  }

  const PipelineOrder& order_;
  std::size_t units_;
  std::size_t last_;
  std::vector<std::vector<int>> starts_;
  std::vector<int> ends_;  // of forwards and gradients by virtual stage and unit; 0: not yet known
};

}  // namespace

PipelineOrder with_interlaced_vocabulary(const PipelineOrder& base) {
  const Slots slots(base);
  const auto units = static_cast<std::uint32_t>(base.micro_batches);
  PipelineOrder order = output_layer_skeleton(base, 2);
  for (std::size_t d = 0; d < base.passes.size(); ++d) {
    const auto shard = static_cast<std::uint16_t>(base.device_of.size() + d);
    std::vector<Pass>& list = order.passes[d];
    list.reserve(base.passes[d].size() + 2 * std::size_t{units});
    std::uint32_t met = 0;
    for (std::size_t at = 0; at < base.passes[d].size(); ++at) {
      for (; met < units && slots.start(d, at) >= slots.end_of_forwards(met); ++met) {
        list.emplace_back(PassKind::Forward, shard, met);
        list.emplace_back(PassKind::Backward, shard, met);
      }
      list.push_back(base.passes[d][at]);
    }
  }
  return with_input_layer(std::move(order), PassKind::Backward);
}

PipelineOrder vocabulary_base(const ScheduleParams& params, int extra) {
  if (params.chunks == 2) {
    return v_pattern(params, v_half_blocks(params.stages, extra), true);
  }
  PipelineOrder order = empty_order(params, loop_placement(params), 2);
  for (int i = 0; i < params.stages; ++i) {
    const auto pass = [i](PassKind kind, int k) {
      return Pass{kind, static_cast<std::uint16_t>(i), static_cast<std::uint32_t>(k)};
    };
    append_one_forward_one_backward(
        order.passes[static_cast<std::size_t>(i)], params.micro_batches, params.stages - i + extra,
        [&](int k) { return pass(PassKind::Forward, k); },
        [&](int k) { return pass(PassKind::Backward, k); });
  }
  return order;
}

std::string check_vocabulary(const ScheduleParams& params) {
  const bool known = params.chunks == 1 || params.chunks == 2;
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_looks(params, 1),
       known ? ""
             : fmt::format("one chunk (1f1b) or two (v-half) are required, not {}: set chunks "
                           "to 2",
                           params.chunks)});
}

}  // namespace orrery::sim
