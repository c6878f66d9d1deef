// SPDX-License-Identifier: Apache-2.0
// Pipelines that never flush: 1F1B over all iterations, with an update of a stage after every
// `per_update` of its backwards (PipeDream, PipeDream-2BW, XPipe).
#pragma once

#include "sim/schedule.hpp"

namespace orrery::sim {

// One chain of p stages with as many micro-batches as all iterations have; the params pass
// check_without_flush.
PipelineOrder without_flush(const ScheduleParams& params, int per_update, Versions versions);

// The lists of such a pipeline with an update after each backward and at most the micro-batches of
// an iteration in flight: 1F1B, or with fewer than stages by arrival, gradients first.
std::vector<std::vector<Pass>> lists_by_arrival(const ScheduleParams& params);

// What all of them ask: one chunk, at least `least` micro-batches per update, and no parameter but
// iterations that few schedules have.
Refusal check_without_flush(const ScheduleParams& params, int least);
// The same of schedules whose stages may be replicated (sim/orders/replicated_stages.hpp): these
// update at least once a round of their replicas. Whole turns of micro-batches, and at least as
// many for an update as are in flight, or one.
PipelineOrder dealt_without_flush(const ScheduleParams& params, int per_update, Versions versions);
enum class Least : std::uint8_t { One, InFlight };
Refusal check_dealt(const ScheduleParams& params, Least least);
// `least` micro-batches per iteration, and sizes within the limits with all iterations.
Refusal check_asynchronous(const ScheduleParams& params, int least);
// All workers of such pipelines side by side (params.replicas), within what takes some seconds and,
// with passes of a second, within the range of times; never are there more than `most`. One alone
// is bound by check_asynchronous.
Refusal check_workers_together(const ScheduleParams& params, int most);
// Iterations of the run: the given number, or so many that the middle is steady.
int iterations_of(const ScheduleParams& params);
// Updates between the parameters that a micro-batch uses and its own, where `workers` pipelines
// push waves of `wave` micro-batches under a clock of this distance; alone a worker knows
// `of_worker`. HetPipe's s_global: (D + 1) Nm + Nm - 2.
int staleness_of_waves(int of_worker, int workers, int wave, int distance);

}  // namespace orrery::sim
