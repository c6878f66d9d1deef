// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quantity_text.hpp"
#include "plan/interval.hpp"
#include "plan/layout_bounds.hpp"
#include "plan/mixed/machine.hpp"
#include "plan/pass_costs.hpp"
#include "plan/stage.hpp"
#include "plan/stage_memory.hpp"
#include "plan/step_end.hpp"

namespace orrery::plan {

struct MixedSimulator::Cache {
  explicit Cache(const MixedPlan& plan) : kinds(plan) {}
  KindsOfNodes kinds;
};

MixedSimulator::MixedSimulator(const MixedPlan& plan) : cache_(std::make_unique<Cache>(plan)) {}
MixedSimulator::~MixedSimulator() = default;
MixedSimulator::MixedSimulator(MixedSimulator&&) noexcept = default;

BlockCosts& MixedSimulator::costs(std::size_t pool) { return cache_->kinds.pool(pool).costs; }

namespace {

using CostOfStage = StageCost (*)(const StageContent&, const Plan&, BlockCosts&, const Slice&);

// One group of replicas of a plan: its pipeline, stage by stage on the pools that it names.
class Pipeline {
 public:
  Pipeline(const MixedPlan& plan, const ReplicaGroup& group, KindsOfNodes& kinds)
      : plan_(plan), group_(group), kinds_(kinds) {
    kinds.set_views(plan, group.micro_batches);
    device_of_ = kinds.orders().devices_of(front().view);
    contents_ = stage_contents(front().view);
  }

  void cost_stages(CostOfStage cost_of) {
    stages_.clear();
    for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
      NodeKind& kind = kind_of(stage);
      const BlockCosts* data = kinds_.data_costs(plan_, device_of_[stage]);
      std::size_t known = 0;
      while (known < stage && !(contents_[known] == contents_[stage] && &kind_of(known) == &kind &&
                                kinds_.data_costs(plan_, device_of_[known]) == data)) {
        ++known;
      }
      if (known < stage) {
        stages_.push_back(StageCost(stages_[known]));
        continue;
      }
      kind.costs.set_data_costs(data);
      stages_.push_back(cost_of(contents_[stage], kind.view, kind.costs, {}));
      kind.costs.set_data_costs(nullptr);
    }
    sends_ = transfers();
  }

  // After cost_stages. Lists made with times last until the next call.
  const sim::PipelineOrder& order() {
    if (!schedule_traits(front().view).uses_times) {
      return kinds_.orders().order_of(front().view);
    }
    Pipeline alone(plan_, group_, kinds_);  // without data-parallel traffic, as on one pool
    alone.cost_stages(add_up_stage);
    const sim::PipelineCosts passes =
        pipeline_costs(front().view, front().costs, alone.stages_, alone.sends_, alone.cuts());
    sim::ScheduleParams params = schedule_params(front().view);
    for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
      params.times.push_back({passes.forward[stage], passes.input_grad[stage],
                              passes.weight_grad[stage],
                              stage < sends_.size() ? passes.send_forward[stage] : SimTime{}});
    }
    order_ = schedule_order(front().view, params);
    return order_;
  }

  sim::PipelineResult evaluate(const sim::PipelineOrder& order) {
    return sim::evaluate_pipeline(
        order,
        pipeline_costs(front().view, front().costs, stages_, sends_,
                       splits_backward(order) ? cuts(ends_cut(order)) : std::vector<SplitTimes>()));
  }

  SimTime floor() {
    const Plan& view = front().view;
    const sim::PipelineCosts passes = pipeline_costs(view, front().costs, stages_, sends_, {});
    const std::vector<SplitTimes> cut =
        cuts_every_backward(view) ? cuts() : std::vector<SplitTimes>();
    std::vector<StagePasses> chain(stages_.size());
    for (std::size_t stage = 0; stage < chain.size(); ++stage) {
      // Where messages hold stages up, the gradient's way may be the shorter one.
      const SimTime send = stage + 1 < chain.size()
                               ? std::min(passes.send_forward[stage], passes.send_backward[stage])
                               : SimTime{};
      chain[stage] = {least(passes.forward, passes.first_forward_extra, stage),
                      least(passes.backward, passes.last_backward_extra, stage), send};
      if (!cut.empty()) {
        chain[stage].backward +=
            cut[stage].input_grad + cut[stage].weight_grad - stages_[stage].backward;
      }
    }
    const StagePlacement placement = {.device_of = device_of_,
                                      .whole_backwards = !schedule_traits(view).splits_backward};
    return pipeline_floor(chain, placement, view.pp, group_.micro_batches, SimTime{});
  }

