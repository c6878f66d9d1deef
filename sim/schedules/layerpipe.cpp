// SPDX-License-Identifier: Apache-2.0
// Delayed gradients let any point of the loop F_0 .. F_n, B_n W_n .. B_0 W_0 over the layers be a
// boundary: device k runs the k-th of p arcs of it with the least largest load, all of one
// minibatch after the other, or runs of whole layers where the largest of these is smaller. No
// flush; the period is the largest load. A layer whose weight gradient lies k arcs behind its
// forward has staleness k. Chunks are layers per device.
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/orders/asynchronous.hpp"
#include "sim/orders/layer_arcs.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.stages =
      static_cast<int>(std::min<std::int64_t>(std::int64_t{params.stages} * params.chunks, 65'535));
  all.chunks = 1;
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_own_warm_up(params),
                       check_asynchronous(all, 1)});
}

PipelineOrder order(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.micro_batches *= iterations_of(params);
  const int layers = params.stages * params.chunks;
  LayerArcs arcs = layer_arcs(params);
  const std::vector<int> ahead = arcs.ahead;
  PipelineOrder result = empty_order(all, std::move(arcs.forwards), 4);
  split_placement(result, std::move(arcs.gradients), std::move(arcs.weight_grads));
  result.extended = true;
  result.pieces = params.chunks;
  result.iterations = iterations_of(params);
  result.versions = Versions::Stashed;
  int most_ahead = 0;
  for (int l = 0; l < layers; ++l) {
    const auto layer = static_cast<std::uint16_t>(l);
    const std::uint16_t begins = result.device_of[layer];
    const int lag = result.weight_grad_device_of[layer] - begins + ahead[layer];
    add_edge(result, Lane::Optimizer, l, Lane::Forward, l, lag + 1);
    result.holds.push_back({begins, layer, Lane::Forward, layer, Lane::WeightGrad, layer});
    most_ahead = std::max(most_ahead, ahead[layer]);
  }
  for (int step = 0; step < all.micro_batches + most_ahead; ++step) {
    for (int l = 0; l < layers && step < all.micro_batches; ++l) {
      add_pass(result, PassKind::Forward, l, step);
    }
    for (int l = layers - 1; l >= 0; --l) {
      const int unit = step - ahead[static_cast<std::size_t>(l)];
      for (const PassKind kind : {PassKind::InputGrad, PassKind::WeightGrad, PassKind::Optimizer}) {
        if (unit >= 0 && unit < all.micro_batches) {
          add_pass(result, kind, l, unit);
        }
      }
    }
  }
  return result;
}

// At most all layers x minibatches between a forward and its weight gradient (2 p - 1 where layers
// are whole), in layers per device.
double most(const ScheduleParams& params) { return params.stages * (2.0 * params.stages - 1); }

}  // namespace

extern const Schedule schedule_layerpipe = {
    .name = "layerpipe",
    .description = "no flush; arcs of the loop of forward, gradient and weight gradient tasks",
    .constraints = "asynchronous; chunks are layers per device",
    .source = "Unnikrishnan and Parhi, LayerPipe, ICCAD 2021 (arXiv 2108.06629), section III",
    .traits = {.synchronous = false,
               .splits_backward = true,
               .cuts_every_backward = true,
               .uses_chunks = true,
               .uses_times = true,
               .runs_arcs = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .own_with_one_chunk = true,
    .in_plans = true,
};

}  // namespace orrery::sim
