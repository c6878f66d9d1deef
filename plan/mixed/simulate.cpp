// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quantity_text.hpp"
#include "plan/mixed/pipeline.hpp"
#include "plan/simulation/interval.hpp"
#include "plan/simulation/report.hpp"

namespace orrery::plan {

struct MixedSimulator::Cache {
  explicit Cache(const MixedPlan& plan) : kinds(plan) {}
  KindsOfNodes kinds;
};

MixedSimulator::MixedSimulator(const MixedPlan& plan) : cache_(std::make_unique<Cache>(plan)) {}
MixedSimulator::~MixedSimulator() = default;
MixedSimulator::MixedSimulator(MixedSimulator&&) noexcept = default;

BlockCosts& MixedSimulator::costs(std::size_t pool) { return cache_->kinds.pool(pool).costs; }

BlockCosts& MixedSimulator::costs_of_team(const std::vector<int>& pools_of_ranks) {
  return cache_->kinds.team(pools_of_ranks).costs;
}

namespace {

struct StepTimes {
  StepEnd end;  // the slowest group's of each part
  SimTime makespan;
  SimTime iteration() const {
    return end.gradients_ready + to_sim_time(end.optimizer) + to_sim_time(end.parameter_gather);
  }
};

template <typename Each>
StepTimes run_step(const MixedPlan& plan, KindsOfNodes& kinds, Each each) {
  StepTimes step;
  for (const ReplicaGroup& group : plan.groups) {
    MixedPipeline pipeline(plan, group, kinds);
    pipeline.cost_stages(simulate_stage);
    const sim::PipelineOrder& order = pipeline.order();
    const sim::PipelineResult result = pipeline.evaluate(order);
    const StepEnd end = pipeline.close(result);
    step.end.gradients_ready = std::max(step.end.gradients_ready, end.gradients_ready);
    step.end.optimizer = std::max(step.end.optimizer, end.optimizer);
    step.end.parameter_gather = std::max(step.end.parameter_gather, end.parameter_gather);
    step.makespan = std::max(step.makespan, result.makespan);
    each(pipeline, order, result);
  }
  return step;
}

// Of the device that misses by most.
void check_memory(const MixedPlan& plan, const std::vector<MixedPipeline::Held>& held,
                  MemoryVerdict& verdict) {
  for (const auto& [device, pool, memory] : held) {
    const topologies::Pool& here = plan.machine->cluster.pools[static_cast<std::size_t>(pool)];
    const ByteCount capacity = here.cluster.gpu.memory - plan.shape.memory_reserve;
    const ByteCount excess = memory.total() - capacity;
    if (excess.value() > 0 && (verdict.fits || excess > verdict.excess)) {
      verdict.fits = false;
      verdict.excess = excess;
      verdict.text = fmt::format(
          "stage {} needs {} of {} on each {} of pool \"{}\", {} too much; the largest part is {}",
          device, format_bytes(memory.total().bytes()), format_bytes(capacity.bytes()),
          here.cluster.gpu.name, here.name, format_bytes(excess.bytes()), memory.peak_owner);
    }
  }
}

ByteCount left_of(const MixedPlan& plan, int pool, const StageMemory& memory) {
  return plan.pool(pool).cluster.gpu.memory - memory.total();
}

// Of every device the GPU that has least left.
void keep_fullest(const MixedPlan& plan, const std::vector<MixedPipeline::Held>& held,
                  MixedSimulation::Group& of) {
  std::vector<std::optional<ByteCount>> least(of.memory.size());
  for (const auto& [device, pool, memory] : held) {
    const ByteCount left = left_of(plan, pool, memory);
    if (!least[device] || left < *least[device]) {
      least[device] = left;
      of.pools[device] = pool;
      of.memory[device] = memory;
    }
  }
}

// The same over all groups.
void keep_fullest(const MixedPlan& plan, MixedSimulation& result) {
  const MixedSimulation::Group* first = &result.groups.front();
  result.memory = first->memory;
  for (std::size_t device = 0; device < result.memory.size(); ++device) {
    ByteCount least = left_of(plan, first->pools[device], first->memory[device]);
    for (const MixedSimulation::Group& group : result.groups) {
      const ByteCount left = left_of(plan, group.pools[device], group.memory[device]);
      if (left < least) {
        least = left;
        result.memory[device] = group.memory[device];
      }
    }
  }
}

// The busiest device so far. Groups in step have passes of one length: then who computes most of
// it, for the others wait.
struct Busiest {
  SimTime busy;
  TimeBreakdown breakdown;
};

void keep_busiest(const sim::PipelineOrder& order, const sim::PipelineResult& passes,
                  MixedPipeline& pipeline, MixedSimulation& result, Busiest& busiest) {
  const std::size_t device = busiest_device(passes);
  const SimTime busy = passes.devices[device].busy;
  TimeBreakdown breakdown = pipeline.breakdown(order, passes, device);
  if (std::pair(busy, breakdown.compute) > std::pair(busiest.busy, busiest.breakdown.compute)) {
    busiest = {busy, std::move(breakdown)};
    result.busiest_group = result.groups.size();
    result.busiest_device = device;
  }
}

costmodel::Spreads widest(const MixedMachine& machine, DType precision) {
  costmodel::Spreads spread = spreads_of(machine.profiles.front(), precision);
  for (const costmodel::Profile& profile : machine.profiles) {
    const costmodel::Spreads other = spreads_of(profile, precision);
    spread.gemm = std::max(spread.gemm, other.gemm);
    spread.grouped_gemm = std::max(spread.grouped_gemm, other.grouped_gemm);
    spread.attention = std::max(spread.attention, other.attention);
    spread.memory_bound = std::max(spread.memory_bound, other.memory_bound);
    spread.intra_node_collective =
        std::max(spread.intra_node_collective, other.intra_node_collective);
    spread.inter_node_collective =
        std::max(spread.inter_node_collective, other.inter_node_collective);
    spread.all_to_all = std::max(spread.all_to_all, other.all_to_all);
  }
  return spread;
}

void fill_figures(const MixedPlan& plan, const StepTimes& step, const StepWork& work,
                  MixedSimulation& result) {
  const Seconds iteration = to_seconds(step.iteration());
  result.iteration_time = result.interval_low = result.interval_high = iteration;
  result.reduction =
      to_seconds(step.end.gradients_ready - step.makespan) + step.end.parameter_gather;
  result.tokens_per_second_per_gpu =
      work.tokens / iteration.value() / static_cast<double>(plan.num_gpus());
  const std::vector<std::int64_t> used = plan.gpus_used();
  FlopsPerSecond peak;
  for (std::size_t pool = 0; pool < used.size(); ++pool) {
    peak += plan.machine->cluster.pools[pool].cluster.gpu.peak_of(plan.shape.precision) *
            static_cast<double>(used[pool]);
  }
  result.mfu_fraction = work.model / (peak * iteration);
  result.hfu_fraction = (work.model + work.recomputed) / (peak * iteration);
}

}  // namespace

MixedSimulation MixedSimulator::run(const MixedPlan& plan, int interval_draws,
                                    const std::function<bool()>& stop_draws) {
  MixedSimulation result;
  MemoryVerdict verdict;
  Busiest busiest;
  const StepTimes step =
      run_step(plan, cache_->kinds,
               [&](MixedPipeline& pipeline, const sim::PipelineOrder& order,
                   const sim::PipelineResult& passes) {
                 keep_busiest(order, passes, pipeline, result, busiest);
                 result.bubble_fraction = std::max(result.bubble_fraction, largest_bubble(passes));
                 const ReplicaGroup& group = plan.groups[result.groups.size()];
                 MixedSimulation::Group of;
                 of.makespan = to_seconds(passes.makespan);
                 for (const sim::DeviceUse& device : passes.devices) {
                   of.busy.push_back(to_seconds(device.busy));
                   of.slowest = std::max(of.slowest,
                                         of.busy.back() / static_cast<double>(group.micro_batches));
                 }
                 const std::vector<MixedPipeline::Held> held = pipeline.memory();
                 check_memory(plan, held, verdict);
                 of.memory.resize(group.pools.size());
                 of.pools = group.pools;
                 keep_fullest(plan, held, of);
                 result.groups.push_back(std::move(of));
               });
  result.breakdown = std::move(busiest.breakdown);
  add_step_end(step.end, busiest.busy, step.makespan, result.breakdown);
  keep_fullest(plan, result);
  const int first_pool = plan.groups.front().pools.front();
  fill_figures(plan, step, step_work(plan.shape, cache_->kinds.pool(first_pool).costs), result);
  if (!verdict.fits) {
    result.does_not_fit = verdict.text;
  }
  if (interval_draws > 0) {
    KindsOfNodes drawn(plan);
    const auto time_under = [&](const CostFactors& factors) {
      drawn.set_factors(factors);
      const auto nothing = [](MixedPipeline&, const sim::PipelineOrder&,
                              const sim::PipelineResult&) {};
      return to_seconds(run_step(plan, drawn, nothing).iteration());
    };
    if (const std::optional<TimeInterval> interval =
            sampled_interval(widest(*plan.machine, plan.shape.precision), result.iteration_time,
                             interval_draws, time_under, stop_draws)) {
      result.interval_low = interval->low;
      result.interval_high = interval->high;
    }
  }
  return result;
}

MemoryVerdict MixedSimulator::fits(const MixedPlan& plan) {
  MemoryVerdict verdict;
  for (const ReplicaGroup& group : plan.groups) {
    MixedPipeline pipeline(plan, group, cache_->kinds);
    pipeline.cost_own(add_up_stage);
    check_memory(plan, pipeline.memory(), verdict);
  }
  return verdict;
}

Seconds MixedSimulator::lower_bound(const MixedPlan& plan) {
  SimTime passes;
  Seconds optimizer;
  for (const ReplicaGroup& group : plan.groups) {
    MixedPipeline pipeline(plan, group, cache_->kinds);
    pipeline.cost_own(add_up_stage);
    passes = std::max(passes, pipeline.floor());
    optimizer = std::max(optimizer, pipeline.optimizer());
  }
  return to_seconds(passes + to_sim_time(optimizer));
}

Seconds MixedSimulator::list_bound(const MixedPlan& plan) {
  SimTime passes;
  Seconds optimizer;
  for (const ReplicaGroup& group : plan.groups) {
    MixedPipeline pipeline(plan, group, cache_->kinds);
    pipeline.cost_stages(add_up_stage);
    passes = std::max(passes, pipeline.evaluate(pipeline.order()).makespan);
    optimizer = std::max(optimizer, pipeline.optimizer());
  }
  return to_seconds(passes + to_sim_time(optimizer));
}

}  // namespace orrery::plan