  // The end of the step on the devices of every pool; the slowest of each part counts.
  StepEnd close(const sim::PipelineResult& pipeline) {
    StepEnd slowest;
    for_pools([&](NodeKind& kind, const std::vector<StageCost>& mine) {
      const StepEnd end = close_step(kind.view, mine, device_of_, pipeline, kind.costs);
      slowest.gradients_ready = std::max(slowest.gradients_ready, end.gradients_ready);
      slowest.optimizer = std::max(slowest.optimizer, end.optimizer);
      slowest.parameter_gather = std::max(slowest.parameter_gather, end.parameter_gather);
    });
    return slowest;
  }

  Seconds optimizer() {
    Seconds slowest;
    for_pools([&](NodeKind& kind, const std::vector<StageCost>& mine) {
      slowest = std::max(slowest, optimizer_time(kind.view, mine, device_of_, kind.costs));
    });
    return slowest;
  }

  std::vector<StageMemory> memory() {
    const Plan& view = front().view;
    const bool timed = schedule_traits(view).uses_times;
    const std::vector<LiveCounts> live =
        timed ? live_counts(order()) : kinds_.orders().live_of(view);
    std::vector<SplitBackwards::Kept> kept;
    if (std::any_of(live.begin(), live.end(), [](const LiveCounts& l) { return l.splits; })) {
      for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
        NodeKind& kind = kind_of(stage);
        kept.push_back(kind.splits.kept(contents_[stage], kind.view, kind.costs));
      }
    }
    std::vector<StageMemory> memory = stage_memory(view, stages_, live, kept);
    for (std::size_t device = 0; device < memory.size(); ++device) {
      memory[device].communication = communicator_bytes(kinds_.pool(group_.pools[device]).view);
    }
    return memory;
  }

 private:
  NodeKind& front() { return kinds_.pool(group_.pools.front()); }
  int pool_of(std::size_t stage) const { return group_.pools[device_of_[stage]]; }
  NodeKind& kind_of(std::size_t stage) { return kinds_.pool(pool_of(stage)); }

  // With what a device costs at the end of a step only on the devices of one pool.
  template <typename Visit>
  void for_pools(Visit visit) {
    for (std::size_t pool = 0; pool < kinds_.size(); ++pool) {
      const int index = static_cast<int>(pool);
      if (std::find(group_.pools.begin(), group_.pools.end(), index) == group_.pools.end()) {
        continue;
      }
      std::vector<StageCost> mine = stages_;
      for (std::size_t stage = 0; stage < mine.size(); ++stage) {
        if (pool_of(stage) != index) {
          mine[stage].states = {};
          mine[stage].gather_total = SimTime{};
        }
      }
      visit(kinds_.pool(pool), mine);
    }
  }

  // `last_is_cut`: by stage, whether reductions of the step begin with the weight gradients.
  std::vector<SplitTimes> cuts(const std::vector<bool>& last_is_cut = {}) {
    std::vector<SplitTimes> cuts;
    for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
      NodeKind& kind = kind_of(stage);
      const StageContent& content = contents_[stage];
      if (!last_is_cut.empty() && last_is_cut[stage]) {
        kind.costs.set_data_costs(kinds_.data_costs(plan_, device_of_[stage]));
        kind.splits.reduce_beside_weight_grads(content, kind.view, kind.costs, stages_[stage]);
        kind.costs.set_data_costs(nullptr);
      }
      cuts.push_back(kind.splits.times(content, kind.view, kind.costs, stages_[stage]));
    }
    return cuts;
  }

  // Of the devices before this one how many are on its pool: they lie there side by side.
  int place_of(std::uint16_t device) const {
    return static_cast<int>(
        std::count(group_.pools.begin(), group_.pools.begin() + device, group_.pools[device]));
  }

  SimTime transfer(ByteCount bytes, int parts, std::uint16_t from, std::uint16_t to) {
    if (from == to) {
      return SimTime{};
    }
    const int pool = group_.pools[from];
    const int next = group_.pools[to];
    if (pool == next) {
      NodeKind& kind = kinds_.pool(pool);
      kind.view.dp = group_.replicas;  // what lies between the two devices
      const SimTime time =
          kind.transfers->of(kind.view, bytes, parts, place_of(from), place_of(to));
      kind.view.dp = plan_.shape.dp;
      return time;
    }
    NodeKind& kind = kinds_.across({std::min(pool, next), std::max(pool, next)}, kWholeNode);
    set_view(plan_, group_.micro_batches, kind.view);
    return kind.transfers->of(kind.view, bytes, parts, 0, kind.view.cluster.node.gpus);
  }

  std::vector<SimTime> transfers() {
    std::vector<SimTime> times;
    int position = 0;
    for (std::size_t stage = 0; stage + 1 < stages_.size(); ++stage) {
      position += plan_.shape.stage_blocks[stage];
      const int parts = parts_sent(plan_.shape, plan_.shape.layout_of(position - 1));
      times.push_back(
          transfer(stages_[stage].boundary, parts, device_of_[stage], device_of_[stage + 1]));
    }
    return times;
  }

  static constexpr int kWholeNode = 1 << 30;

  const MixedPlan& plan_;
  const ReplicaGroup& group_;
  KindsOfNodes& kinds_;
  std::vector<std::uint16_t> device_of_;
  std::vector<StageContent> contents_;
  std::vector<StageCost> stages_;
  std::vector<SimTime> sends_;
  sim::PipelineOrder order_;
};

