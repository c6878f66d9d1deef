// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/simulate.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "plan/modules.hpp"
#include "plan/packs.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/packed_pipeline.hpp"
#include "plan/simulation/packed_step.hpp"
#include "plan/simulation/report.hpp"
#include "plan/simulation/sample_times.hpp"
#include "plan/stage/arcs.hpp"
#include "plan/stage/conversions.hpp"
#include "plan/stage/host_copies.hpp"
#include "plan/stage/joined.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/listed_passes.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/order_cache.hpp"
#include "plan/stage/peaks.hpp"
#include "plan/stage/sliced.hpp"
#include "plan/stage/spread_attention.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/stage_placement.hpp"
#include "plan/stage/steady_pace.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/transfers.hpp"
#include "plan/stage/validated_pace.hpp"

namespace orrery::plan {

struct Simulator::Cache {
  explicit Cache(const Plan& plan) : costs(plan), orders(costs), transfers(costs), packs(costs) {}

  BlockCosts costs;
  OrderCache orders;
  TransferTimes transfers;
  PackCosts packs;
};

Simulator::Simulator(const Plan& plan) : cache_(std::make_unique<Cache>(plan)) {
  if (plan.serving) {
    bad_input("plan", "it serves requests, it does not train", "`orrery simulate` runs such plans");
  }
}
Simulator::~Simulator() = default;
Simulator::Simulator(Simulator&&) noexcept = default;

namespace {

template <typename CostOf>
std::vector<StageCost> stage_costs(const std::vector<StageContent>& contents, CostOf cost_of) {
  std::vector<StageCost> costs;
  for (std::size_t stage = 0; stage < contents.size(); ++stage) {
    const std::size_t first = first_equal(contents, stage);
    costs.push_back(first < stage ? costs[first] : cost_of(contents[stage]));
  }
  return costs;
}

struct Evaluation {
  std::vector<StageCost> stages;  // of whole micro-batches
  SliceCosts slices;              // where they travel in slices
  std::vector<SimTime> sends;
  sim::PipelineResult pipeline;
  StepEnd end;
  sim::PipelineCosts passes;
  std::optional<ValidatedRun> iterations;
  std::optional<SteadyPace> pace;  // of asynchronous schedules
};

std::vector<SplitBackwards::Kept> kept_by_stage(const Plan& plan, const BlockCosts& costs,
                                                SplitBackwards& splits) {
  std::vector<SplitBackwards::Kept> kept;
  for (const StageContent& content : stage_contents(plan, {})) {
    kept.push_back(splits.kept(content, plan, costs));
  }
  return kept;
}

// Passes of all virtual stages as the stages say.
sim::PipelineCosts passes_of(const Plan& plan, const sim::PipelineOrder& order,
                             const std::vector<StageContent>& contents, Evaluation& run,
                             BlockCosts& costs, SplitBackwards& splits) {
  run.sends = transfers(plan, costs, run.stages, devices_of_stages(plan, order));
  if (schedule_traits(plan).recomputes) {
    count_forwards(order, run.stages);
  }
  if (schedule_traits(plan).spreads_attention) {
    return spread_passes(plan, order, run.stages, costs);
  }
  if (!run.slices.empty()) {
    sim::PipelineCosts passes =
        pipeline_costs(plan, costs, first_slices(run.slices), run.sends, {});
    add_unit_times(plan, run.slices, run.sends, passes);
    add_edge_latencies(plan, order, first_slices(run.slices), run.sends, costs, passes);
    return passes;
  }
  std::vector<SplitTimes> cuts;
  if (splits_backward(order)) {
    cuts = splits.times_with_traffic(contents, plan, costs, ends_cut(order), run.stages);
  }
  sim::PipelineCosts passes = pipeline_costs(plan, costs, run.stages, run.sends, cuts);
  if (schedule_traits(plan).runs_arcs) {
    add_arc_transfers(plan, order, run.stages, kept_by_stage(plan, costs, splits), costs, passes);
    return passes;
  }
  add_edge_latencies(plan, order, run.stages, run.sends, costs, passes);
  if (schedule_traits(plan).copies_to_host) {
    add_host_copies(plan, order, run.stages, passes);
  }
  return passes;
}

// What the stages cost, by add_up_stage or simulate_stage.
using CostOfStage = StageCost (*)(const StageContent&, const Plan&, BlockCosts&, const Slice&);
void cost_stages(const Plan& plan, const std::vector<StageContent>& contents, BlockCosts& costs,
                 CostOfStage cost_of, Evaluation& run) {
  if (plan.slices == 1) {
    run.stages = stage_costs(
        contents, [&](const StageContent& content) { return cost_of(content, plan, costs, {}); });
    hand_on(run.stages);
    return;
  }
  run.slices = slice_costs(plan, contents, [&](const StageContent& content, const Slice& slice) {
    return cost_of(content, plan, costs, slice);
  });
  run.stages = together(run.slices);
}

void queue_gathers(const Plan& plan, const sim::PipelineOrder& order, Evaluation& run) {
  queue_gathers(plan, devices_of_stages(plan, order), run.stages);
  for (std::size_t stage = 0; stage < run.slices.size(); ++stage) {
    run.slices[stage].front().gathers_before = run.stages[stage].gathers_before;
  }
}

Evaluation evaluate(const Plan& plan, const sim::PipelineOrder& order, bool record_spans,
                    BlockCosts& costs, SplitBackwards& splits) {
  Evaluation run;
  const std::vector<std::uint16_t> device_of = devices_of_stages(plan, order);
  const std::vector<StageContent> contents = stage_contents(plan, device_of);
  cost_stages(plan, contents, costs, simulate_stage, run);
  if (!run.slices.empty()) {
    add_offload_of_slices(plan, contents, costs, run.slices);
    run.stages = together(run.slices);
  }
  queue_gathers(plan, order, run);
  add_conversions(plan, costs, run.stages);
  sim::PipelineCosts passes = passes_of(plan, order, contents, run, costs, splits);
  sim::PipelineOptions options;
  options.record_spans = record_spans;
  options.steady_state = !record_spans;
  const ScheduleTraits traits = schedule_traits(plan);
  if (traits.synchronous && !traits.lists_updates) {
    run.pipeline = sim::evaluate_pipeline(order, passes, options);
    run.pipeline.devices.resize(static_cast<std::size_t>(plan.pp));  // copy streams go
    if (schedule_traits(plan).spreads_attention) {
      tell_layers(plan, run.pipeline);
    }
    run.end = close_step(plan, contents, run.stages, device_of, run.pipeline, costs);
    run.end.iteration = std::max(run.end.iteration, features_time(plan, costs, run.stages, order));
    if (validates_afterwards(plan)) {
      run.iterations = run_validated(plan, order, run.stages, passes, costs);
      run.end.iteration = run.iterations->period;
    }
  } else {
    run.pace = traits.lists_updates
                   ? run_with_updates(plan, order, run.stages, passes, costs, run.pipeline)
                   : run_without_flush(plan, order, run.stages, passes, costs, run.pipeline);
    run.end = run.pace->end;
  }
  if (record_spans) {
    run.passes = std::move(passes);
  }
  return run;
}

std::vector<SlicePeak> peaks_of(const Plan& plan, const sim::PipelineOrder& order,
                                const SliceCosts& slices) {
  return plan.slices == 1 ? std::vector<SlicePeak>{} : slice_peaks(order, slices);
}

// What devices keep between the two passes of a cut backward; nothing where none is cut.
std::vector<SplitBackwards::Kept> kept_between(const Plan& plan,
                                               const std::vector<LiveCounts>& live,
                                               BlockCosts& costs, SplitBackwards& splits) {
  const bool any =
      std::any_of(live.begin(), live.end(), [](const LiveCounts& l) { return l.splits; });
  return any ? kept_by_stage(plan, costs, splits) : std::vector<SplitBackwards::Kept>{};
}

}  // namespace

Simulation Simulator::run(const Plan& plan, const SimulateOptions& options) {
  if (!plan.packs.empty()) {
    return simulate_packs(plan, options, cache_->packs);
  }
  OrderCache& orders = cache_->orders;
  const std::vector<LiveCounts>& live = orders.live_of(plan);
  const std::vector<int>& versions = orders.versions_of(plan);
  const sim::PipelineOrder& order = orders.order_of(plan);
  Evaluation run = evaluate(plan, order, options.record_spans, cache_->costs, orders.splits());
  Simulation result;
  if (options.record_spans) {
    result.order = order;
    result.passes = std::move(run.passes);
    result.passes.activation = kept_by_units(plan, order, run.stages);
    result.iterations = std::move(run.iterations);
  }
  result.pipeline = std::move(run.pipeline);
  result.memory =
      stage_memory(plan, run.stages, live, kept_between(plan, live, cache_->costs, orders.splits()),
                   versions, peaks_of(plan, order, run.slices));
  fill_fit(plan, result);
  StepWork work = step_work(plan, cache_->costs);
  work.recomputed += repeated_forwards(plan, run.stages);
  count_cut_backwards(order, run.stages);
  fill_report(plan, run.stages, run.sends, devices_of_stages(plan, order), run.end, work,
              cache_->costs, result);
  if (run.pace) {
    report_pace(plan, *run.pace, result);
  } else if (!validates_afterwards(plan)) {
    result.end = run.end;
  }
  fill_interval(plan, options, result);
  if (!options.record_spans) {
    result.pipeline.spans.clear();  // a steady pace is read off spans, which nobody asked for
  }
  return result;
}

const sim::PipelineOrder& Simulator::order(const Plan& plan) {
  return cache_->orders.order_of(plan);
}

namespace {

// The iteration time under a draw, on costs of its own that it changes. Cuts of backwards are those
// of no draw.
TimeUnder timer(const Plan& plan, const sim::PipelineOrder& order, const SplitBackwards& splits) {
  using Drawn = std::pair<BlockCosts, SplitBackwards>;
  return
      [&, drawn = std::make_shared<Drawn>(BlockCosts(plan), splits)](const CostFactors& factors) {
        drawn->first.set_factors(factors);
        return to_seconds(evaluate(plan, order, false, drawn->first, drawn->second).end.iteration);
      };
}

}  // namespace

void Simulator::fill_interval(const Plan& plan, const SimulateOptions& how, Simulation& result) {
  TimeInterval interval{result.iteration_time, result.iteration_time};
  if (how.interval_draws > 0) {
    const sim::PipelineOrder& order = cache_->orders.order_of(plan);
    const auto own = [&] { return timer(plan, order, cache_->orders.splits()); };
    interval = sampled_interval(spreads_of(plan), result.iteration_time, how.interval_draws,
                                {own, how.jobs}, how.stop_draws)
                   .value_or(interval);
  }
  result.interval_low = interval.low;
  result.interval_high = interval.high;
}

std::vector<Seconds> sample_times(const Plan& plan, std::span<const Draw> draws,
                                  const std::function<bool()>& stop) {
  if (runs_packed_pipeline(plan)) {
    return sample_packed_pipeline(plan, draws, stop);
  }
  BlockCosts costs(plan);
  OrderCache orders(costs);
  const sim::PipelineOrder order = orders.order_of(plan);
  if (splits_backward(order)) {
    kept_by_stage(plan, costs, orders.splits());
  }
  return sampled_times(draws, timer(plan, order, orders.splits()), stop);
}

std::vector<StageMemory> Simulator::memory(const Plan& plan) {
  if (!plan.packs.empty()) {
    return simulate_packs(plan, {}, cache_->packs).memory;
  }
  OrderCache& orders = cache_->orders;
  Evaluation run;
  cost_stages(plan, orders.contents_of(plan), cache_->costs, add_up_stage, run);
  const std::vector<LiveCounts>& live = orders.live_of(plan);
  const std::vector<SlicePeak> peaks =
      plan.slices == 1 ? std::vector<SlicePeak>{} : slice_peaks(orders.order_of(plan), run.slices);
  return stage_memory(plan, run.stages, live,
                      kept_between(plan, live, cache_->costs, orders.splits()),
                      orders.versions_of(plan), peaks);
}

StagePlacement Simulator::placement(const Plan& plan) {
  StagePlacement placement =
      placement_of(schedule_traits(plan), plan.chunks, cache_->orders.devices_of(plan));
  placement.undecided = lacks_stage_bounds(plan);
  placement.flushes = placement.flushes && !validates_afterwards(plan);
  return placement;
}

Seconds Simulator::lower_bound(const Plan& plan) {
  if (schedule_traits(plan).spreads_attention || lacks_stage_bounds(plan)) {
    return work_bound(plan);
  }
  BlockCosts& costs = cache_->costs;
  const StagePlacement place = placement(plan);
  const std::vector<StageContent> contents = stage_contents(plan, place.device_of);
  Evaluation run;
  cost_stages(plan, contents, costs, add_up_stage, run);
  const std::vector<StageCost>& stages = run.stages;
  const std::vector<SimTime> sends = transfers(plan, costs, stages, place.device_of);
  const bool sliced = !run.slices.empty();
  sim::PipelineCosts passes =
      separate_costs(plan, costs, sliced ? first_slices(run.slices) : stages, sends, {});
  if (sliced) {
    add_unit_times(plan, run.slices, sends, passes);
  }
  std::vector<StagePasses> chain(plan.stage_blocks.size());
  for (std::size_t stage = 0; stage < chain.size(); ++stage) {
    if (sliced) {
      chain[stage] = floor_passes(plan, passes, stage);
      chain[stage].late = place.whole_backwards ? SimTime{} : chain[stage].backward;
      continue;
    }
    chain[stage] = {least(passes.forward, passes.first_forward_extra, stage),
                    least(passes.backward, passes.last_backward_extra, stage),
                    stage + 1 < chain.size() ? passes.send_forward[stage] : SimTime{}};
    chain[stage].send_back = stage + 1 < chain.size() ? passes.send_backward[stage] : SimTime{};
    repeat_passes(runs_of_stage(plan, stage), chain[stage]);
    if (!place.whole_backwards) {
      cut_backward(plan, cache_->orders.splits().times(contents[stage], plan, costs, stages[stage]),
                   stages[stage].backward, chain[stage]);
    }
    chain[stage].backward -= stages[stage].most_hidden;  // its result leaves no sooner
  }
  const BesideChain beside =
      place.shares_ends ? shard_work(plan, stages[chain.size()], stages.back()) : BesideChain{};
  const SimTime bound = pipeline_floor(chain, place, plan.pp, plan.num_micro_batches(), beside);
  const Seconds optimizer =
      place.flushes ? optimizer_time(plan, stages, place.device_of, costs) : Seconds();
  return to_seconds(bound + to_sim_time(optimizer));
}

Seconds Simulator::list_bound(const Plan& plan) {
  const ScheduleTraits traits = schedule_traits(plan);
  if (!traits.synchronous || traits.lists_updates || !plan.packs.empty() ||
      validates_afterwards(plan)) {
    return lower_bound(plan);
  }
  BlockCosts& costs = cache_->costs;
  const sim::PipelineOrder& order = cache_->orders.order_of(plan);
  const std::vector<std::uint16_t> devices = devices_of_stages(plan, order);
  const std::vector<StageContent> contents = stage_contents(plan, devices);
  Evaluation run;
  cost_stages(plan, contents, costs, add_up_stage, run);
  const sim::PipelineCosts passes =
      passes_of(plan, order, contents, run, costs, cache_->orders.splits());
  const SimTime makespan = sim::evaluate_pipeline(order, passes).makespan;
  return to_seconds(makespan + to_sim_time(copies_time(plan, run.stages, devices, costs)) +
                    to_sim_time(optimizer_time(plan, run.stages, devices, costs)));
}

LayoutBounds Simulator::layout_bounds(const Plan& plan, const std::vector<int>& zero_stages) {
  return {plan, zero_stages, cache_->costs, cache_->orders.splits()};
}

TransferTimes& Simulator::transfer_times() { return cache_->transfers; }

MemoryVerdict Simulator::fits(const Plan& plan) { return memory_verdict(plan, memory(plan)); }

MemoryVerdict Simulator::fits_or_misses(const Plan& plan) {
  if (schedule_traits(plan).shares_output_layer && plan.slices == 1) {
    OrderCache& orders = cache_->orders;
    const std::vector<LiveCounts>& live = orders.live_layers_of(plan);
    Evaluation run;
    cost_stages(plan, orders.contents_of(plan), cache_->costs, add_up_stage, run);
    MemoryVerdict layers = memory_verdict(
        plan, stage_memory(plan, run.stages, live,
                           kept_between(plan, live, cache_->costs, orders.splits())));
    if (!layers.fits) {
      return layers;
    }
  }
  return fits(plan);
}

Seconds Simulator::work_bound(const Plan& plan) {
  return plan.packs.empty() ? mean_work(plan, cache_->costs) : Seconds();
}

Simulation simulate(const Plan& plan, const SimulateOptions& options) {
  return Simulator(plan).run(plan, options);
}

}  // namespace orrery::plan
