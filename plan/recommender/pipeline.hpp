// SPDX-License-Identifier: Apache-2.0
// NestPipe's two pipelines of a recommendation step (sim/schedules/nestpipe.cpp): batches are
// prepared ahead (copy to the device, indices to their tables, lookups) on streams of their own,
// and inside a batch the exchange of pooled rows runs beside the dense network of the micro-batch
// before or after, with parameters frozen. Rows that two batches share are copied between the two
// buffers after the update; how many follows from Zipf's law: of n draws D(n) rows are distinct, so
// of two batches 2 D(n) - D(2 n) are in both. Ranks are alike but for the slowest, whose times all
// have, so one worker stands for all. Streams do not slow each other down. Source: Jiang et al.
// 2026 (arXiv 2604.06956), sections on dual-buffer and frozen-window pipelining. O(batches x
// micro-batches).
#pragma once

#include <vector>

#include "plan/recommender/recommender.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

struct NestedStep {
  Seconds period;       // from one batch to the next in the steady state
  Seconds shared_rows;  // the synchronisation of rows that two batches share
  Bytes buffers;        // both embedding buffers on a rank
  // The batches that were run, with spans.
  sim::PipelineOrder order;
  sim::PipelineCosts passes;
  sim::PipelineResult run;
};
// What virtual stages of `order` do.
std::string_view nested_stage_name(std::size_t virtual_stage);

// `whole` is the network's cost without the schedule.
NestedStep nested_step(const Recommender& network, const RecommenderCost& whole);

// Adds to the cost of a step in turn what the schedule makes of it: time, buffers and whether it
// fits.
void add_nested(const Recommender& network, RecommenderCost& cost);
// Micro-batches that the schedule can have: powers of two that cut the samples of a rank evenly.
std::vector<int> nested_micro_batches(const Recommender& network);

}  // namespace orrery::plan
