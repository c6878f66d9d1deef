// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/pipeline.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/schedule_traits.hpp"
#include "plan/stage/joined.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/pass_costs.hpp"
#include "plan/stage/peaks.hpp"
#include "plan/stage/plan_schedule.hpp"

namespace orrery::plan {

namespace {

constexpr int kWholeNode = std::numeric_limits<int>::max();

using Times = std::vector<SimTime> sim::PipelineCosts::*;

// What the first or last pass of a stage takes beyond the others: with it the slower of two totals,
// for a fast GPU's short pass leaves more of a gather or reduction to wait for.
void add_slower_total(const sim::PipelineCosts& other, std::size_t stage, Times pass, Times extra,
                      sim::PipelineCosts& passes) {
  const auto of = [&](const auto& costs, Times times) { return (costs.*times)[stage]; };
  const SimTime total =
      std::max(of(passes, pass) + of(passes, extra), of(other, pass) + of(other, extra));
  (passes.*extra)[stage] = total - std::max(of(passes, pass), of(other, pass));
}

// Each pass and transfer as the slower of two pipelines'. `last_is_cut`: as that of passes().
void add_slower(const sim::PipelineCosts& other,
                const std::optional<std::vector<bool>>& last_is_cut, sim::PipelineCosts& passes) {
  using Costs = sim::PipelineCosts;
  for (std::size_t stage = 0; stage < passes.forward.size(); ++stage) {
    const bool cut = last_is_cut && !last_is_cut->empty() && (*last_is_cut)[stage];
    add_slower_total(other, stage, &Costs::forward, &Costs::first_forward_extra, passes);
    add_slower_total(other, stage, cut ? &Costs::weight_grad : &Costs::backward,
                     &Costs::last_backward_extra, passes);
  }
  for (const Times times : {&Costs::forward, &Costs::input_grad, &Costs::weight_grad,
                            &Costs::backward, &Costs::send_forward, &Costs::send_backward}) {
    std::vector<SimTime>& mine = passes.*times;
    const std::vector<SimTime>& theirs = other.*times;
    for (std::size_t stage = 0; stage < mine.size(); ++stage) {
      mine[stage] = std::max(mine[stage], theirs[stage]);
    }
  }
  for (std::size_t pair = 0; pair < passes.hidden.size(); ++pair) {
    passes.hidden[pair] = std::min(passes.hidden[pair], other.hidden[pair]);
  }
}

}  // namespace

MixedPipeline::MixedPipeline(const MixedPlan& plan, const ReplicaGroup& group, KindsOfNodes& kinds)
    : plan_(plan), group_(group), kinds_(kinds) {
  for (std::size_t device = 0; device < group.pools.size(); ++device) {
    shares_experts_.push_back(plan.shares_experts_between_pools(static_cast<int>(device)));
  }
  kinds.set_views(plan, group.micro_batches);
  for (std::size_t device = 0; device < group.teams.size(); ++device) {
    set_view(plan, group.micro_batches, kind_of_device(device).view);
  }
  device_of_ = kinds.orders().devices_of(front().view);
  contents_ = stage_contents(front().view, device_of_);
}

NodeKind& MixedPipeline::kind_of_device(std::size_t device) {
  const std::vector<int> ranks = group_.ranks_of(device);
  if (shares_experts_[device]) {
    std::vector<std::vector<int>> others;
    for (const ReplicaGroup& group : plan_.groups) {
      if (group.ranks_of(device) != ranks && plan_.share_experts(group_, group)) {
        others.push_back(group.ranks_of(device));
      }
    }
    if (!others.empty()) {
      return kinds_.sharing_experts(ranks, *kinds_.data_costs(plan_, static_cast<int>(device)),
                                    others);
    }
  }
  return ranks.size() > 1 ? kinds_.team(ranks) : kinds_.pool(ranks.front());
}

void MixedPipeline::cost_stages(CostOfStage cost_of) {
  cost_own(cost_of);
  in_step_.clear();
  for (const ReplicaGroup& other : plan_.groups) {
    if (&other != &group_ && plan_.runs_in_step()) {
      in_step_.emplace_back(plan_, other, kinds_).cost_own(cost_of);
    }
  }
}

void MixedPipeline::cost_own(CostOfStage cost_of) {
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
  hand_on(stages_);
  queue_gathers(front().view, device_of_, stages_);
  sends_ = transfers();
}

const sim::PipelineOrder& MixedPipeline::order() {
  if (!schedule_traits(front().view).uses_times) {
    return kinds_.orders().order_of(front().view);
  }
  MixedPipeline alone(plan_, group_, kinds_);  // without data-parallel traffic, as on one pool
  alone.cost_stages(add_up_stage);
  const sim::PipelineCosts passes = alone.passes(std::vector<bool>{});
  sim::ScheduleParams params = schedule_params(front().view);
  for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
    params.times.push_back({passes.forward[stage], passes.input_grad[stage],
                            passes.weight_grad[stage],
                            stage < sends_.size() ? passes.send_forward[stage] : SimTime{}});
  }
  order_ = schedule_order(front().view, params);
  return order_;
}

