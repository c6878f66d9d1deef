// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/packed_step.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "plan/packs.hpp"
#include "plan/simulation/packed_pipeline.hpp"
#include "plan/simulation/report.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::plan {

namespace {

bool meets_every_micro_batch(const Plan& plan) {
  return std::any_of(plan.blocks.begin(), plan.blocks.end(),
                     [](const BlockRun& run) { return run.layout.zero_stage >= 2; });
}

// What all ranks do while they run such packs.
struct PackRun {
  Simulation step;  // of one micro-batch and its end
  SimTime forward;
  SimTime backward;
  Flops recomputed;  // by one group
  Seconds time() const { return to_seconds(forward + backward); }
};

using PackKey = std::pair<int, std::vector<std::int64_t>>;

PackRun run_pack(const Plan& plan, const Pack& pack, const SimulateOptions& options) {
  const Plan alone = plan_of_pack(plan, pack);
  SimulateOptions with_passes = options;
  with_passes.record_spans = true;
  PackRun run;
  run.step = simulate(alone, with_passes);
  run.forward = run.step.passes.forward.front();
  run.backward = run.step.passes.backward.front();
  const FlopsPerSecond peak = plan.cluster.gpu.peak_of(plan.precision) * plan.num_gpus();
  run.recomputed = (peak * run.step.iteration_time) *
                   ((run.step.hfu_fraction - run.step.mfu_fraction) / alone.dp);
  return run;
}

class PackedStep {
 public:
  PackedStep(const Plan& plan, const SimulateOptions& options)
      : plan_(plan),
        layout_(without_packs(plan)),
        options_(options),
        of_rank_(static_cast<std::size_t>(plan.dp)) {}

  Simulation run() {
    for (const std::vector<Pack>& micro_batch : plan_.packs) {
      add(micro_batch);
    }
    if (!meets_every_micro_batch(plan_)) {
      slowest_ = *std::max_element(of_rank_.begin(), of_rank_.end(), is_shorter);
    }
    fill_pipeline();
    fill_report();
    return std::move(result_);
  }

 private:
  const PackRun& run_of(const Pack& pack) {
    const auto [slot, is_new] = known_.try_emplace(PackKey{pack.group, pack.sequences});
    if (is_new) {
      slot->second = run_pack(layout_, pack, options_);
    }
    return slot->second;
  }

  // The packs of a micro-batch on aligned groups of ranks.
  void add(const std::vector<Pack>& micro_batch) {
    std::vector<const Pack*> packs;
    std::vector<int> sizes;
    for (const Pack& pack : micro_batch) {
      packs.push_back(&pack);
      sizes.push_back(pack.group);
    }
    std::stable_sort(packs.begin(), packs.end(),
                     [](const Pack* a, const Pack* b) { return a->group > b->group; });
    const std::vector<sim::DeviceBlock> places = sim::soonest_blocks(sizes, plan_.dp);
    const PackRun* slowest = nullptr;
    for (std::size_t k = 0; k < packs.size(); ++k) {
      const PackRun& run = run_of(*packs[k]);
      slowest = slowest == nullptr || run.time() > slowest->time() ? &run : slowest;
      for (int rank = places[k].first; rank < places[k].first + places[k].size; ++rank) {
        of_rank_[static_cast<std::size_t>(rank)].push_back(&run);
      }
      recomputed_ += run.recomputed;
      if (result_.memory.empty() ||
          run.step.memory.front().total() > result_.memory.front().total()) {
        result_.memory = run.step.memory;
        result_.host_per_node = run.step.host_per_node;
        result_.disk_per_node = run.step.disk_per_node;
      }
    }
    slowest_.push_back(slowest);
  }

  using Runs = std::vector<const PackRun*>;
  static Seconds time_of(const Runs& runs) {
    return std::accumulate(runs.begin(), runs.end(), Seconds(),
                           [](Seconds sum, const PackRun* run) { return sum + run->time(); });
  }
  static bool is_shorter(const Runs& one, const Runs& other) {
    return time_of(one) < time_of(other);
  }

