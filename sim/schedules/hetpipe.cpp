// SPDX-License-Identifier: Apache-2.0
// Virtual workers (replicas) of p devices, each a pipeline without flush of at most Nm minibatches
// (micro-batches here), updated locally after each. A worker pushes its updates once a wave of Nm,
// on a stream of its own. It begins a wave before the one before is complete, and only when every
// other one has pushed all waves but the last D + 1 and that one, so that clocks (waves pushed)
// differ by D + 1 at most. Throughput 1 / slowest stage for Nm >= p, 1 / sum of the stages for
// Nm = 1, linear between for equal stages.
#include <algorithm>
#include <vector>

#include "base/limits.hpp"
#include "sim/orders/asynchronous.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/policy.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kMaxDistance = 4;
constexpr int kMaxWorkers = 64;  // clocks are edges between all pairs

Refusal check_worker(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.micro_batches = static_cast<int>(std::min<std::int64_t>(
      limits::kMaxPasses, std::int64_t{params.micro_batches} * iterations_of(params)));
  return check_looks(all, 1);
}

Refusal check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2 * std::clamp(params.replicas, 1, kMaxWorkers);
  return first_broken(
      {check_sizes(params), check_one_slice(params), check_no_cap(params),
       check_equal_replicas(params), check_one_chunk(params),
       check_warm_up(params, kMaxDistance, "waves between clocks"),
       check_workers_together(params, kMaxWorkers),
       check_at_most(params.replicas, kMaxWorkers, Size::Replicas, "virtual workers"),
       check_sizes(all), check_asynchronous(all, 1), check_worker(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int workers = params.replicas;
  const int waves = iterations_of(params);
  PipelineOrder result = bare_order(workers * (p + 1), 1);
  result.extended = true;
  result.iterations = waves;
  result.versions = Versions::Stashed;
  const std::vector<std::vector<Pass>> lists = lists_by_arrival(params);
  for (int w = 0; w < workers; ++w) {
    const int first =
        add_chain(result, device_run(w * p, p), {.units = waves * params.micro_batches});
    for (const std::vector<Pass>& list : lists) {
      for (const Pass& pass : list) {
        add_pass(result, pass.kind, first + pass.virtual_stage, static_cast<int>(pass.micro_batch));
      }
    }
  }
  const bool overlap = std::min(p, params.micro_batches) > 1;  // of consecutive waves
  for (int w = 0; w < workers; ++w) {
    const int push = add_services(result, workers * p + w, 1, waves);
    for (int i = 0; i < p; ++i) {
      add_edge(result, Lane::Gradient, w * p + i, Lane::Forward, push);
    }
  }
  add_exchange(
      result, workers, Lane::Forward, [=](int w) { return workers * p + w; }, Lane::Forward,
      [=](int w) { return w * p; }, params.warm_up + (overlap ? 2 : 1));
  return result;
}

}  // namespace

extern const Schedule schedule_hetpipe = {
    .name = "hetpipe",
    .description = "virtual workers without flush, a push to parameter servers per wave",
    .constraints =
        "asynchronous; 1 chunk per device; micro-batches: in flight and per wave; "
        "warm-up 0 to 4: waves a worker may be ahead; at most 64 replicas",
    .source = "Park et al., HetPipe, ATC 2020 (arXiv 2005.14038), sections 4 and 5",
    .traits = {.synchronous = false,
               .uses_times = true,
               .uses_servers = true,
               .pushes_waves = true},
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .in_plans = true,
};

}  // namespace orrery::sim
