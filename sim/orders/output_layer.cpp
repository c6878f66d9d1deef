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
#include "sim/pipeline/share_costs.hpp"

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

PipelineOrder with_interlaced_vocabulary(const PipelineOrder& base) {
  const auto units = static_cast<std::uint32_t>(base.micro_batches);
  const auto ends = pass_ends(base, stage_costs(base, ScheduleParams{}));
  const std::size_t last = base.device_of.size() - 1;
  const std::vector<Pass>& of_last = base.passes[base.device_of[last]];
  std::vector<SimTime> forward_ends;  // of the last stage, by micro-batch
  for (std::size_t at = 0; at < of_last.size(); ++at) {
    if (of_last[at].virtual_stage == last && of_last[at].kind == PassKind::Forward) {
      forward_ends.push_back(ends[base.device_of[last]][at]);
    }
  }
  PipelineOrder order = output_layer_skeleton(base, 2);
  for (std::size_t d = 0; d < ends.size(); ++d) {
    const auto shard = static_cast<std::uint16_t>(base.device_of.size() + d);
    std::vector<Pass>& list = order.passes[d];
    list.reserve(ends[d].size() + 2 * std::size_t{units});
    std::uint32_t met = 0;
    for (std::size_t at = 0; at < ends[d].size(); ++at) {
      // All passes are of one length: those that end later start no earlier than that one ends.
      for (; met < units && ends[d][at] > forward_ends[met]; ++met) {
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

Refusal check_vocabulary(const ScheduleParams& params) {
  const bool known = params.chunks == 1 || params.chunks == 2;
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_looks(params, 1),
       params.chunks == 2 ? check_pattern_slots(params, 1) : Refusal(),
       known ? Refusal()
             : refused(fmt::format("one chunk (1f1b) or two (v-half) are required, not {}",
                                   params.chunks),
                       Size::Chunks, 2)});
}

}  // namespace orrery::sim
