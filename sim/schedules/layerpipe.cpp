// SPDX-License-Identifier: Apache-2.0
// Delayed gradients let any point of the loop F_0 .. F_n, B_n W_n .. B_0 W_0 over the layers be a
// boundary: device k runs the k-th of p arcs of it with the least largest load, all of one
// minibatch after the other. No flush; the period is the largest load. A layer whose weight
// gradient lies k arcs behind its forward has staleness k. Chunks are layers per device.
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/orders/asynchronous.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

std::string check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.stages =
      static_cast<int>(std::min<std::int64_t>(std::int64_t{params.stages} * params.chunks, 65'535));
  all.chunks = 1;
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_own_warm_up(params),
                       check_asynchronous(all, 1)});
}

// Devices of the arcs' tasks: forwards by layer, then gradient and weight gradient from the last
// layer to the first.
std::vector<std::uint16_t> arcs_of(const ScheduleParams& params, std::size_t layers) {
  std::vector<std::int64_t> loads;
  for (std::size_t l = 0; l < layers; ++l) {
    loads.push_back(params.times_of(l).forward.ps);
  }
  for (std::size_t l = layers; l-- > 0;) {
    loads.push_back(params.times_of(l).input_grad.ps);
    loads.push_back(params.times_of(l).weight_grad.ps);
  }
  return least_largest_runs(loads, params.stages);
}

PipelineOrder order(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.micro_batches *= iterations_of(params);
  const auto layers = static_cast<std::size_t>(params.stages * params.chunks);
  const std::vector<std::uint16_t> arc_of = arcs_of(params, layers);
  std::vector<std::uint16_t> forwards = arc_of;
  forwards.resize(layers);
  PipelineOrder result = empty_order(all, std::move(forwards), 4);
  std::vector<std::uint16_t> gradients(layers);
  std::vector<std::uint16_t> weight_grads(layers);
  for (std::size_t l = 0; l < layers; ++l) {
    gradients[l] = arc_of[layers + 2 * (layers - 1 - l)];
    weight_grads[l] = arc_of[layers + 2 * (layers - 1 - l) + 1];
  }
  split_placement(result, std::move(gradients), std::move(weight_grads));
  result.extended = true;
  result.pieces = params.chunks;
  result.iterations = iterations_of(params);
  result.versions = Versions::Stashed;
  const int last = static_cast<int>(layers) - 1;
  for (int l = 0; l <= last; ++l) {
    const auto layer = static_cast<std::uint16_t>(l);
    const std::uint16_t begins = result.device_of[layer];
    const int arcs = result.weight_grad_device_of[layer] - begins;
    add_edge(result, Lane::Optimizer, l, Lane::Forward, l, arcs + 1);
    result.holds.push_back({begins, layer, Lane::Forward, layer, Lane::WeightGrad, layer});
  }
  for (int unit = 0; unit < all.micro_batches; ++unit) {
    for (int l = 0; l <= last; ++l) {
      add_pass(result, PassKind::Forward, l, unit);
    }
    for (int l = last; l >= 0; --l) {
      add_pass(result, PassKind::InputGrad, l, unit);
      add_pass(result, PassKind::WeightGrad, l, unit);
      add_pass(result, PassKind::Optimizer, l, unit);
    }
  }
  return result;
}

// Layers of a device x minibatches that are between its arc and the last one, in layers per device.
double most(const ScheduleParams& params) { return params.stages * params.stages; }

}  // namespace

extern const Schedule schedule_layerpipe = {
    .name = "layerpipe",
    .description = "no flush; arcs of the loop of forward, gradient and weight gradient tasks",
    .constraints = "asynchronous; chunks are layers per device",
    .source = "Unnikrishnan and Parhi, LayerPipe, ICCAD 2021 (arXiv 2108.06629), section III",
    .splits_backward = true,
    .uses_chunks = true,
    .synchronous = false,
    .check = check,
    .order = order,
    .most_activations = most,
    .uses_times = true,
    .cuts_every_backward = true,
    .own_with_one_chunk = true,
    .runs_arcs = true,
    .in_plans = true,
};

}  // namespace orrery::sim