sim::PipelineCosts MixedPipeline::own_passes(const std::optional<std::vector<bool>>& last_is_cut,
                                             const std::vector<SimTime>& arrivals) {
  sim::PipelineCosts passes =
      separate_costs(front().view, front().costs, stages_, sends_,
                     last_is_cut ? cuts(*last_is_cut) : std::vector<SplitTimes>(), arrivals);
  if (schedule_traits(front().view).joins_passes) {
    add_hidden(passes);
  }
  return passes;
}

// Every virtual stage is a kind of its own, so that pipelines in step are compared pair by pair. Of
// tensor groups over unlike GPUs, and where experts are shared with unlike ones, joined passes
// count one after the other.
void MixedPipeline::add_hidden(sim::PipelineCosts& passes) {
  const std::size_t stages = stages_.size();
  const bool listed = lists_joined_layers(stages_);
  const bool like_layers = has_like_layers(front().view);
  passes.kinds = static_cast<std::uint16_t>(stages);
  passes.hidden.assign(stages * stages, SimTime{});
  for (std::size_t forward = 0; forward < stages; ++forward) {
    const std::size_t device = device_of_[forward];
    passes.kind_of.push_back(static_cast<std::uint16_t>(forward));
    if (group_.team_of(device) != nullptr || shares_experts_[device]) {
      continue;
    }
    for (std::size_t backward = 0; backward < stages; ++backward) {
      if (device_of_[backward] == device) {
        passes.hidden[forward * stages + backward] = hidden_by(
            stages_[forward], stages_[backward], listed, like_layers, kind_of(forward).costs);
      }
    }
  }
}

sim::PipelineCosts MixedPipeline::passes(const std::optional<std::vector<bool>>& last_is_cut) {
  if (in_step_.empty()) {
    return own_passes(last_is_cut, {});
  }
  std::vector<StageChain> chains = {{stages_, sends_}};
  for (const MixedPipeline& other : in_step_) {
    chains.push_back({other.stages_, other.sends_});
  }
  const std::vector<SimTime> arrivals = first_arrivals(chains);
  sim::PipelineCosts slowest = own_passes(last_is_cut, arrivals);
  for (MixedPipeline& other : in_step_) {
    add_slower(other.own_passes(last_is_cut, arrivals), last_is_cut, slowest);
  }
  return slowest;
}

sim::PipelineResult MixedPipeline::evaluate(const sim::PipelineOrder& order) {
  return sim::evaluate_pipeline(
      order, passes(splits_backward(order) ? std::optional(ends_cut(order)) : std::nullopt));
}

