// SPDX-License-Identifier: Apache-2.0
// Virtual workers (replicas) of p devices, each a pipeline without flush of at most Nm minibatches
// (micro-batches here), updated locally after each. A worker pushes its updates once a wave of Nm,
// on a stream of its own. It begins a wave before the one before is complete, and only when every
// other one has pushed all waves but the last D + 1 and that one, so that clocks (waves pushed)
// differ by D + 1 at most. Throughput 1 / slowest stage for Nm >= p, 1 / sum of the stages for
// Nm = 1, linear between for equal stages where Nm divides p.
#include <algorithm>
#include <numeric>
#include <vector>

#include "sim/asynchronous.hpp"
#include "sim/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kMaxDistance = 4;
constexpr int kMaxWorkers = 64;  // clocks are edges between all pairs

std::string check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2 * std::clamp(params.replicas, 1, kMaxWorkers);
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_chunk(params),
                       check_warm_up(params, kMaxDistance, "waves between clocks"),
                       check_at_most(params.replicas, kMaxWorkers, "replicas (virtual workers)"),
                       check_sizes(all), check_asynchronous(all, 1)});
}

// 1F1B of one worker on its chain, with an update after each backward. Minibatches in flight are
// spread evenly over the round trip of its stages.
void add_worker(PipelineOrder& order, const Chain& chain, int in_flight) {
  for (int i = 0; i < chain.stages; ++i) {
    const int later = chain.stages - i;
    const int ahead = std::min(later, (in_flight * later + chain.stages - 1) / chain.stages);
    for (int unit = 0; unit < chain.units + ahead; ++unit) {
      if (unit >= ahead) {
        add_pass(order, PassKind::Backward, chain.first + i, unit - ahead);
        add_pass(order, PassKind::Optimizer, chain.first + i, unit - ahead);
      }
      if (unit < chain.units) {
        add_pass(order, PassKind::Forward, chain.first + i, unit);
      }
    }
  }
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int workers = params.replicas;
  const int waves = iterations_of(params);
  PipelineOrder result;
  result.passes.resize(static_cast<std::size_t>(workers * (p + 1)));
  result.extended = true;
  result.pieces = 1;
  result.iterations = waves;
  result.versions = Versions::Stashed;
  std::vector<std::uint16_t> devices(static_cast<std::size_t>(p));
  for (int w = 0; w < workers; ++w) {
    std::iota(devices.begin(), devices.end(), static_cast<std::uint16_t>(w * p));
    add_chain(result, devices, {.units = waves * params.micro_batches});
    add_worker(result, result.chains.back(), params.micro_batches);
  }
  const bool overlap = std::min(p, params.micro_batches) > 1;  // of consecutive waves
  for (int w = 0; w < workers; ++w) {
    const int push = add_service(result, workers * p + w, waves);
    append_all(result.passes[static_cast<std::size_t>(workers * p + w)], PassKind::Forward, push,
               waves);
    for (int i = 0; i < p; ++i) {
      add_edge(result, Lane::Gradient, w * p + i, Lane::Forward, push);
    }
    for (int other = 0; other < workers; ++other) {
      if (other != w) {
        add_edge(result, Lane::Forward, push, Lane::Forward, other * p,
                 params.warm_up + (overlap ? 2 : 1));
      }
    }
  }
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
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = false,
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
};

}  // namespace orrery::sim
