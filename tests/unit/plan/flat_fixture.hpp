// SPDX-License-Identifier: Apache-2.0
// How far the flat mode may be from the hierarchical simulation, and why.
// - Where nothing outside a block competes with it: rounding, at most a picosecond a node.
// - Where data-parallel traffic runs beside blocks, the hierarchy slows whole blocks, their exposed
//   collectives included, and one chunk's traffic does not reach the passes of another: what
//   sharing costs a transfer in either view, its demand beside a kernel times its length.
// - ZeRO-2 and 3 reduce and gather in every pass. The hierarchy begins and ends each pass with an
//   idle data stream; the flat mode may hide beside other passes what a pass exposes.
// - A backward cut in two reduces gradients beside its weight-gradient part alone, from where flat
// mode
//   has them; the hierarchy hides them under the whole of it: at most all of them are late.
// - Gathers after the optimizer: the hierarchy adds the longest of all devices to the longest
//   optimizer of all devices, which may be another's.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/block/states.hpp"
#include "plan/flat/flat.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

struct FlatBound {
  Seconds above;  // flat later than hierarchical
  Seconds below;
};

inline FlatBound flat_bound(const Plan& plan, std::size_t num_nodes) {
  BlockCosts costs(plan);
  Seconds traffic;  // of one micro-batch on all devices
  Seconds exposed;
  Seconds reductions;  // of one micro-batch on all devices
  std::vector<SimTime> gathers(static_cast<std::size_t>(plan.pp));  // per device
  std::size_t stages = 0;
  bool every = false;
  for (const StageContent& content : stage_contents(plan)) {
    const StageCost stage = simulate_stage(content, plan, costs);
    every = every || reduces_every_micro_batch(content);
    traffic += to_seconds(stage.reduce_total + stage.gather_total);
    gathers[stages++ % gathers.size()] += stage.gather_total;
    exposed += stage.exposed_data_forward + stage.exposed_data_backward;
    for (const StagePiece& piece : content) {
      const Mesh mesh = mesh_of(piece.layout, plan.dp);
      reductions += state_traffic(costs.of(piece.block, piece.layout, plan.micro_batch),
                                  piece.layout, mesh, costs, false)
                        .reduce *
                    static_cast<double>(piece.count);
    }
    if (content.front().layout.zero_stage == 3) {
      for (const StagePiece& piece : content) {
        const StateTraffic blocks =
            state_traffic(costs.of(piece.block, piece.layout, plan.micro_batch), piece.layout,
                          mesh_of(piece.layout, plan.dp), costs, false);
        traffic += blocks.gather * (2.0 * piece.count);
      }
    }
  }
  const double passes = every ? static_cast<double>(plan.num_micro_batches()) : 1.0;
  const Seconds rounding(static_cast<double>(num_nodes) * 1e-12);
  const bool beside = plan.execution.overlap_grad_reduce || plan.execution.overlap_param_gather;
  const Seconds sharing =
      beside || every ? traffic * (collective_demand(costs.device()) * passes) : Seconds();
  const Seconds late_reduction =
      schedule_traits(plan).splits_backward && beside ? reductions * passes : Seconds();
  const auto [least, most] = std::minmax_element(gathers.begin(), gathers.end());
  const Seconds late_gather =
      plan.execution.overlap_param_gather ? Seconds() : to_seconds(*most - *least);
  return {rounding + sharing + late_reduction, rounding + sharing + exposed * passes + late_gather};
}

}  // namespace orrery::plan
