// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/packed_pipeline.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "plan/packs.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/pack_stages.hpp"
#include "plan/simulation/report.hpp"
#include "plan/simulation/sample_times.hpp"
#include "plan/stage/pass_costs.hpp"
#include "plan/stage/peaks.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/sliced.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/transfers.hpp"

namespace orrery::plan {

namespace {

constexpr std::size_t kMostDrawnPacks = 1 << 17;
constexpr int kFewestDraws = 16;

// One replica: its plan, and what its units are.
struct Replica {
  Plan plan;
  std::vector<PackCost*> packs;
  std::vector<Unit> units;
  std::vector<PackCost*> pack_of;  // by unit
  double count = 1;                // of replicas like it
};

struct ReplicaRun {
  sim::PipelineOrder order;
  sim::PipelineCosts passes;
  sim::PipelineResult pipeline;
  StepEnd end;
};

class PackedPipeline {
 public:
  // `costs` by lengths, to which those of its packs are added.
  PackedPipeline(const Plan& plan, PackCosts& costs) : plan_(plan), packs_(plan, costs) {
    for (PackedReplica& replica : packed_replicas(plan)) {
      add_replica(std::move(replica));
    }
    devices_ = schedule_devices(replicas_.front().plan);
  }

  Simulation run(const SimulateOptions& options) {
    cost_packs();
    Simulation result;
    const Replica* slowest = nullptr;
    ReplicaRun longest;
    for (const Replica& replica : replicas_) {
      ReplicaRun run = evaluate(replica, options.record_spans);
      merge_memory(replica, run.order, result);
      if (slowest == nullptr || run.end.iteration > longest.end.iteration) {
        slowest = &replica;
        longest = std::move(run);
      }
    }
    fill_fit(plan_, result);
    result.pipeline = std::move(longest.pipeline);
    report(*slowest, longest.end, result);
    if (options.record_spans) {
      result.order = std::move(longest.order);
      result.passes = std::move(longest.passes);
    }
    return result;
  }

  // A draw costs all distinct packs again: fewer where these are many.
  int draws(int asked) const {
    const auto most = static_cast<int>(kMostDrawnPacks / packs_.size());
    return std::min(asked, std::max(kFewestDraws, most / 2 * 2));
  }

  Seconds time_under(const CostFactors& factors) {
    packs_.set_factors(factors);
    cost_packs();
    SimTime slowest;
    for (const Replica& replica : replicas_) {
      slowest = std::max(slowest, evaluate(replica, false).end.iteration);
    }
    return to_seconds(slowest);
  }

 private:
  void add_replica(PackedReplica of) {
    Replica replica{std::move(of.plan), {}, {}, {}, static_cast<double>(of.count)};
    for (const std::vector<Pack>& micro_batch : replica.plan.packs) {
      replica.packs.push_back(&packs_.of(micro_batch.front()));
    }
    replicas_.push_back(std::move(replica));
  }

  // Of every distinct pack; then the units of each replica.
  void cost_packs() {
    packs_.cost_all();
    for (Replica& replica : replicas_) {
      number_units(replica);
    }
  }

  static void number_units(Replica& replica) {
    replica.units.clear();
    replica.pack_of.clear();
    for (PackCost* pack : replica.packs) {
      const auto first = static_cast<std::uint32_t>(replica.units.size());
      for (std::uint32_t slice = 0; slice < pack->slices; ++slice) {
        replica.units.push_back({pack->first_unit + slice, first, slice + 1 == pack->slices});
        replica.pack_of.push_back(pack);
      }
    }
  }

  // Durations and transfers of a unit alone, by virtual stage.
  struct UnitPasses {
    std::vector<SimTime> sends;
    sim::PipelineCosts passes;
  };
  using PassesByUnit = std::vector<const UnitPasses*>;
  UnitPasses passes_of(const Replica& replica, const PackCost& pack,
                       const std::vector<StageCost>& stages) {
    UnitPasses one;
    one.sends = transfers(packs_.alone(pack), *pack.costs, stages, devices_);
    one.passes = separate_costs(replica.plan, *pack.costs, stages, one.sends, {});
    return one;
  }

  // A unit that is the first or the last of a step in some stage, with what happens once a step.
  struct EndUnit {
    std::vector<StageCost> stages;
    UnitPasses alone;
  };
  const EndUnit& end_unit(const Replica& replica, std::size_t unit) {
    const std::uint32_t cost = replica.units[unit].cost;
    const auto [slot, is_new] = ends_.try_emplace(cost);
    if (is_new) {
      const PackCost& pack = *replica.pack_of[unit];
      slot->second.stages = packs_.at_end_of_step(pack, cost);
      queue_gathers(replica.plan, devices_, slot->second.stages);
      slot->second.alone = passes_of(replica, pack, slot->second.stages);
    }
    return slot->second;
  }