SimTime MixedPipeline::floor() {
  const Plan& view = front().view;
  const sim::PipelineCosts passes = separate_costs(view, front().costs, stages_, sends_, {});
  const std::vector<SplitTimes> cut =
      schedule_traits(view).cuts_every_backward ? cuts({}) : std::vector<SplitTimes>();
  const bool whole = !schedule_traits(view).splits_backward;
  std::vector<StagePasses> chain(stages_.size());
  for (std::size_t stage = 0; stage < chain.size(); ++stage) {
    chain[stage] = {least(passes.forward, passes.first_forward_extra, stage),
                    least(passes.backward, passes.last_backward_extra, stage),
                    stage + 1 < chain.size() ? passes.send_forward[stage] : SimTime{}};
    chain[stage].send_back = stage + 1 < chain.size() ? passes.send_backward[stage] : SimTime{};
    if (!cut.empty()) {
      chain[stage].backward +=
          cut[stage].input_grad + cut[stage].weight_grad - stages_[stage].backward;
    }
    chain[stage].backward -= stages_[stage].most_hidden;
    chain[stage].late = whole ? SimTime{} : chain[stage].backward;
  }
  return pipeline_floor(chain, {.device_of = device_of_, .whole_backwards = whole}, view.pp,
                        group_.micro_batches);
}

StepEnd MixedPipeline::close(const sim::PipelineResult& pipeline) {
  StepEnd slowest;
  for_pools([&](NodeKind& kind, const std::vector<StageCost>& mine) {
    const auto contents = stage_contents(kind.view, device_of_);
    const StepEnd end = close_step(kind.view, contents, mine, device_of_, pipeline, kind.costs);
    slowest.gradients_ready = std::max(slowest.gradients_ready, end.gradients_ready);
    slowest.optimizer = std::max(slowest.optimizer, end.optimizer);
    slowest.parameter_gather = std::max(slowest.parameter_gather, end.parameter_gather);
  });
  return slowest;
}

Seconds MixedPipeline::optimizer() {
  Seconds slowest;
  for_pools([&](NodeKind& kind, const std::vector<StageCost>& mine) {
    slowest = std::max(slowest, optimizer_time(kind.view, mine, device_of_, kind.costs));
  });
  return slowest;
}

std::vector<StageContent> MixedPipeline::contents_on(int pool) {
  Plan& view = kinds_.pool(pool).view;
  set_ranks(plan_, group_, pool, view);
  std::vector<StageContent> contents = stage_contents(view, device_of_);
  set_view(plan_, group_.micro_batches, view);
  return contents;
}

std::vector<StageMemory> MixedPipeline::memory_of(const std::vector<StageContent>& contents,
                                                  const std::vector<StageCost>& stages,
                                                  const std::vector<LiveCounts>& live) {
  std::vector<SplitBackwards::Kept> kept;
  if (std::any_of(live.begin(), live.end(), [](const LiveCounts& l) { return l.splits; })) {
    for (std::size_t stage = 0; stage < contents.size(); ++stage) {
      NodeKind& kind = kind_of(stage);
      kept.push_back(kind.splits.kept(contents[stage], kind.view, kind.costs));
    }
  }
  return stage_memory(front().view, stages, live, kept);
}

std::vector<MixedPipeline::Held> MixedPipeline::memory() {
  const Plan& view = front().view;
  const std::vector<LiveCounts> live =
      schedule_traits(view).uses_times ? live_counts(order()) : kinds_.orders().live_of(view);
  std::vector<Held> held;
  const auto add = [&](std::size_t device, int pool, StageMemory memory) {
    memory.communication = communicator_bytes(kinds_.pool(pool).view);
    held.push_back({device, pool, std::move(memory)});
  };
  std::vector<StageMemory> all = memory_of(contents_, stages_, live);
  std::vector<std::vector<StageMemory>> by_pool(kinds_.size());
  for (std::size_t device = 0; device < all.size(); ++device) {
    if (group_.team_of(device) == nullptr) {
      add(device, group_.pools[device], std::move(all[device]));
      continue;
    }
    for (const int pool : group_.pools_of(device)) {
      std::vector<StageMemory>& of_pool = by_pool[static_cast<std::size_t>(pool)];
      if (of_pool.empty()) {
        const std::vector<StageContent> contents = contents_on(pool);
        std::vector<StageCost> stages;
        for (std::size_t stage = 0; stage < contents.size(); ++stage) {
          NodeKind& kind = kind_of(stage);
          stages.push_back(add_up_stage(contents[stage], kind.view, kind.costs));
        }
        hand_on(stages);
        of_pool = memory_of(contents, stages, live);
      }
      add(device, pool, of_pool[device]);
    }
  }
  return held;
}