  // The packs that count, one after the other.
  void fill_pipeline() {
    const auto units = static_cast<int>(slowest_.size());
    sim::PipelineOrder order = sim::bare_order(1, 1);
    sim::add_chain(order, {0}, {.units = units});
    sim::PipelineCosts costs;
    for (int unit = 0; unit < units; ++unit) {
      sim::add_pass(order, sim::PassKind::Forward, 0, unit);
      sim::add_pass(order, sim::PassKind::Backward, 0, unit);
      costs.unit_forward.push_back(slowest_[static_cast<std::size_t>(unit)]->forward);
      costs.unit_backward.push_back(slowest_[static_cast<std::size_t>(unit)]->backward);
    }
    costs.forward = {costs.unit_forward.front()};
    costs.backward = {costs.unit_backward.front()};
    result_.pipeline =
        sim::evaluate_pipeline(order, costs, {.record_spans = options_.record_spans});
    if (options_.record_spans) {
      result_.order = std::move(order);
      result_.passes = std::move(costs);
    }
  }

  void fill_report() {
    const PackRun& last = *slowest_.back();
    const Seconds end = last.step.iteration_time - last.time();
    const Seconds passes = time_of(slowest_);
    result_.iteration_time = passes + end;
    result_.end = last.step.end;
    const SimTime before = to_sim_time(result_.iteration_time) - last.step.end->iteration;
    result_.end->gradients_ready += before;
    result_.end->iteration += before;
    const double draws = result_.iteration_time / last.step.iteration_time;
    result_.interval_low = last.step.interval_low * draws;
    result_.interval_high = last.step.interval_high * draws;
    double tokens = 0;
    Flops model;
    for (const std::vector<Pack>& micro_batch : plan_.packs) {
      for (const Pack& pack : micro_batch) {
        for (const std::int64_t sequence : pack.sequences) {
          tokens += static_cast<double>(sequence);
          model += models::model_flops(plan_.network, {1, sequence});
        }
      }
    }
    const double gpus = plan_.num_gpus();
    result_.tokens_per_second_per_gpu = tokens / result_.iteration_time.value() / gpus;
    const Flops possible =
        plan_.cluster.gpu.peak_of(plan_.precision) * gpus * result_.iteration_time;
    result_.mfu_fraction = model / possible;
    result_.hfu_fraction = (model + recomputed_) / possible;
    const Runs& least = *std::min_element(of_rank_.begin(), of_rank_.end(), is_shorter);
    result_.bubble_fraction = std::max(0.0, 1.0 - time_of(least) / passes);
    fill_breakdown();
    fill_fit(plan_, result_);
  }

  void fill_breakdown() {
    TimeBreakdown& sum = result_.breakdown;
    for (const PackRun* run : slowest_) {
      const TimeBreakdown& own = run->step.breakdown;
      sum.compute += own.compute;
      sum.recompute += own.recompute;
      for (const auto& [axis, time] : own.exposed_communication) {
        sum.exposed_communication[axis] += time;
      }
    }
    sum.optimizer = slowest_.back()->step.breakdown.optimizer;
  }

  const Plan& plan_;
  Plan layout_;  // without its packs
  const SimulateOptions& options_;
  std::map<PackKey, PackRun> known_;
  std::vector<Runs> of_rank_;  // data-parallel
  // Of every micro-batch the slowest, where ranks meet in it, else those of the rank with most to
  // do.
  Runs slowest_;
  Flops recomputed_;
  Simulation result_;
};

}  // namespace

Simulation simulate_packs(const Plan& plan, const SimulateOptions& options, PackCosts& costs) {
  return runs_packed_pipeline(plan) ? simulate_packed_pipeline(plan, options, costs)
                                    : PackedStep(plan, options).run();
}

}  // namespace orrery::plan
