// SPDX-License-Identifier: Apache-2.0
// The stages of a plan under another schedule. Schedules put stages, encoders and the head in
// different places, so that a cut balanced for one of them is out of balance under another: each
// gets the cut that a search would give it. Where both cut the network's modules alike, two kinds
// of plans stay what they are: even ones, as launchers cut them, stay even, and a cut that comes
// from neither rule is kept wherever there are as many stages.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "plan/plan.hpp"

namespace orrery::studies {

enum class StageCut : std::uint8_t { AsPlanned, Even, Balanced };
std::string_view to_text(StageCut cut);  // "as planned", "even", "balanced"

// By which plans are compared: those that fit come first, then the faster ones.
std::pair<bool, Seconds> rank_of(const plan::Plan& plan);

// `changed` is `plan` with another schedule or number of chunks, which it can run as it is. Of a
// balanced plan the even and the balanced cut are simulated, and its own where modules are cut
// alike into as many stages; the fastest one that fits is taken. Likewise whether weights are
// shipped, where only the other schedule spreads attention.
StageCut cut_for_schedule(const plan::Plan& plan, plan::Plan& changed);

}  // namespace orrery::studies
