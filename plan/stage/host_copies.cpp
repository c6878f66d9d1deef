// SPDX-License-Identifier: Apache-2.0
// Source of the mechanism: Wan et al. 2025 (PipeOffload, arXiv 2503.01328), section 3.
#include "plan/stage/host_copies.hpp"

#include <fmt/format.h>

#include "plan/schedule_traits.hpp"
#include "plan/stage/offload_time.hpp"

namespace orrery::plan {

namespace {

SimTime copy_time(const StageCost& stage, const sim::TierGraph& tiers) {
  const ByteCount bytes = stage.saved + stage.saved_ends + stage.saved_host + stage.saved_disk;
  const sim::TierChannel& link = tiers.channels.front();
  return to_sim_time(link.latency + bytes.bytes() / link.bandwidth);
}

}  // namespace

std::string host_copies_problem(const Plan& plan) {
  const topologies::Node& node = plan.cluster.node;
  if (!schedule_traits(plan).copies_to_host ||
      (node.host_memory.value() > 0 && node.host_link_per_gpu.value() > 0)) {
    return "";
  }
  return fmt::format(
      "it copies activations to the host, and {} has no host memory or no link to it: state "
      "node.host, or set the schedule to \"1f1b\"",
      node.name);
}

void add_host_copies(const Plan& plan, const sim::PipelineOrder& order,
                     const std::vector<StageCost>& stages, sim::PipelineCosts& passes) {
  const auto all = static_cast<std::size_t>(order.num_virtual_stages);
  for (std::vector<SimTime>* const times : {&passes.forward, &passes.backward}) {
    times->resize(all);
  }
  for (std::vector<SimTime>* const times :
       {&passes.first_forward_extra, &passes.last_backward_extra}) {
    times->resize(times->empty() ? 0 : all);
  }
  passes.send_forward.resize(all - 1);
  passes.send_backward.resize(all - 1);
  const sim::TierGraph tiers = tier_graph(plan.cluster, plan.profile);
  for (const sim::Hold& hold : order.holds) {
    const std::size_t stream = hold.to < stages.size() ? hold.from : hold.to;
    if (stream >= stages.size()) {
      passes.forward[stream] = copy_time(stages[hold.of], tiers);
    }
  }
}

}  // namespace orrery::plan
