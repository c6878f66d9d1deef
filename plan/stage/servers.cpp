// SPDX-License-Identifier: Apache-2.0
// Sources: Park et al. 2020 (HetPipe, arXiv 2005.14038), sections 4 and 5; Zou et al. 2017 (arXiv
// 1709.06622).
#include "plan/stage/servers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/schedule_traits.hpp"
#include "plan/stage/offload_time.hpp"
#include "sim/orders/asynchronous.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::plan {

namespace {

constexpr int kMostSimulated = 32;  // workers of a ring

bool has_pipelines(const Plan& plan) { return schedule_traits(plan).pushes_waves; }

// So many workers that each stands for the same number.
int simulated_workers(const Plan& plan) {
  int workers = std::min(plan.dp, kMostSimulated);
  while (plan.dp % workers != 0) {
    --workers;
  }
  return workers;
}

int simulated_servers(const Plan& plan) {
  return std::min(num_servers(plan), simulated_workers(plan));
}

// Of the rank with most to move.
struct ServerTraffic {
  double gradients = 0;
  double parameters = 0;
  double both() const { return gradients + parameters; }
};

ServerTraffic traffic_of(const Plan& plan, const std::vector<StageCost>& stages) {
  ServerTraffic most;
  for (int device = 0; device < plan.pp; ++device) {
    ServerTraffic own;
    for (std::size_t stage = static_cast<std::size_t>(device); stage < plan.stage_blocks.size();
         stage += static_cast<std::size_t>(plan.pp)) {
      own.gradients += static_cast<double>(stages[stage].states.gradients.value());
      const StateBytes& states = stages[stage].states;
      own.parameters += static_cast<double>(states.parameters.value());
    }
    most = own.both() > most.both() ? own : most;
  }
  return most;
}

Seconds over_network(const Plan& plan, const BlockCosts& costs, double bytes, double ranks) {
  return costs.scaled(CostClass::InterNode,
                      costs.collectives().send_receive(Bytes(bytes), false, static_cast<int>(ranks),
                                                       std::max(1, plan.cluster.num_nodes / 2)));
}

// The host's memory sees the bytes of so many ranks, the link of a GPU those of its own.
Seconds through_host(const Plan& plan, const ServerTraffic& of_rank, double ranks) {
  const topologies::Node& node = plan.cluster.node;
  Seconds time;
  if (node.host_link_per_gpu.value() > 0) {
    const sim::TierGraph tiers = tier_graph(plan.cluster, plan.profile);
    time = Bytes(of_rank.both()) / tiers.channels.front().bandwidth;
  }
  if (node.host_memory_bandwidth.value() > 0) {
    const Bytes moved((3 * of_rank.gradients + of_rank.parameters) * ranks);
    time = std::max(time, moved / node.host_memory_bandwidth);
  }
  return time;
}

// What a node that serves sends or receives in a wave, for each of its GPUs: it sends its workers'
// gradients to the other servers and parameters of its shard to all other nodes, and receives the
// opposite at the same time.
double most_one_way(const ServerTraffic& of_rank, double nodes, double servers) {
  const double elsewhere = 1 - 1 / servers;
  const double others = (nodes - 1) / servers;
  return std::max(of_rank.gradients * elsewhere + of_rank.parameters * others,
                  of_rank.gradients * others + of_rank.parameters * elsewhere);
}

// A wave of all workers at once.
Seconds push_and_pull(const Plan& plan, const ServerTraffic& of_rank, const BlockCosts& costs) {
  const double gpus = plan.cluster.node.gpus;
  const double nodes = plan.cluster.num_nodes;
  const double servers = num_servers(plan);
  Seconds time = through_host(plan, of_rank, gpus * nodes / servers);
  if (nodes > 1) {
    time = std::max(time, over_network(plan, costs, most_one_way(of_rank, nodes, servers), gpus));
  }
  return time;
}

// One worker at one server, while the others are at other servers.
Seconds visit(const Plan& plan, const ServerTraffic& of_rank, const BlockCosts& costs) {
  const double servers = num_servers(plan);
  const double ranks = plan.num_gpus() / plan.dp;  // of a worker
  const ServerTraffic shard{of_rank.gradients / servers, of_rank.parameters / servers};
  Seconds time = through_host(plan, shard, ranks);
  if (plan.cluster.num_nodes > 1) {
    time = std::max(time, over_network(plan, costs, shard.both(), ranks));
  }
  return time;
}

}  // namespace

