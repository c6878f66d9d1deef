// SPDX-License-Identifier: Apache-2.0
// DynaPipe's communication plan (EuroSys 2024, arXiv 2311.10418): what the executor of
// every device does, one instruction after the other. Messages of different size between the same
// two devices match by their place on the channel, and a receiver that posts another one first
// waits for ever. So the timeline says in which order: at the moment a pass ends, both ends of its
// message enqueue it, earlier messages first on all devices. Then the earliest message that is not
// done is next on both of its ends, whichever other ones wait, and nothing waits in a circle.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::search {

enum class Action : std::uint8_t {
  Forward,
  Backward,
  SendActivationStart,
  SendActivationWait,
  ReceiveActivationStart,
  ReceiveActivationWait,
  SendGradientStart,
  SendGradientWait,
  ReceiveGradientStart,
  ReceiveGradientWait,
  OptimizerStep
};
std::string_view to_text(Action action);  // "forward", "send-activation-start", ...

struct Instruction {
  Action action = Action::Forward;
  int micro_batch = -1;  // -1: of all of them
  int peer = -1;         // of a message
  bool operator==(const Instruction&) const = default;
};

// By device, of one chain of whole passes with a stage a device; `run` has the spans, none of which
// is empty. A receive is waited for before the pass that reads it, an activation that was sent
// before its backward, a gradient before the optimizer. O(passes log passes).
std::vector<std::vector<Instruction>> communication_plan(const sim::PipelineResult& run);

}  // namespace orrery::search
