// SPDX-License-Identifier: Apache-2.0
// What the pipeline schedule of a plan is, registered (sim/schedule.hpp) or written as a document
// (sim/orders/schedule_document.hpp), and what it asks of a plan.
#pragma once

#include <string>

#include "plan/plan.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

struct ScheduleTraits {
  bool synchronous = true;
  bool uses_times = false;       // lists depend on what the passes cost
  bool splits_backward = false;  // some backwards run as input and weight gradient
  bool two_directions = false;   // two copies of the model on the same devices
  bool joins_passes = false;     // a forward and a backward run as one block
  bool shares_output_layer = false;
  int output_barriers = 0;         // of its shards; 0: all devices run them together
  bool shares_attention = false;   // devices even out the attention of slices
  bool uses_slices = false;        // sequences may be cut into slices
  bool fills_frozen = false;       // frozen blocks run in idle times, apart from the stages
  bool cascades = false;           // two trained backbones of one network, each in a direction
  bool by_modules = false;         // an encoder has stages of its own, apart from the decoder's
  bool uses_servers = false;       // gradients go to parameter servers instead of data ranks
  bool pushes_waves = false;       // of these: workers are pipelines, under a clock
  bool copies_to_host = false;     // activations leave for the host and return, beside the passes
  bool spreads_attention = false;  // a layer's attention is on all devices, parts beside it on one
  bool runs_arcs = false;          // gradients and updates are on other devices than the forwards
  bool packs_sequences = false;    // no pipeline: packs of sequences run on groups of their own
  bool predicts_weights = false;   // passes use parameters as the next updates will leave them
  bool recomputes = false;         // lists have passes that run a stage's forward again
  bool lists_updates = false;      // a synchronous schedule says when each stage updates
};

ScheduleTraits schedule_traits(const Plan& plan);
ScheduleTraits schedule_traits(const sim::Schedule& schedule);

// The names of registered schedules with a trait, quoted: "a" or "b".
std::string schedules_with(bool sim::Schedule::*trait);

// Whether bounds by stage cannot be told: the devices of stages, or of their gradients and updates,
// come with the lists alone, or two chains of unlike stages share them.
bool lacks_stage_bounds(const Plan& plan);
bool lacks_stage_bounds(const sim::Schedule& schedule, int chunks);

// Whether the lists may hold a backward cut in two: an output layer over all devices with chunks
// runs on V-Half.
bool may_cut_backwards(const ScheduleTraits& traits, int chunks);

// Whether no backward of the schedule is whole.
bool cuts_every_backward(const Plan& plan);

// Why no plan can name a registered schedule; "" when plans can.
std::string reason_not_in_plans(const sim::Schedule& schedule);

}  // namespace orrery::plan
