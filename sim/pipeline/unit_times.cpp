// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/unit_times.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::sim {
namespace {

void spread(const std::vector<SimTime>& of_stages, int units, std::vector<SimTime>& of_units) {
  if (!of_units.empty()) {
    return;
  }
  for (const SimTime time : of_stages) {
    of_units.insert(of_units.end(), static_cast<std::size_t>(units), time);
  }
}

}  // namespace

void give_units_times(int units, PipelineCosts& costs) {
  spread(costs.forward, units, costs.unit_forward);
  spread(costs.input_grad, units, costs.unit_input_grad);
  spread(costs.weight_grad, units, costs.unit_weight_grad);
  spread(costs.backward, units, costs.unit_backward);
}

void end_every_iteration(const PipelineOrder& order, PipelineCosts& costs) {
  const auto units = static_cast<std::size_t>(order.micro_batches);
  const auto iterations = static_cast<std::uint32_t>(order.iterations);
  const std::uint32_t units_once = static_cast<std::uint32_t>(order.micro_batches) / iterations;
  give_units_times(order.micro_batches, costs);
  const std::size_t stages = costs.first_forward_extra.size();
  for (const std::vector<Pass>& list : order.passes) {
    std::vector<std::uint32_t> begun(stages, 0);                  // iterations, by stage
    std::vector<const Pass*> last(stages * iterations, nullptr);  // of final gradients
    for (const Pass& pass : list) {
      const std::size_t s = pass.virtual_stage;
      const std::uint32_t iteration = pass.micro_batch / units_once;
      if (s >= stages || pass.kind == PassKind::Optimizer) {
        continue;
      }
      if (pass.kind == PassKind::Forward && begun[s] == iteration) {
        ++begun[s];
        costs.unit_forward[s * units + pass.micro_batch] += costs.first_forward_extra[s];
      }
      if (pass.kind == PassKind::Backward || pass.kind == PassKind::WeightGrad) {
        last[s * iterations + iteration] = &pass;
      }
    }
    for (const Pass* pass : last) {
      if (pass != nullptr) {
        const bool whole = pass->kind == PassKind::Backward;
        (whole ? costs.unit_backward
               : costs.unit_weight_grad)[pass->virtual_stage * units + pass->micro_batch] +=
            costs.last_backward_extra[pass->virtual_stage];
      }
    }
  }
  costs.first_forward_extra.clear();
  costs.last_backward_extra.clear();
}

}  // namespace orrery::sim
