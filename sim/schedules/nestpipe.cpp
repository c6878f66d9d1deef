// SPDX-License-Identifier: Apache-2.0
// Recommendation training: stages are data-parallel workers, each with five streams: prefetch, copy
// to the device, key routing and embedding retrieval for batches ahead, each stage with two
// buffers, and the model. Inside a batch the all-to-all of embeddings, a stream of its own, runs
// beside the dense passes of the micro-batch before or after, with parameters frozen. The optimizer
// pass of the all-to-all is the synchronisation of keys that two batches share: without it the next
// batch would see old embeddings. A step takes the longest of one preparation stage and the dense
// passes plus one all-to-all of N (forward and gradient) and the synchronisation.
#include "sim/orders/nest_streams.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kMaxWorkers = 64;  // all-to-all: edges between all pairs
constexpr int kBatches = 6;

int batches_of(const ScheduleParams& params) {
  return params.iterations > 0 ? params.iterations : kBatches;
}

Refusal check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = kNestStreams * batches_of(params);
  return first_broken(
      {check_sizes(params), check_one_slice(params), check_no_cap(params),
       check_one_replica(params), check_own_warm_up(params), check_one_chunk(params),
       check_at_most(params.stages, kMaxWorkers, Size::Stages, "workers"), check_sizes(all)});
}

// Of the two streams of the model, in turn.
void add_passes(PipelineOrder& order, int exchange, int batches, int micro_batches) {
  for (int batch = 0; batch < batches; ++batch) {
    const int first = batch * micro_batches;
    const int end = first + micro_batches;
    add_pass(order, PassKind::Forward, exchange, first);
    for (int unit = first; unit < end; ++unit) {
      if (unit + 1 < end) {
        add_pass(order, PassKind::Forward, exchange, unit + 1);
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
  const int workers = params.stages;
  const int batches = batches_of(params);
  const int units = batches * params.micro_batches;
  PipelineOrder result = bare_order(kNestStreams * workers, 1);
  result.extended = true;
  result.iterations = batches;
  const auto exchange = [](int w) { return kModelStreams * w; };
  const auto dense = [](int w) { return kModelStreams * w + 1; };
  const auto retrieval = [=](int w) { return last_preparation(w, workers); };
  for (int w = 0; w < workers; ++w) {
    add_chain(result, device_run(kNestStreams * w + kPreparations, kModelStreams),
              {.units = units});
    add_passes(result, exchange(w), batches, params.micro_batches);
  }
  for (int w = 0; w < workers; ++w) {
    const int first = add_services(result, kNestStreams * w, kPreparations, batches);
    for (int s = first; s < retrieval(w); ++s) {
      add_edge(result, Lane::Forward, s + 1, Lane::Forward, s, 2);  // two batches ago it was read
    }
    add_edge(result, Lane::Gradient, exchange(w), Lane::Forward, retrieval(w),
             2 * params.micro_batches);
    add_edge(result, Lane::Forward, retrieval(w), Lane::Forward, exchange(w));
  }
  add_exchange(result, workers, Lane::Forward, retrieval, Lane::Forward, exchange);
  add_exchange(result, workers, Lane::Gradient, dense, Lane::Gradient, exchange);
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
    .check = check,
    .order = order,
    .most_activations = most,
    .needs = "embedding tables: state it in a recommendation network",
};

}  // namespace orrery::sim
