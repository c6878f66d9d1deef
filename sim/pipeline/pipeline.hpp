// SPDX-License-Identifier: Apache-2.0
// A pipeline: an order of passes together with the cost of each. The execution model is
// strict list order per device, a pass starts when the device is free and
// its inputs have arrived; a transfer takes its latency and does not occupy the compute stream.
// Two evaluations, tested equal to the event engine on the expanded program:
//   evaluate_pipeline   dependency-order sweep with the exact steady-state shortcut
//   expand_pipeline     the equivalent flat Program (streams, Works, transfers, buffers)
// Steady state: lists that repeat (same passes, micro-batch + k) give a max-plus linear recurrence;
// once the whole frontier of times has moved by one constant over a period, the remaining
// repetitions move by that constant, too, and are skipped exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/sim_time.hpp"
#include "base/units.hpp"
#include "sim/engine/engine.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {

// Costs per virtual stage (index s) of one micro-batch.
struct PipelineCosts {
  std::vector<SimTime> forward;
  std::vector<SimTime> input_grad;   // B of split backwards
  std::vector<SimTime> weight_grad;  // W of split backwards
  std::vector<SimTime> backward;     // fused
  // Transfer of the activation from s to s + 1 and of the gradient from s + 1 to s (size V - 1).
  // Between chunks of one device no transfer happens and the entry must be 0.
  std::vector<SimTime> send_forward;
  std::vector<SimTime> send_backward;
  // Added to the last backward pass of a virtual stage (exposed gradient reduction and the like);
  // empty means none.
  std::vector<SimTime> last_backward_extra;
  // Added to the first forward pass of a virtual stage (exposed parameter gathers); may be empty.
  // Both may be negative, down to a pass of no length.
  std::vector<SimTime> first_forward_extra;
  // Activation bytes one micro-batch keeps per virtual stage from its forward to its backward end
  // and the transient workspace of a running forward and backward pass; may be empty.
  std::vector<ByteCount> activation;
  std::vector<ByteCount> forward_workspace;
  std::vector<ByteCount> backward_workspace;
  // Part of `activation` that a split backward keeps from its input gradient to its weight
  // gradient; empty means all of it.
  std::vector<ByteCount> weight_grad_activation;
  std::vector<SimTime> recompute;  // for orders with such passes
  // What a forward keeps whose activation a recompute pass rebuilds; empty: there is none.
  std::vector<ByteCount> boundary;
  std::vector<SimTime> optimizer;
  // Of the transfer along each edge of the order; empty means none.
  std::vector<SimTime> edge_latency;
  // Durations of single units, by virtual stage x units + unit, instead of the ones above (units
  // of different length); each empty or complete.
  std::vector<SimTime> unit_forward;
  std::vector<SimTime> unit_input_grad;
  std::vector<SimTime> unit_weight_grad;
  std::vector<SimTime> unit_backward;
  // Of the transfers above by virtual stage s x units + unit; those of the last virtual stage do
  // not matter.
  std::vector<SimTime> unit_send_forward;
  std::vector<SimTime> unit_send_backward;
  // What a forward and a backward take less as one block (sim/schedule.hpp) than one after the
  // other, no more than either: `hidden` by the kind of the forward's virtual stage and, next to
  // each other, of the backward's; `kind_of` the kinds by virtual stage. Empty: nothing.
  std::vector<std::uint16_t> kind_of;
  std::vector<SimTime> hidden;
  std::uint16_t kinds = 0;
  // Point-to-point that blocks the compute streams of both ends until both are there (rendezvous).
  bool blocking_rendezvous = false;

  bool units_differ() const {
    return !unit_forward.empty() || !unit_input_grad.empty() || !unit_weight_grad.empty() ||
           !unit_backward.empty() || !unit_send_forward.empty() || !unit_send_backward.empty();
  }
  // Of the activation of a unit that leaves virtual stage `s`, and of its gradient on the way back.
  SimTime send_forward_of(std::size_t s, std::size_t unit) const {
    return unit_send_forward.empty() ? send_forward[s]
                                     : unit_send_forward[place(s, unit, unit_send_forward)];
  }
  SimTime send_backward_of(std::size_t s, std::size_t unit) const {
    return unit_send_backward.empty() ? send_backward[s]
                                      : unit_send_backward[place(s, unit, unit_send_backward)];
  }

 private:
  std::size_t place(std::size_t s, std::size_t unit, const std::vector<SimTime>& of_units) const {
    return s * (of_units.size() / (send_forward.size() + 1)) + unit;
  }
};

struct DeviceUse {
  SimTime first_start;
  SimTime last_end;
  SimTime busy;
  SimTime hidden;  // what passes that ran as one block took less
  // Idle time inside [first_start, last_end] by phase: before the first backward starts, between,
  // after the last forward ends.
  SimTime idle_warm_up;
  SimTime idle_steady;
  SimTime idle_cool_down;
  SimTime waiting_for_transfer;  // part of the idle time in which only a transfer was missing
  ByteCount peak_activation;     // bytes, activations and workspace
  std::int64_t peak_chunks;      // live (virtual stage, micro-batch) activations, at most
};

struct PassSpan {
  Pass pass;
  SimTime start;
  SimTime end;
};

struct PipelineResult {
  SimTime makespan;
  std::vector<DeviceUse> devices;
  std::vector<SimTime> last_backward_end;    // per virtual stage: end of its last gradient pass
  std::vector<std::vector<PassSpan>> spans;  // per device, only with record_spans
  std::int64_t passes_evaluated = 0;         // smaller than the list when the shortcut was taken
  std::int64_t passes_total = 0;
};

struct PipelineOptions {
  bool steady_state = true;
  bool record_spans = false;  // disables the shortcut
};

// Of `second` right after `first`.
SimTime hidden_by_joining(const PipelineCosts& costs, const Pass& first, const Pass& second);

// Deadlock of the order itself (never for registered schedules) is a bug; check_order finds it.
// Blocking transfers are outside this model: expand the pipeline and run() it. Times or bytes that
// could leave their 64-bit range are an Error. O(passes), and O(passes before the steady state)
// apart from comparing the lists with themselves when the shortcut applies.
PipelineResult evaluate_pipeline(const PipelineOrder& order, const PipelineCosts& costs,
                                 const PipelineOptions& options = {});

// When the lists of a plain order end: the makespan of evaluate_pipeline, several times as fast.
// Nothing once a device has idled, counted from time 0 on, for its `idle_within` or longer. Costs
// without what only some units take. O(passes run).
std::optional<SimTime> makespan_within(const PipelineOrder& order, const PipelineCosts& costs,
                                       const std::vector<std::int64_t>& idle_within);

// When the passes of a plain order end, by device and place in its list. Costs as of
// makespan_within. O(passes).
std::vector<std::vector<SimTime>> pass_ends(const PipelineOrder& order, const PipelineCosts& costs);

// No run takes longer, in picoseconds: all passes and transfers one after the other.
double longest_run(const PipelineOrder& order, const PipelineCosts& costs);
inline constexpr double kLongestRun = 9.0e18;
// Error when a run that may take so long could leave the range of times.
void check_longest_run(double picoseconds);

Program expand_pipeline(const PipelineOrder& order, const PipelineCosts& costs);

// "" when every (virtual stage, unit) has exactly one forward and, unless its chain is
// forward-only, one fused or one split backward, slices of a micro-batch forward in order and back
// in reverse, in an order that can run; else what is wrong.
std::string check_order(const PipelineOrder& order, int micro_batches);

}  // namespace orrery::sim
