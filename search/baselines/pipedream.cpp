// SPDX-License-Identifier: Apache-2.0
// PipeDream's partitioner over plans that a synchronous runtime can execute: stages of equal
// replicas without tensor parallelism or recomputation, balanced by work. It takes the plan whose
// slowest stage passes a sample soonest, its all-reduce of every mini-batch included:
//   (1/r) (stage time + 4 (r - 1) |w| / (B r)), r replicas, B the slowest link among them.
// The rule takes the micro-batch as given: of its plans for each one, run with a flush (1F1B) as
// Megatron-LM and PipeDream-Flush do, the fastest is its choice.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "search/baseline.hpp"
#include "search/space/fitting_plans.hpp"
#include "search/stage_times.hpp"

namespace orrery::search {
namespace {

double slowest_link(const topologies::Cluster& cluster, int replicas) {
  const topologies::Node& node = cluster.node;
  const double inside = node.scale_up.bandwidth_per_gpu.value();
  const double across =
      node.scale_out.nic_bandwidth.value() * node.scale_out.nics / std::max(1, node.gpus);
  return replicas > node.gpus ? across : inside;
}

// Seconds of a sample in the slowest stage.
double bottleneck(plan::Simulator& simulator, const plan::Plan& plan) {
  double parameters = 0;
  for (const plan::StageMemory& stage : simulator.memory(plan)) {
    parameters = std::max(parameters, stage.parameters.bytes().value());
  }
  const auto replicas = static_cast<double>(plan.dp);
  const double reduce =
      4 * (replicas - 1) * parameters / (slowest_link(plan.cluster, plan.dp) * replicas);
  const double stage = stage_times(simulator, plan).slowest.value();
  return (stage + reduce) / replicas / static_cast<double>(plan.micro_batch);
}

struct Partition {
  double bottleneck = 0;
  plan::Plan plan;
};

// The best partition for each micro-batch by the rule.
std::map<std::int64_t, Partition> partitions(const Space& space, plan::Simulator& simulator,
                                             const Deadline& deadline, std::int64_t& plans) {
  std::map<std::int64_t, Partition> best;
  const auto stop = [&] { return deadline.over() || interrupted(); };
  plans += for_fitting_plans(space, simulator, stop, [&](const Group&, const plan::Plan& plan) {
    const double time = bottleneck(simulator, plan);
    const auto found = best.find(plan.micro_batch);
    if (found == best.end() || time < found->second.bottleneck) {
      best.insert_or_assign(plan.micro_batch, Partition{time, plan});
    }
  });
  return best;
}

BaselineChoice partition(const plan::Plan& base, const Options& options) {
  const Deadline deadline(options, Seconds());
  const Space space(base, options.constraints);
  plan::Simulator simulator(base);
  BaselineChoice choice;
  for (const auto& [micro_batch, best] : partitions(space, simulator, deadline, choice.plans)) {
    plan::Simulation simulation = simulator.run(best.plan);
    if (!choice.found || simulation.iteration_time < choice.found->simulation.iteration_time) {
      choice.found = Found{best.plan, std::move(simulation)};
      choice.note =
          fmt::format("slowest stage {} a sample", format_duration(Seconds(best.bottleneck)));
    }
  }
  if (!choice.found) {
    choice.note = fmt::format("none of {} fits", counted(choice.plans, "plan"));
  }
  note_end(deadline, choice);
  return choice;
}

}  // namespace

extern const Baseline baseline_pipedream = {
    .name = "pipedream",
    .description = "PipeDream's rule: replicated stages, the soonest slowest stage",
    .source = "Narayanan et al., PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.1",
    .fix = "tp=1,cp=1,ep=1,zero=0,chunks=1,schedule=1f1b,recompute=none",
    .choose = partition,
};

}  // namespace orrery::search