struct StepTimes {
  SimTime ready;
  Seconds optimizer;
  Seconds gather;
  SimTime makespan;
  SimTime iteration() const { return ready + to_sim_time(optimizer) + to_sim_time(gather); }
};

template <typename Each>
StepTimes run_step(const MixedPlan& plan, KindsOfNodes& kinds, Each each) {
  StepTimes step;
  for (const ReplicaGroup& group : plan.groups) {
    Pipeline pipeline(plan, group, kinds);
    pipeline.cost_stages(simulate_stage);
    const sim::PipelineResult result = pipeline.evaluate(pipeline.order());
    const StepEnd end = pipeline.close(result);
    step.ready = std::max(step.ready, end.gradients_ready);
    step.optimizer = std::max(step.optimizer, end.optimizer);
    step.gather = std::max(step.gather, end.parameter_gather);
    step.makespan = std::max(step.makespan, result.makespan);
    each(pipeline, result);
  }
  return step;
}

// Of the device that misses by most.
void check_memory(const MixedPlan& plan, const ReplicaGroup& group,
                  const std::vector<StageMemory>& memory, MemoryVerdict& verdict) {
  for (std::size_t device = 0; device < memory.size(); ++device) {
    const auto pool = static_cast<std::size_t>(group.pools[device]);
    const topologies::Pool& here = plan.machine->cluster.pools[pool];
    const ByteCount capacity = here.cluster.gpu.memory - plan.shape.memory_reserve;
    const ByteCount excess = memory[device].total() - capacity;
    if (excess.value() > 0 && (verdict.fits || excess > verdict.excess)) {
      verdict.fits = false;
      verdict.excess = excess;
      verdict.text = fmt::format(
          "stage {} needs {} of {} on each {} of pool \"{}\", {} too much; the largest part is {}",
          device, format_bytes(memory[device].total().bytes()), format_bytes(capacity.bytes()),
          here.cluster.gpu.name, here.name, format_bytes(excess.bytes()),
          memory[device].peak_owner);
    }
  }
}

costmodel::Spreads widest(const MixedMachine& machine) {
  costmodel::Spreads spread = machine.profiles.front().spread;
  for (const costmodel::Profile& profile : machine.profiles) {
    const costmodel::Spreads& other = profile.spread;
    spread.gemm = std::max(spread.gemm, other.gemm);
    spread.attention = std::max(spread.attention, other.attention);
    spread.memory_bound = std::max(spread.memory_bound, other.memory_bound);
    spread.intra_node_collective =
        std::max(spread.intra_node_collective, other.intra_node_collective);
    spread.inter_node_collective =
        std::max(spread.inter_node_collective, other.inter_node_collective);
  }
  return spread;
}

