// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/order_cache.hpp"

#include <algorithm>

#include "plan/schedule_traits.hpp"
#include "plan/stage/arcs.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/spread_attention.hpp"
#include "plan/stage/transfers.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/pipeline/versions.hpp"

namespace orrery::plan {

namespace {

bool same(const std::vector<sim::PassTimes>& a, const std::vector<sim::PassTimes>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const sim::PassTimes& x, const sim::PassTimes& y) {
        return x.forward == y.forward && x.input_grad == y.input_grad &&
               x.weight_grad == y.weight_grad && x.send == y.send && x.whole == y.whole;
      });
}

}  // namespace

OrderCache::Key OrderCache::key_of(const Plan& plan) {
  const sim::ScheduleParams params = schedule_params(plan);
  return {plan.schedule,   plan.schedule_document.get(),
          params.stages,   params.micro_batches,
          params.chunks,   params.slices,
          params.cap,      params.warm_up,
          params.replicas, plan.dp > 1 ? plan.clock_distance + 1 : 0};
}

const std::vector<std::uint16_t>& OrderCache::devices_of(const Plan& plan) {
  Key key = key_of(plan);
  key.micro_batches = 0;
  const auto [slot, is_new] = devices_.try_emplace(key);
  if (is_new) {
    slot->second = schedule_devices(plan);
  }
  return slot->second;
}

std::vector<StageContent> OrderCache::contents_of(const Plan& plan) {
  return stage_contents(
      plan, lacks_stage_bounds(plan) ? devices_of_stages(plan, order_of(plan)) : devices_of(plan));
}

namespace {

constexpr std::int64_t kPassesKept = 12'000'000;  // 8 bytes each

}  // namespace

const sim::PipelineOrder& OrderCache::order_of(const Plan& plan) {
  Key key = key_of(plan);
  if (!schedule_traits(plan).uses_times) {
    const auto known = orders_.find(key);
    if (known != orders_.end()) {
      return known->second;
    }
    sim::PipelineOrder order = schedule_order(plan, schedule_params(plan));
    passes_ += sim::num_passes(order);
    if (passes_ > kPassesKept) {
      orders_.clear();
      passes_ = sim::num_passes(order);
    }
    return orders_.emplace(std::move(key), std::move(order)).first->second;
  }
  std::vector<sim::PassTimes> times = pass_times(plan, devices_of(plan), costs_, splits_);
  if (key != order_key_ || !same(times, order_times_)) {
    sim::ScheduleParams params = schedule_params(plan);
    params.times = times;
    order_ = schedule_order(plan, params);
    order_key_ = std::move(key);
    order_times_ = std::move(times);
    timed_known_ = false;
  }
  return order_;
}

namespace {

sim::PipelineOrder layers_alone(sim::PipelineOrder order) {
  std::vector<bool> is_layer(static_cast<std::size_t>(order.num_virtual_stages), false);
  for (const sim::Chain& chain : sim::chains_of(order)) {
    for (int k = 0; k < chain.stages; ++k) {
      is_layer[static_cast<std::size_t>(chain.first + k)] = chain.role == sim::Role::Layers;
    }
  }
  for (std::vector<sim::Pass>& list : order.passes) {
    std::erase_if(list, [&](const sim::Pass& pass) { return !is_layer[pass.virtual_stage]; });
  }
  return order;
}

}  // namespace

const std::vector<LiveCounts>& OrderCache::live_layers_of(const Plan& plan) {
  const auto [slot, is_new] = live_layers_.try_emplace(key_of(plan));
  if (is_new) {
    slot->second = live_counts(layers_alone(order_of(plan)));
  }
  return slot->second;
}

OrderCache::Facts& OrderCache::facts_of(const Plan& plan) {
  const auto fill = [&](const sim::PipelineOrder& order, Facts& facts) {
    const ScheduleTraits traits = schedule_traits(plan);
    if (!traits.synchronous) {
      for (const sim::VersionUseOfStage& use : sim::count_versions(order)) {
        facts.versions.push_back(use.versions);
      }
    }
    facts.live = traits.runs_arcs
                     ? arc_counts(order, facts.versions)
                     : live_counts(traits.spreads_attention ? layers_in_turn(plan) : order);
    facts.live.resize(static_cast<std::size_t>(plan.pp));  // services are no devices
  };
  if (schedule_traits(plan).uses_times) {
    order_of(plan);
    if (!timed_known_) {
      timed_ = {};
      fill(order_, timed_);
      timed_known_ = true;
    }
    return timed_;
  }
  const auto [slot, is_new] = facts_.try_emplace(key_of(plan));
  if (is_new) {
    fill(order_of(plan), slot->second);
  }
  return slot->second;
}

const std::vector<LiveCounts>& OrderCache::live_of(const Plan& plan) { return facts_of(plan).live; }

const std::vector<int>& OrderCache::versions_of(const Plan& plan) {
  return facts_of(plan).versions;
}

}  // namespace orrery::plan