int num_servers(const Plan& plan) {
  return plan.servers > 0 ? plan.servers : std::max(1, plan.cluster.num_nodes);
}

std::string servers_problem(const Plan& plan) {
  const bool uses = schedule_traits(plan).uses_servers;
  if (plan.servers > 0 && !uses) {
    return fmt::format("servers belong to the schedules {}: leave them out",
                       schedules_with(&sim::ScheduleTraits::uses_servers));
  }
  if (plan.clock_distance > 0 && !has_pipelines(plan)) {
    return fmt::format("clock_distance belongs to the schedule {}: leave it out",
                       schedules_with(&sim::ScheduleTraits::pushes_waves));
  }
  if (!uses) {
    return "";
  }
  if (plan.servers > plan.cluster.num_nodes) {
    return fmt::format("{} servers on {} nodes: at most one on each, set servers to {}",
                       plan.servers, plan.cluster.num_nodes, plan.cluster.num_nodes);
  }
  if (!has_pipelines(plan) && plan.pp > 1) {
    return fmt::format("a worker holds the whole network, here in {} stages: set pp to 1", plan.pp);
  }
  const bool sharded = std::any_of(plan.blocks.begin(), plan.blocks.end(),
                                   [](const BlockRun& run) { return run.layout.zero_stage > 0; });
  return sharded ? "every worker updates parameters of its own, so that nothing is sharded over "
                   "data ranks: set zero_stage to 0"
                 : "";
}

void tell_servers(const Plan& plan, sim::ScheduleParams& params) {
  if (has_pipelines(plan)) {
    params.warm_up = plan.clock_distance;
    return;
  }
  params.stages = simulated_workers(plan);
  params.replicas = simulated_servers(plan);
}

void wait_for_clock(const Plan& plan, sim::PipelineOrder& order) {
  if (!has_pipelines(plan) || plan.dp == 1) {
    return;
  }
  const bool overlap = std::min<std::int64_t>(plan.pp, plan.num_micro_batches()) > 1;  // of waves
  sim::add_edge(order, sim::Lane::Forward, plan.pp, sim::Lane::Forward, 0,
                plan.clock_distance + (overlap ? 2 : 1));
}

void add_services(const Plan& plan, std::vector<StageContent>& stages) {
  if (has_pipelines(plan)) {
    stages.emplace_back();
    return;
  }
  const auto workers = static_cast<std::size_t>(simulated_workers(plan));
  const StageContent whole = stages.front();
  stages.assign(workers, whole);
  stages.resize(workers * (1 + static_cast<std::size_t>(simulated_servers(plan))));
}

SimTime service_time(const Plan& plan, const std::vector<StageCost>& stages,
                     const BlockCosts& costs) {
  if (plan.dp == 1) {
    return SimTime{};
  }
  const ServerTraffic of_rank = traffic_of(plan, stages);
  if (has_pipelines(plan)) {
    return to_sim_time(push_and_pull(plan, of_rank, costs));
  }
  // A simulated worker makes the visits of all that it stands for.
  return to_sim_time(visit(plan, of_rank, costs)) * (plan.dp / simulated_workers(plan));
}

int global_staleness(const Plan& plan, int of_worker) {
  return has_pipelines(plan) ? sim::staleness_of_waves(of_worker, plan.dp,
                                                       static_cast<int>(plan.num_micro_batches()),
                                                       plan.clock_distance)
                             : of_worker;
}

}  // namespace orrery::plan
