// SPDX-License-Identifier: Apache-2.0
#include "plan/simulate.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "plan/interval.hpp"
#include "plan/live_counts.hpp"
#include "plan/pass_costs.hpp"
#include "plan/simulation_report.hpp"
#include "plan/stage.hpp"
#include "plan/stage_memory.hpp"
#include "plan/step_end.hpp"
#include "plan/transfers.hpp"

namespace orrery::plan {

namespace {

template <typename CostOf>
std::vector<StageCost> stage_costs(const std::vector<StageContent>& contents, CostOf cost_of) {
  std::vector<StageCost> costs;
  for (std::size_t stage = 0; stage < contents.size(); ++stage) {
    const auto same = std::find(contents.begin(), contents.begin() + static_cast<int>(stage),
                                contents[stage]);
    const auto first = static_cast<std::size_t>(same - contents.begin());
    costs.push_back(first < stage ? costs[first] : cost_of(contents[stage]));
  }
  return costs;
}

}  // namespace

struct Simulator::Cache {
  explicit Cache(const Plan& plan) : costs(plan) {}

  // Schedule, stages, micro-batches, chunks; and, of schedules that plan with times, the whole plan.
  using OrderKey = std::tuple<std::string, int, int, int, std::string>;
  static OrderKey key_of(const Plan& plan) {
    const sim::ScheduleParams params = schedule_params(plan);
    const bool timed = sim::find_schedule(plan.schedule, "schedule").uses_times;
    return {plan.schedule, params.stages, params.micro_batches, params.chunks,
            timed ? to_json(plan).dump() : std::string()};
  }

  // The order of passes of the plan; the most recent one is kept.
  const sim::PipelineOrder& order_of(const Plan& plan) {
    OrderKey key = key_of(plan);
    if (key != last_key) {
      last_order = pipeline_order(plan, costs);
      last_key = std::move(key);
    }
    return last_order;
  }

  // Small, so all of them are kept.
  const std::vector<LiveCounts>& live_of(const Plan& plan) {
    const auto [slot, is_new] = live.try_emplace(key_of(plan));
    if (is_new) {
      slot->second = live_counts(order_of(plan));
    }
    return slot->second;
  }

