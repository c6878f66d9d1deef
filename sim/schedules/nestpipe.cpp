// SPDX-License-Identifier: Apache-2.0
// Recommendation training: stages are data-parallel workers, each with five streams: prefetch, copy
// to the device, key routing and embedding retrieval for batches ahead, each stage with two
// buffers, and the model. Inside a batch the all-to-all of embeddings, a stream of its own, runs
// beside the dense passes of the micro-batch before or after, with parameters frozen. The optimizer
// pass of the all-to-all is the synchronisation of keys that two batches share: without it the next
// batch would see old embeddings. A step takes the longest of one preparation stage and the dense
// passes plus one all-to-all of N (forward and gradient) and the synchronisation.
#include <numeric>

#include "sim/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kPreparations = 4;  // prefetch, copy, routing, retrieval
constexpr int kStreams = kPreparations + 2;
constexpr int kMaxWorkers = 64;  // all-to-all: edges between all pairs
constexpr int kBatches = 6;

int batches_of(const ScheduleParams& params) {
  return params.iterations > 0 ? params.iterations : kBatches;
}

std::string check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = kStreams * batches_of(params);
  return first_broken(
      {check_sizes(params), check_one_slice(params), check_no_cap(params),
       check_one_replica(params), check_own_warm_up(params), check_one_chunk(params),
       check_at_most(params.stages, kMaxWorkers, "stages (workers)"), check_sizes(all)});
}

// Of one worker; virtual stages: two of the model per worker, then four preparations each.
void add_edges(PipelineOrder& order, int worker, int workers, int micro_batches) {
  const auto retrieval = [&](int w) { return 2 * workers + kPreparations * (w + 1) - 1; };
  const int last = retrieval(worker);
  for (int s = last - kPreparations + 1; s < last; ++s) {
    add_edge(order, Lane::Forward, s + 1, Lane::Forward, s, 2);  // two batches ago it was read
  }
  add_edge(order, Lane::Gradient, 2 * worker, Lane::Forward, last, 2 * micro_batches);
  for (int other = 0; other < workers; ++other) {
    add_edge(order, Lane::Forward, retrieval(other), Lane::Forward, 2 * worker);
    if (other != worker) {
      add_edge(order, Lane::Gradient, 2 * other + 1, Lane::Gradient, 2 * worker);
    }
  }
}

void add_passes(PipelineOrder& order, int worker, int batches, int micro_batches) {
  const int exchange = 2 * worker;
  const auto forward = [&](int unit) { add_pass(order, PassKind::Forward, exchange, unit); };
  for (int batch = 0; batch < batches; ++batch) {
    const int first = batch * micro_batches;
    const int end = first + micro_batches;
    forward(first);
    for (int unit = first; unit < end; ++unit) {
      if (unit + 1 < end) {
        forward(unit + 1);
      }
      add_pass(order, PassKind::Backward, exchange, unit);
      add_pass(order, PassKind::Forward, exchange + 1, unit);
      add_pass(order, PassKind::Backward, exchange + 1, unit);
    }
    add_pass(order, PassKind::Optimizer, exchange, batch);
    add_pass(order, PassKind::Optimizer, exchange + 1, batch);
  }
}

PipelineOrder order(const ScheduleParams& params) {
  const int batches = batches_of(params);
  PipelineOrder result;
  result.passes.resize(static_cast<std::size_t>(kStreams * params.stages));
  result.extended = true;
  result.pieces = 1;
  result.iterations = batches;
  const auto streams = [](int worker, int first, int end) {
    std::vector<std::uint16_t> lists(static_cast<std::size_t>(end - first));
    std::iota(lists.begin(), lists.end(), static_cast<std::uint16_t>(kStreams * worker + first));
    return lists;
  };
  for (int w = 0; w < params.stages; ++w) {
    add_chain(result, streams(w, kPreparations, kStreams),
              {.units = batches * params.micro_batches});
    add_passes(result, w, batches, params.micro_batches);
  }
  for (int w = 0; w < params.stages; ++w) {
    const int first = add_chain(result, streams(w, 0, kPreparations),
                                {.units = batches, .role = Role::Service, .forward_only = true});
    for (int s = first; s < first + kPreparations; ++s) {
      append_all(result.passes[result.device_of[static_cast<std::size_t>(s)]], PassKind::Forward, s,
                 batches);
    }
    add_edges(result, w, params.stages, params.micro_batches);
  }
  return result;
}

double most(const ScheduleParams&) { return 2; }

}  // namespace

extern const Schedule schedule_nestpipe = {
    .name = "nestpipe",
    .description = "embedding tables: batches prepared ahead, all-to-all beside dense passes",
    .constraints = "stages are data-parallel workers of six streams; at most 64; 1 chunk",
    .source =
        "Jiang et al., NestPipe, 2026 (arXiv 2604.06956), sections on dual-buffer and "
        "frozen-window pipelining",
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = false,
    .check = check,
    .order = order,
    .most_activations = most,
};

}  // namespace orrery::sim
