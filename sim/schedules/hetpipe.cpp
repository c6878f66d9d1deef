// SPDX-License-Identifier: Apache-2.0
// Virtual workers (replicas) of p devices, each a pipeline without flush of at most Nm minibatches
// (micro-batches here), updated locally after each. A worker pushes its updates once a wave of Nm,
// on a stream of its own. It begins a wave before the one before is complete, and only when every
// other one has pushed all waves but the last D + 1 and that one, so that clocks (waves pushed)
// differ by D + 1 at most. Throughput 1 / slowest stage for Nm >= p, 1 / sum of the stages for
// Nm = 1, linear between for equal stages where Nm divides p.
#include <fmt/format.h>

#include <algorithm>

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
  const bool known = params.warm_up >= 0 && params.warm_up <= kMaxDistance;
  return first_broken(
      {check_sizes(params), check_one_slice(params), check_no_cap(params), check_one_chunk(params),
       known ? ""
             : fmt::format("warm-up is the distance of clocks in waves, 0 to {}, not {}",
                           kMaxDistance, params.warm_up),
       params.replicas <= kMaxWorkers ? ""
                                      : fmt::format("at most {} virtual workers (replicas), not {}",
                                                    kMaxWorkers, params.replicas),
       check_sizes(all), check_asynchronous(all, 1)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int workers = params.replicas;
  const int in_flight = params.micro_batches;
  const int waves = iterations_of(params);
  PipelineOrder result;
  result.passes.resize(static_cast<std::size_t>(workers * (p + 1)));
  result.extended = true;
  result.pieces = 1;
  result.iterations = waves;
  result.versions = Versions::Stashed;
  for (int w = 0; w < workers; ++w) {
    std::vector<std::uint16_t> devices;
    for (int i = 0; i < p; ++i) {
      devices.push_back(static_cast<std::uint16_t>(w * p + i));
    }
    const int first = add_chain(result, devices, {.units = waves * in_flight});
    for (int i = 0; i < p; ++i) {
      // Minibatches in flight are spread evenly over the round trip of p stages.
      const int ahead = std::min(p - i, (in_flight * (p - i) + p - 1) / p);
      for (int unit = 0; unit < waves * in_flight + ahead; ++unit) {
        if (unit >= ahead) {
          add_pass(result, PassKind::Backward, first + i, unit - ahead);
          add_pass(result, PassKind::Optimizer, first + i, unit - ahead);
        }
        if (unit < waves * in_flight) {
          add_pass(result, PassKind::Forward, first + i, unit);
        }
      }
    }
  }
  const bool overlap = std::min(p, in_flight) > 1;  // of consecutive waves
  for (int w = 0; w < workers; ++w) {
    const auto stream = static_cast<std::uint16_t>(workers * p + w);
    const int push =
        add_chain(result, {stream}, {.units = waves, .role = Role::Service, .forward_only = true});
    append_all(result.passes[stream], PassKind::Forward, push, waves);
    const auto edge = [&result](Lane lane, int from, int to, int shift) {
      result.edges.push_back({lane, static_cast<std::uint16_t>(from), Lane::Forward,
                              static_cast<std::uint16_t>(to), shift});
    };
    for (int i = 0; i < p; ++i) {
      edge(Lane::Gradient, w * p + i, push, 0);
    }
    for (int other = 0; other < workers; ++other) {
      if (other != w) {
        edge(Lane::Forward, push, other * p, params.warm_up + (overlap ? 2 : 1));
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
};

}  // namespace orrery::sim