void fill_figures(const MixedPlan& plan, const StepTimes& step, MixedSimulation& result) {
  const Seconds iteration = to_seconds(step.iteration());
  result.iteration_time = result.interval_low = result.interval_high = iteration;
  result.optimizer = step.optimizer;
  result.reduction = to_seconds(step.ready - step.makespan) + step.gather;
  const Plan& shape = plan.shape;
  const double tokens = static_cast<double>(shape.batch) * static_cast<double>(shape.sequence);
  result.tokens_per_second_per_gpu =
      tokens / iteration.value() / static_cast<double>(plan.num_gpus());
  const std::vector<std::int64_t> used = plan.gpus_used();
  FlopsPerSecond peak;
  for (std::size_t pool = 0; pool < used.size(); ++pool) {
    peak += plan.machine->cluster.pools[pool].cluster.gpu.peak_of(shape.precision) *
            static_cast<double>(used[pool]);
  }
  result.mfu_fraction =
      models::model_flops(shape.network, {shape.batch, shape.sequence}) / (peak * iteration);
  for (const MixedSimulation::Group& group : result.groups) {
    for (const Seconds busy : group.busy) {
      result.bubble_fraction =
          std::max(result.bubble_fraction, 1.0 - busy / to_seconds(step.makespan));
    }
  }
}

}  // namespace

MixedSimulation MixedSimulator::run(const MixedPlan& plan, int interval_draws) {
  MixedSimulation result;
  MemoryVerdict verdict;
  const StepTimes step =
      run_step(plan, cache_->kinds, [&](Pipeline& pipeline, const sim::PipelineResult& passes) {
        const ReplicaGroup& group = plan.groups[result.groups.size()];
        MixedSimulation::Group of;
        of.makespan = to_seconds(passes.makespan);
        for (const sim::DeviceUse& device : passes.devices) {
          of.busy.push_back(to_seconds(device.busy));
          of.slowest =
              std::max(of.slowest, of.busy.back() / static_cast<double>(group.micro_batches));
        }
        of.memory = pipeline.memory();
        check_memory(plan, group, of.memory, verdict);
        result.groups.push_back(std::move(of));
      });
  fill_figures(plan, step, result);
  if (!verdict.fits) {
    result.does_not_fit = verdict.text;
  }
  if (interval_draws > 0) {
    KindsOfNodes drawn(plan);
    const TimeInterval interval =
        sampled_interval(widest(*plan.machine), result.iteration_time, interval_draws,
                         [&](const CostFactors& factors) {
                           drawn.set_factors(factors);
                           const auto nothing = [](Pipeline&, const sim::PipelineResult&) {};
                           return to_seconds(run_step(plan, drawn, nothing).iteration());
                         });
    result.interval_low = interval.low;
    result.interval_high = interval.high;
  }
  return result;
}

MemoryVerdict MixedSimulator::fits(const MixedPlan& plan) {
  MemoryVerdict verdict;
  for (const ReplicaGroup& group : plan.groups) {
    Pipeline pipeline(plan, group, cache_->kinds);
    pipeline.cost_stages(add_up_stage);
    check_memory(plan, group, pipeline.memory(), verdict);
  }
  return verdict;
}

Seconds MixedSimulator::lower_bound(const MixedPlan& plan) {
  SimTime passes;
  Seconds optimizer;
  for (const ReplicaGroup& group : plan.groups) {
    Pipeline pipeline(plan, group, cache_->kinds);
    pipeline.cost_stages(add_up_stage);
    passes = std::max(passes, pipeline.floor());
    optimizer = std::max(optimizer, pipeline.optimizer());
  }
  return to_seconds(passes + to_sim_time(optimizer));
}

Seconds MixedSimulator::list_bound(const MixedPlan& plan) {
  SimTime passes;
  Seconds optimizer;
  for (const ReplicaGroup& group : plan.groups) {
    Pipeline pipeline(plan, group, cache_->kinds);
    pipeline.cost_stages(add_up_stage);
    passes = std::max(passes, pipeline.evaluate(pipeline.order()).makespan);
    optimizer = std::max(optimizer, pipeline.optimizer());
  }
  return to_seconds(passes + to_sim_time(optimizer));
}

}  // namespace orrery::plan