  BlockCosts costs;
  OrderKey last_key;
  sim::PipelineOrder last_order;
  std::map<OrderKey, std::vector<LiveCounts>> live;
};

Simulator::Simulator(const Plan& plan) : cache_(std::make_unique<Cache>(plan)) {
  ORRERY_CHECK(!plan.serving, "serving plans are simulated by simulate_serving");
}
Simulator::~Simulator() = default;
Simulator::Simulator(Simulator&&) noexcept = default;

namespace {

struct Evaluation {
  std::vector<StageCost> stages;
  std::vector<SimTime> sends;
  sim::PipelineResult pipeline;
  StepEnd end;
};

bool splits_backward(const sim::PipelineOrder& order) {
  const std::vector<sim::Pass>& list = order.passes.front();
  return std::any_of(list.begin(), list.end(), [](const sim::Pass& pass) {
    return pass.kind == sim::PassKind::InputGrad;
  });
}

Evaluation evaluate(const Plan& plan, const sim::PipelineOrder& order, bool record_spans,
                    BlockCosts& costs) {
  Evaluation run;
  const std::vector<StageContent> contents = stage_contents(plan);
  run.stages = stage_costs(contents, [&](const StageContent& content) {
    return simulate_stage(content, plan, costs);
  });
  run.sends = transfers(plan, costs, run.stages, order.device_of);
  sim::PipelineOptions options;
  options.record_spans = record_spans;
  options.steady_state = !record_spans;
  std::vector<SimTime> weight_grads;
  if (splits_backward(order)) {
    for (std::size_t stage = 0; stage < contents.size(); ++stage) {
      weight_grads.push_back(weight_grad_time(contents[stage], plan, costs, run.stages[stage]));
    }
  }
  sim::PipelineCosts passes = pipeline_costs(plan, run.stages, run.sends, weight_grads);
  add_edge_latencies(plan, order, run.stages, costs, passes);
  run.pipeline = sim::evaluate_pipeline(order, passes, options);
  run.end = close_step(plan, run.stages, order.device_of, run.pipeline, costs);
  return run;
}

}  // namespace

Simulation Simulator::run(const Plan& plan, const SimulateOptions& options) {
  const std::vector<LiveCounts>& live = cache_->live_of(plan);
  const sim::PipelineOrder& order = cache_->order_of(plan);
  Evaluation run = evaluate(plan, order, options.record_spans, cache_->costs);
  Simulation result;
  result.pipeline = std::move(run.pipeline);
  result.memory = stage_memory(plan, run.stages, live);
  const MemoryVerdict verdict = memory_verdict(plan, result.memory);
  if (!verdict.fits) {
    result.does_not_fit = verdict.text;
  }
  fill_report(plan, run.stages, run.sends, order.device_of, run.end, cache_->costs, result);
  fill_interval(plan, options.interval_draws, result);
  return result;
}

void Simulator::fill_interval(const Plan& plan, int draws, Simulation& result) {
  result.interval_low = result.iteration_time;
  result.interval_high = result.iteration_time;
  if (draws == 0) {
    return;
  }
  const sim::PipelineOrder& order = cache_->order_of(plan);
  BlockCosts costs(plan);
  const TimeInterval interval = sampled_interval(
      plan.profile.spread, result.iteration_time, draws, [&](const CostFactors& factors) {
        costs.set_factors(factors);
        return to_seconds(evaluate(plan, order, false, costs).end.iteration);
      });
  result.interval_low = interval.low;
  result.interval_high = interval.high;
}

std::vector<StageMemory> Simulator::memory(const Plan& plan) {
  const std::vector<StageCost> stages =
      stage_costs(stage_contents(plan), [&](const StageContent& content) {
        return add_up_stage(content, plan, cache_->costs);
      });
  return stage_memory(plan, stages, cache_->live_of(plan));
}

Seconds Simulator::lower_bound(const Plan& plan) {
  BlockCosts& costs = cache_->costs;
  const std::vector<StageCost> stages =
      stage_costs(stage_contents(plan), [&](const StageContent& content) {
        return add_up_stage(content, plan, costs);
      });
  const bool loops = sim::find_schedule(plan.schedule, "schedule").in_search;
  std::vector<std::uint16_t> device_of;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    device_of.push_back(static_cast<std::uint16_t>(stage % static_cast<std::size_t>(plan.pp)));
  }
  if (!loops) {
    device_of = cache_->order_of(plan).device_of;
  }
  const sim::PipelineCosts passes =
      pipeline_costs(plan, stages, transfers(plan, costs, stages, device_of), {});
  std::vector<SimTime> busy(static_cast<std::size_t>(plan.pp));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    busy[device_of[stage]] +=
        (passes.forward[stage] + passes.backward[stage]) * plan.num_micro_batches();
  }
  // A device starts after one micro-batch came through the stages before it, runs all its passes,
  // and after its last backward the stages before it still have theirs to do (where chunks lie in
  // loops and gradients wait for whole backwards).
  SimTime bound;
  SimTime head;
  for (std::size_t device = 0; device < busy.size(); ++device) {
    bound = std::max(bound, head + busy[device]);
    if (!loops) {
      continue;
    }
    head += passes.forward[device] + passes.backward[device];
    if (device < passes.send_forward.size()) {
      head += passes.send_forward[device] + passes.send_backward[device];
    }
  }
  return to_seconds(bound) + optimizer_time(plan, stages, device_of, costs);
}

MemoryVerdict Simulator::fits(const Plan& plan) { return memory_verdict(plan, memory(plan)); }

Seconds Simulator::work_bound(const Plan& plan) {
  // The busiest of pp devices does at least the mean.
  SimTime work;
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const BlockPlan& layout = plan.layout_of(static_cast<int>(position));
    const BlockCost& block = cache_->costs.of(plan.network.chain[position], layout,
                                              plan.micro_batch_of(layout));
    work += block.forward.time + block.backward.time;
  }
  const double share = static_cast<double>(plan.num_micro_batches()) / plan.pp;
  return to_seconds(work) * (share * (1.0 - 1e-12));  // rounding must not pass the time itself
}

Simulation simulate(const Plan& plan, const SimulateOptions& options) {
  return Simulator(plan).run(plan, options);
}

}  // namespace orrery::plan