std::vector<StageCost> MixedPipeline::stages_on(int pool) {
  std::vector<StageCost> mine = stages_;
  std::vector<StageContent> contents;
  for (std::size_t stage = 0; stage < mine.size(); ++stage) {
    const std::size_t device = device_of_[stage];
    const std::vector<int> pools = group_.pools_of(device);
    if (std::find(pools.begin(), pools.end(), pool) == pools.end()) {
      mine[stage].states = {};
      mine[stage].gather_total = SimTime{};
    } else if (group_.team_of(device) != nullptr) {
      if (contents.empty()) {
        contents = contents_on(pool);
      }
      NodeKind& kind = kind_of(stage);
      mine[stage].states = add_up_stage(contents[stage], kind.view, kind.costs).states;
    }
  }
  return mine;
}

// With what a device costs at the end of a step only on the devices of one pool.
template <typename Visit>
void MixedPipeline::for_pools(Visit visit) {
  for (std::size_t pool = 0; pool < kinds_.size(); ++pool) {
    const int index = static_cast<int>(pool);
    if (group_.uses(index)) {
      visit(kinds_.pool(pool), stages_on(index));
    }
  }
}

std::vector<SplitTimes> MixedPipeline::cuts(const std::vector<bool>& last_is_cut) {
  std::vector<SplitTimes> cuts;
  for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
    NodeKind& kind = kind_of(stage);
    const StageContent& content = contents_[stage];
    if (last_is_cut.empty()) {
      cuts.push_back(kind.splits.times(content, kind.view, kind.costs, stages_[stage]));
      continue;
    }
    kind.costs.set_data_costs(kinds_.data_costs(plan_, device_of_[stage]));
    cuts.push_back(kind.splits.times_with_traffic(content, kind.view, kind.costs,
                                                  last_is_cut[stage], stages_[stage]));
    kind.costs.set_data_costs(nullptr);
  }
  return cuts;
}

bool MixedPipeline::is_beside(std::size_t device, std::size_t other) const {
  return group_.pools[device] == group_.pools[other] &&
         (group_.teams.empty() || group_.teams[device] == group_.teams[other]);
}

// Of the devices before this one how many are on its pools: they lie there side by side.
int MixedPipeline::place_of(std::uint16_t device) const {
  int place = 0;
  for (std::size_t before = 0; before < device; ++before) {
    place += is_beside(before, device) ? 1 : 0;
  }
  return place;
}

SimTime MixedPipeline::transfer(ByteCount bytes, int parts, std::uint16_t from, std::uint16_t to) {
  if (from == to) {
    return SimTime{};
  }
  NodeKind& sender = kind_of_device(from);
  if (is_beside(from, to)) {
    sender.view.dp = group_.replicas;  // what lies between the two devices
    const SimTime time =
        sender.transfers->of(sender.view, bytes, parts, place_of(from), place_of(to));
    sender.view.dp = plan_.shape.dp;
    return time;
  }
  std::vector<int> pools = group_.pools_of(from);
  const std::vector<int> others = group_.pools_of(to);
  pools.insert(pools.end(), others.begin(), others.end());
  std::sort(pools.begin(), pools.end());
  pools.erase(std::unique(pools.begin(), pools.end()), pools.end());
  NodeKind& kind =
      pools.size() == 1 ? kinds_.pool(pools.front()) : kinds_.across(pools, kWholeNode);
  set_view(plan_, group_.micro_batches, kind.view);
  const topologies::Cluster& cluster = kind.view.cluster;
  const bool one_node =
      cluster.num_nodes == 1 && pools.size() > 1 && plan_.machine->cluster.in_same_nodes(pools);
  if (!one_node) {
    return kind.transfers->of(kind.view, bytes, parts, 0, cluster.node.gpus);
  }
  kind.view.dp = 1;  // two devices of one node
  const SimTime time = kind.transfers->of(kind.view, bytes, parts, 0, 1);
  kind.view.dp = plan_.shape.dp;
  return time;
}

std::vector<SimTime> MixedPipeline::transfers() {
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

}  // namespace orrery::plan