  // Those of all units, in `known` by Unit::cost.
  PassesByUnit passes_of_units(const Replica& replica, std::map<std::uint32_t, UnitPasses>& known) {
    PassesByUnit all;
    for (std::size_t unit = 0; unit < replica.units.size(); ++unit) {
      const auto [slot, is_new] = known.try_emplace(replica.units[unit].cost);
      if (is_new) {
        std::vector<StageCost> stages;
        for (const std::vector<StageCost>& of_stage : packs_.costs()) {
          stages.push_back(of_stage[replica.units[unit].cost]);
        }
        slot->second = passes_of(replica, *replica.pack_of[unit], stages);
      }
      all.push_back(&slot->second);
    }
    return all;
  }

  using Times = std::vector<SimTime>;
  // What all units take, by virtual stage x units + unit, and their mean by virtual stage.
  static void spread(const PassesByUnit& units, Times sim::PipelineCosts::*of, Times& by_unit,
                     Times& means) {
    for (std::size_t stage = 0; stage < (units.front()->passes.*of).size(); ++stage) {
      SimTime sum;
      for (const UnitPasses* unit : units) {
        by_unit.push_back((unit->passes.*of)[stage]);
        sum += by_unit.back();
      }
      means.push_back({sum.ps / static_cast<std::int64_t>(units.size())});
    }
  }

  static sim::PipelineCosts together_by_unit(const PassesByUnit& units) {
    sim::PipelineCosts passes;
    using Costs = sim::PipelineCosts;
    spread(units, &Costs::forward, passes.unit_forward, passes.forward);
    spread(units, &Costs::backward, passes.unit_backward, passes.backward);
    spread(units, &Costs::send_forward, passes.unit_send_forward, passes.send_forward);
    spread(units, &Costs::send_backward, passes.unit_send_backward, passes.send_backward);
    passes.unit_send_forward.resize(passes.unit_forward.size());
    passes.unit_send_backward.resize(passes.unit_forward.size());
    return passes;
  }

  // What the packs of a replica keep on all devices, the largest of the iteration being 1.
  std::vector<double> weights_of(const Replica& replica) const {
    const double most = packs_.most_saved();
    std::vector<double> weights;
    for (const PackCost* pack : replica.packs) {
      weights.push_back(most > 0 ? pack->saved / most : 1.0);
    }
    return weights;
  }

  sim::PipelineOrder order_of(const Replica& replica, const sim::PipelineCosts& passes) const {
    sim::ScheduleParams params = schedule_params(replica.plan);
    params.weights = weights_of(replica);
    if (schedule_traits(replica.plan).uses_times) {
      params.times.clear();
      for (std::size_t stage = 0; stage < passes.forward.size(); ++stage) {
        const bool last = stage == passes.send_forward.size();
        params.times.push_back({passes.forward[stage], passes.backward[stage], SimTime{},
                                last ? SimTime{} : passes.send_forward[stage]});
      }
    }
    return schedule_order(replica.plan, params);
  }

  // The unit whose forward is the first, and whose backward is the last, of every virtual stage.
  struct Ends {
    std::vector<std::uint32_t> first;
    std::vector<std::uint32_t> last;
  };
  static Ends ends_of(const sim::PipelineOrder& order) {
    const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
    Ends ends{std::vector<std::uint32_t>(stages), std::vector<std::uint32_t>(stages)};
    std::vector<bool> begun(stages, false);
    for (const std::vector<sim::Pass>& list : order.passes) {
      for (const sim::Pass& pass : list) {
        const std::size_t stage = pass.virtual_stage;
        if (pass.kind == sim::PassKind::Forward && !begun[stage]) {
          begun[stage] = true;
          ends.first[stage] = pass.micro_batch;
        } else if (pass.kind == sim::PassKind::Backward) {
          ends.last[stage] = pass.micro_batch;
        }
      }
    }
    return ends;
  }

