// SPDX-License-Identifier: Apache-2.0
// How long the passes of a pipeline take at least, whatever the lists of its schedule. On device d
// nothing starts before one micro-batch came through the stages before the first one it holds
// (`head`); it then has all its passes to run. Its last gradient is of that stage, and the stages
// before it still have theirs of that micro-batch to run afterwards (`tail`). Only weight gradients
// of cut backwards, and some passes of an output layer over all devices, may come later than the
// last gradient (`late`).
//     max over d (head(d) + max(passes(d), passes(d) - late(d) + tail(d)))
// O(virtual stages), no lists.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

// Where a family of schedules puts the virtual stages.
struct StagePlacement {
  std::vector<std::uint16_t> device_of;  // of chain 0, or of both copies of the model
  bool whole_backwards = true;           // no backward is cut
  bool two_directions = false;
  bool joins_passes = false;       // a forward and a backward may hide a part of each other
  bool shares_ends = false;        // embedding and head are cut over all devices
  bool fills_frozen = false;       // frozen blocks run beside the stages
  bool by_modules = false;         // no stage has blocks of the encoder and the decoder
  bool copies_to_host = false;     // activations wait on the host, not on the device
  bool spreads_attention = false;  // parts of a stage run on other devices
  bool recomputes = false;         // an activation may be there from its recomputation on alone
  bool undecided = false;  // where stages, or their gradients and updates, run comes with the lists
  bool flushes = true;     // synchronous: passes of one iteration do not meet those of the next
  bool operator==(const StagePlacement&) const = default;
};

// Passes of one virtual stage for one micro-batch, and the transfer to the next one.
struct StagePasses {
  SimTime forward;
  SimTime backward;  // both parts of a cut one
  SimTime send;
  // Where a micro-batch travels in slices: the shortest passes of one.
  SimTime slice_forward = forward;
  SimTime slice_backward = backward;
  SimTime late = {};         // of `backward`, what the gradient need not wait for
  SimTime send_back = send;  // of the gradient, from the next one
};
// Of a stage of an encoder that runs in parts: all of them, though the next stage may begin after
// one.
void repeat_passes(double runs, StagePasses& passes);
// What every device has to do in a whole run beside the chain, not before its first pass of it:
// before its last gradient ends, and at any time.
struct BesideChain {
  SimTime before;
  SimTime late;
};
// The bound on the passes alone.
SimTime pipeline_floor(const std::vector<StagePasses>& stages, const StagePlacement& placement,
                       int devices, std::int64_t micro_batches, const BesideChain& beside = {});

// Cuts the backwards of a stage, `whole` without what waits for messages, as the schedule does: all
// of them, or some.
void cut_backward(const Plan& plan, const SplitTimes& cut, SimTime whole, StagePasses& passes);
// Shards of embedding and head on every device.
BesideChain shard_work(const Plan& plan, const StageCost& output, const StageCost& input);

}  // namespace orrery::plan
