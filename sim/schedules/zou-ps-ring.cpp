// SPDX-License-Identifier: Apache-2.0
// Data-parallel workers (stages) and parameter servers (replicas), one shard of the parameters on
// each. After a step a worker pushes and pulls shard after shard, the servers in a ring: each
// begins with another worker, so that no two workers meet at one. That overlaps the next step,
// whose parameters are one update old. The step takes the longer of the computation and G S / N,
// for G workers, N servers and S to push and pull all parameters once, by default one forward.
#include "sim/orders/asynchronous.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 1 + std::min(params.replicas, params.stages);
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_equal_replicas(params), check_own_warm_up(params),
                       check_one_chunk(params),
                       check_at_most(params.replicas, params.stages, Size::Replicas, "servers"),
                       check_sizes(all), check_asynchronous(all, 1)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int workers = params.stages;
  const int servers = params.replicas;
  const int steps = iterations_of(params);
  const int m = params.micro_batches;
  PipelineOrder result = bare_order(workers + servers, 1);
  result.extended = true;
  result.iterations = steps;
  result.versions = Versions::Delayed;
  result.parts.assign(static_cast<std::size_t>(workers), servers);
  result.parts.resize(static_cast<std::size_t>(workers + workers * servers), 1);
  result.parts_per_share = servers;
  for (int w = 0; w < workers; ++w) {
    add_chain(result, {static_cast<std::uint16_t>(w)}, {.units = steps * m});
    for (int unit = 0; unit < steps * m; ++unit) {
      add_pass(result, PassKind::Forward, w, unit);
      add_pass(result, PassKind::Backward, w, unit);
      if ((unit + 1) % m == 0) {
        add_pass(result, PassKind::Optimizer, w, unit / m);
      }
    }
  }
  for (int k = 0; k < servers; ++k) {
    for (int w = 0; w < workers; ++w) {
      const int shard = add_service(result, workers + k, steps);
      add_edge(result, Lane::Gradient, w, Lane::Forward, shard);
      add_edge(result, Lane::Forward, shard, Lane::Forward, w, 2);
    }
    for (int at = 0; at < steps * workers; ++at) {
      add_pass(result, PassKind::Forward, workers + k * workers + (k + at) % workers, at / workers);
    }
  }
  return result;
}

double most(const ScheduleParams&) { return 1; }

}  // namespace

extern const Schedule schedule_zou_ps_ring = {
    .name = "zou-ps-ring",
    .description =
        "data-parallel workers, parameter servers visited in a ring beside the next step",
    .constraints =
        "asynchronous; stages are workers, replicas servers, at most one per worker; 1 chunk",
    .source =
        "Zou et al., Distributed Training Large-Scale Deep Architectures, 2017 (arXiv 1709.06622), "
        "section on parameter servers",
    .traits = {.synchronous = false, .uses_servers = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .runs_blocking = true,
    .in_plans = true,
};

}  // namespace orrery::sim
