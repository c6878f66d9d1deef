// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/validated_pace.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/schedule_traits.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/token_table.hpp"
#include "plan/stage/transfers.hpp"
#include "sim/orders/post_validation.hpp"
#include "sim/pipeline/unit_times.hpp"
#include "sim/pipeline/versions.hpp"

namespace orrery::plan {

namespace {

constexpr int kIterations = 4;            // the mean of three periods
constexpr ByteCount kStateOfNorm{2 * 4};  // sum of squares and whether all are finite

// The rest of a device's gradient reductions after its last backward.
SimTime reduction_tail(const Plan& plan, const std::vector<StageCost>& stages,
                       const std::vector<std::uint16_t>& device_of, int device) {
  SimTime tail;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (device_of[stage] == device) {
      const SimTime one = stages[stage].reduce_tail;
      tail = plan.execution.overlap_grad_reduce ? std::max(tail, one) : tail + one;
    }
  }
  return tail;
}

// The stages at both ends, where their devices share a table; none where they do not.
std::vector<int> stages_with_table(const Plan& plan, const sim::PipelineOrder& order) {
  return may_sum_tables(plan, order.device_of)
             ? std::vector<int>{0, static_cast<int>(order.device_of.size()) - 1}
             : std::vector<int>{};
}

// The sum of their gradients, on a service of its own, sends nothing.
void add_table_sum(const Plan& plan, const std::vector<std::uint16_t>& device_of, BlockCosts& costs,
                   sim::PipelineCosts& passes) {
  const std::vector<int> devices = devices_with_table(plan, device_of, stage_contents(plan));
  passes.forward.push_back(to_sim_time(tied_embedding_time(plan, devices, costs)));
  passes.send_forward.push_back({});
  passes.send_backward.push_back({});
}

}  // namespace

bool can_validate_afterwards(const Plan& plan) {
  sim::ScheduleParams several = schedule_params(plan);
  several.iterations = kIterations;
  return plan.pp > 1 && updates_on_device(plan) && schedule_traits(plan).synchronous &&
         check_schedule(plan, several).empty() && !layers_use_table(plan.network);
}

bool validates_afterwards(const Plan& plan) {
  return plan.execution.post_validation && can_validate_afterwards(plan);
}

ValidatedRun run_validated(const Plan& plan, const sim::PipelineOrder& order,
                           const std::vector<StageCost>& stages, sim::PipelineCosts passes,
                           BlockCosts& costs) {
  sim::ScheduleParams params = schedule_params(plan);
  params.iterations = kIterations;
  const std::vector<int> shared = stages_with_table(plan, order);
  sim::PipelineOrder all = sim::with_post_validation(order, params, shared);
  const auto virtual_stages = static_cast<std::size_t>(all.num_virtual_stages);
  for (const StageCost& stage : stages) {
    passes.optimizer.push_back(
        to_sim_time(update_time(plan, stage, costs)) +
        (plan.execution.overlap_param_gather ? SimTime{} : stage.gather_total));
  }
  for (int d = 0; d < plan.pp; ++d) {  // the state of the norm leaves a device when it is reduced
    passes.forward.push_back(reduction_tail(plan, stages, order.device_of, d));
  }
  TransferTimes known(costs);
  for (std::vector<SimTime>* sends : {&passes.send_forward, &passes.send_backward}) {
    for (int way = 0; way < 2; ++way) {
      sends->push_back({});  // from the chain before
      for (int d = 0; d + 1 < plan.pp; ++d) {
        sends->push_back(known.of(plan, kStateOfNorm, 1, d, d + 1));
      }
    }
  }
  if (!shared.empty()) {
    passes.forward.resize(virtual_stages - 1);
    add_table_sum(plan, order.device_of, costs, passes);
  }
  for (std::vector<SimTime>* times : {&passes.forward, &passes.input_grad, &passes.weight_grad,
                                      &passes.backward, &passes.optimizer}) {
    times->resize(virtual_stages);
  }
  sim::end_every_iteration(all, passes);
  sim::PipelineResult result =
      sim::evaluate_pipeline(all, passes, {.steady_state = false, .record_spans = true});
  SimTime period{std::llround(sim::iteration_period(all, result))};
  // No pace is faster than the busiest device, whatever the first iterations gain.
  for (const sim::DeviceUse& use : result.devices) {
    period = std::max(period, SimTime{(use.busy.ps + kIterations - 1) / kIterations});
  }
  return {period, std::move(all), std::move(result)};
}

}  // namespace orrery::plan
