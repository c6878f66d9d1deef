// SPDX-License-Identifier: Apache-2.0
// What a pipeline schedule is, registered (sim/schedule.hpp) or written as a document
// (sim/orders/schedule_document.hpp).
#pragma once

namespace orrery::sim {

struct ScheduleTraits {
  bool synchronous = true;
  bool splits_backward = false;      // some backwards run as input and weight gradient, B and W
  bool cuts_every_backward = false;  // no backward is whole
  bool uses_chunks = false;          // devices may have several chunks of the model
  bool uses_slices = false;          // sequences may be cut into slices
  bool uses_times = false;           // the order depends on what the passes cost
  bool two_directions = false;       // two copies of the model on the same devices
  bool joins_passes = false;         // a forward and a backward run as one block
  bool shares_output_layer = false;  // embedding and head are cut over all devices
  int output_barriers = 0;           // of their passes; 0: all devices run them together
  bool shares_attention = false;     // devices even out the attention of equal slices
  bool fills_frozen = false;         // frozen layers run in idle times, apart from the stages
  bool cascades = false;             // two trained backbones of one network, each in a direction
  bool by_modules = false;           // an encoder has stages of its own, apart from the decoder's
  bool uses_servers = false;         // gradients go to parameter servers, not to data ranks
  bool pushes_waves = false;         // of these: workers are pipelines, under a clock
  bool copies_to_host = false;       // activations leave for the host and return, beside the passes
  bool spreads_attention = false;  // a layer's attention is on all devices, parts beside it on one
  bool runs_arcs = false;          // gradients and updates are on other devices than the forwards
  bool packs_sequences = false;    // no pipeline: packs of sequences run on groups of their own
  bool predicts_weights = false;   // passes use parameters as the next updates will leave them
  // Of documents, whose lists may hold them beside the plain passes.
  bool recomputes = false;     // passes run a stage's forward again
  bool lists_updates = false;  // a synchronous schedule says when each stage updates
};

}  // namespace orrery::sim