  ReplicaRun evaluate(const Replica& replica, bool record_spans) {
    std::map<std::uint32_t, UnitPasses> known;
    const PassesByUnit units = passes_of_units(replica, known);
    ReplicaRun run;
    run.passes = together_by_unit(units);
    run.order = order_of(replica, run.passes);
    const Ends ends = ends_of(run.order);
    ends_.clear();
    std::vector<StageCost> closing;  // the micro-batches beside whose backwards gradients go
    for (std::size_t stage = 0; stage < packs_.costs().size(); ++stage) {
      const std::size_t row = stage * units.size();
      run.passes.unit_forward[row + ends.first[stage]] +=
          end_unit(replica, ends.first[stage]).alone.passes.first_forward_extra[stage];
      const EndUnit& last = end_unit(replica, ends.last[stage]);
      run.passes.unit_backward[row + ends.last[stage]] +=
          last.alone.passes.last_backward_extra[stage];
      closing.push_back(last.stages[stage]);
    }
    run.pipeline = sim::evaluate_pipeline(run.order, run.passes, {.record_spans = record_spans});
    run.end = close_step(replica.plan, stage_contents(replica.plan, devices_), closing, devices_,
                         run.pipeline, *replica.packs.front()->costs);
    return run;
  }

  // All units of a replica as one pass.
  std::vector<StageCost> iteration_of(const Replica& replica) const {
    std::vector<StageCost> stages;
    for (const std::vector<StageCost>& of_stage : packs_.costs()) {
      SliceCosts all(1);
      for (const Unit& unit : replica.units) {
        all.front().push_back(of_stage[unit.cost]);
      }
      stages.push_back(together(all).front());
    }
    return stages;
  }

  void merge_memory(const Replica& replica, const sim::PipelineOrder& order,
                    Simulation& result) const {
    const std::vector<StageMemory> memory =
        stage_memory(replica.plan, iteration_of(replica), live_counts(order), {}, {},
                     unit_peaks(order, packs_.costs(), replica.units));
    result.memory.resize(memory.size());
    for (std::size_t device = 0; device < memory.size(); ++device) {
      if (memory[device].total() > result.memory[device].total()) {
        result.memory[device] = memory[device];
      }
    }
  }

  StepWork work() {
    StepWork sum;
    for (const Replica& replica : replicas_) {
      for (PackCost* pack : replica.packs) {
        sum.recomputed +=
            step_work(packs_.alone(*pack), *pack->costs).recomputed * (replica.count / plan_.dp);
      }
    }
    for (const std::vector<Pack>& micro_batch : plan_.packs) {
      for (const Pack& pack : micro_batch) {
        sum.tokens += static_cast<double>(tokens_of(pack));
        for (const std::int64_t tokens : pack.sequences) {
          sum.model += models::model_flops(plan_.network, {1, tokens});
        }
      }
    }
    return sum;
  }

  void report(const Replica& replica, const StepEnd& end, Simulation& result) {
    result.end = end;
    Plan one_pass = replica.plan;  // of the iteration as one pass
    one_pass.packs.resize(1);
    std::map<std::uint32_t, UnitPasses> known;
    std::vector<SimTime> sends(packs_.costs().size() - 1);
    for (const UnitPasses* unit : passes_of_units(replica, known)) {
      for (std::size_t stage = 0; stage < sends.size(); ++stage) {
        sends[stage] += unit->sends[stage];
      }
    }
    fill_report(one_pass, iteration_of(replica), sends, devices_, end, work(),
                *replica.packs.front()->costs, result);
  }

  const Plan& plan_;
  PackStages packs_;
  std::vector<Replica> replicas_;  // distinct ones
  std::vector<std::uint16_t> devices_;
  std::map<std::uint32_t, EndUnit> ends_;  // by Unit::cost, of the replica that is evaluated
};

// On costs of its own, which draws change.
TimeUnder timer_of_packs(const Plan& plan) {
  struct Drawn {
    explicit Drawn(const Plan& of) : models(of), costs(models), pipeline(of, costs) {}
    BlockCosts models;
    PackCosts costs;
    PackedPipeline pipeline;
  };
  const auto drawn = std::make_shared<Drawn>(plan);
  return [drawn](const CostFactors& factors) { return drawn->pipeline.time_under(factors); };
}

}  // namespace

Simulation simulate_packed_pipeline(const Plan& plan, const SimulateOptions& options,
                                    PackCosts& costs) {
  Simulation result = PackedPipeline(plan, costs).run(options);
  TimeInterval interval{result.iteration_time, result.iteration_time};
  if (options.interval_draws > 0) {
    const int draws = PackedPipeline(plan, costs).draws(options.interval_draws);
    const auto own = [&] { return timer_of_packs(plan); };
    interval = sampled_interval(spreads_of(plan), result.iteration_time, draws, {own, options.jobs},
                                options.stop_draws)
                   .value_or(interval);
  }
  result.interval_low = interval.low;
  result.interval_high = interval.high;
  return result;
}

std::vector<Seconds> sample_packed_pipeline(const Plan& plan, std::span<const Draw> draws,
                                            const std::function<bool()>& stop) {
  return sampled_times(draws, timer_of_packs(plan), stop);
}

}  // namespace orrery::plan
