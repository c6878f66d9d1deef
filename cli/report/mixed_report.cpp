// SPDX-License-Identifier: Apache-2.0
#include "cli/report/mixed_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/common.hpp"
#include "cli/report/cost.hpp"
#include "cli/report/report.hpp"
#include "cli/report/time_table.hpp"
#include "plan/document/plan_text.hpp"
#include "plan/stage/plan_schedule.hpp"

namespace orrery::cli {

std::string mixed_subject_text(const plan::MixedPlan& plan) {
  const plan::Plan& shape = plan.shape;
  std::vector<std::string> overrides = shape.network.overrides;
  for (const topologies::Pool& pool : plan.machine->cluster.pools) {
    for (const std::string& one : pool.cluster.overrides) {
      overrides.push_back(pool.name + "." + one);
    }
  }
  return fmt::format("{} on {} ({} of {} GPUs), batch {}, sequence {}, {}{}",
                     shape.network.spec.name, plan.machine->cluster.name, plan.num_gpus(),
                     plan.machine->cluster.num_gpus(), shape.batch, shape.sequence,
                     to_text(shape.precision), overrides_text(overrides, shape.memory_reserve));
}

std::string device_table(const plan::MixedPlan& plan, const plan::MixedSimulation& simulation) {
  TextTable table({{"replicas", Align::Right},
                   {"micro-batches", Align::Right},
                   {"stage", Align::Right},
                   {"pool"},
                   {"blocks", Align::Right},
                   {"busy", Align::Right},
                   {"of passes", Align::Right},
                   {"memory", Align::Right},
                   {"of GPU", Align::Right},
                   {"largest part"}});
  // Of all model chunks of a device.
  std::vector<int> blocks(static_cast<std::size_t>(plan.shape.pp));
  const std::vector<std::uint16_t> devices = plan::schedule_devices(plan.shape);
  for (std::size_t stage = 0; stage < devices.size(); ++stage) {
    blocks[devices[stage]] += plan.shape.stage_blocks[stage];
  }
  Seconds makespan;
  for (const plan::MixedSimulation::Group& group : simulation.groups) {
    makespan = std::max(makespan, group.makespan);
  }
  for (std::size_t index = 0; index < plan.groups.size(); ++index) {
    const plan::ReplicaGroup& group = plan.groups[index];
    const plan::MixedSimulation::Group& of = simulation.groups[index];
    for (std::size_t device = 0; device < group.pools.size(); ++device) {
      const topologies::Pool& pool =  // of several, the one whose GPUs have least left
          plan.machine->cluster.pools[static_cast<std::size_t>(of.pools[device])];
      const std::size_t kinds = group.pools_of(device).size();
      const plan::StageMemory& memory = of.memory[device];
      const double capacity = pool.cluster.gpu.memory.bytes().value();
      table.add_row({fmt::format("{}", group.replicas), fmt::format("{}", group.micro_batches),
                     fmt::format("{}", device),
                     kinds == 1 ? pool.name : fmt::format("{} and {} more", pool.name, kinds - 1),
                     fmt::format("{}", blocks[device]), format_duration(of.busy[device]),
                     percent(of.busy[device] / makespan), format_bytes(memory.total().bytes()),
                     percent(memory.total().bytes().value() / capacity, 0), memory.peak_owner});
    }
  }
  return table.text() + "\n";
}

namespace {

// Pools on which the ranks are that take part in a kind of communication of the busiest device.
std::vector<int> pools_of_group(const plan::MixedPlan& plan,
                                const plan::MixedSimulation& simulation, const std::string& kind) {
  const plan::ReplicaGroup& group = plan.groups[simulation.busiest_group];
  const auto device = static_cast<int>(simulation.busiest_device);
  std::vector<int> pools;
  if (kind == "pp" || kind == "vp") {
    for (int pool = 0; pool < static_cast<int>(plan.num_pools()); ++pool) {
      if (group.uses(pool)) {
        pools.push_back(pool);
      }
    }
    return pools;
  }
  const bool replicas_take_part =
      kind == "dp" || (kind == "ep" && plan.shares_experts_between_pools(device)) ||
      (kind == "amax" && plan.shape.execution.amax_ranks == plan::AmaxRanks::All);
  return replicas_take_part ? plan.pools_of_device(device)
                            : group.pools_of(simulation.busiest_device);
}

// As group_text of the pool that all of them are on, else the pools.
std::string mixed_group_text(const plan::MixedPlan& plan, const plan::MixedSimulation& simulation,
                             const std::string& kind) {
  const std::vector<int> pools = pools_of_group(plan, simulation, kind);
  if (pools.size() == 1) {
    plan::Plan view = plan::pool_view(plan, static_cast<std::size_t>(pools.front()));
    set_view(plan, plan.groups[simulation.busiest_group].micro_batches, view);
    return group_text(view, kind);
  }
  std::string text;
  for (const int pool : pools) {
    text += fmt::format("{} {}", text.empty() ? "on" : " and", plan.pool(pool).name);
  }
  return text;
}

}  // namespace

std::string explanation(const plan::MixedPlan& plan, const plan::MixedSimulation& simulation) {
  std::string text = fmt::format("{}\n{}\n{}\n\n", mixed_subject_text(plan),
                                 plan::layout_text(plan.shape), plan::replicas_text(plan));
  text += figures_text(plan.shape, simulation, "GPU of those used");
  text += cost_text(gpus_used(plan), simulation);
  text += fmt::format("after the passes  {} of gradient reduction and gathers, {} of optimizer\n\n",
                      format_duration(simulation.reduction),
                      format_duration(simulation.breakdown.optimizer));
  const auto group_of = [&](const std::string& kind) {
    return mixed_group_text(plan, simulation, kind);
  };
  return text + time_table(simulation, "busiest stage", group_of) + "\n" +
         device_table(plan, simulation);
}

Json::Object mixed_simulation_json(const plan::MixedPlan& plan,
                                   const plan::MixedSimulation& simulation) {
  Json groups = Json::array();
  for (const plan::MixedSimulation::Group& group : simulation.groups) {
    Json busy = Json::array();
    for (const Seconds time : group.busy) {
      busy.push(time.value());
    }
    Json::Object of = {{"makespan_s", group.makespan.value()}, {"busy_s", std::move(busy)}};
    add_memory_json(group.memory, of);
    groups.push(std::move(of));
  }
  Json used = Json::array();
  for (const std::int64_t gpus : plan.gpus_used()) {
    used.push(gpus);
  }
  Json::Object result = simulated_json(simulation);
  add_cost_json(gpus_used(plan), simulation, result);
  result.emplace_back("reduction_s", simulation.reduction.value());
  result.emplace_back("gpus_used", std::move(used));
  result.emplace_back("groups", std::move(groups));
  result.emplace_back("plan", plan::to_json(plan));
  return result;
}

}  // namespace orrery::cli
