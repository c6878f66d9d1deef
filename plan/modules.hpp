// SPDX-License-Identifier: Apache-2.0
// Networks of two modules, an encoder in front of a decoder (models::EncoderSpec), in schedules
// that know of them. `diffusionpipe` takes a frozen encoder out of the stages: every device holds a
// copy and runs it for its part of the micro-batches of the next iteration, in portions of one
// layer and micro-batch, in idle times. `dip` gives the encoder stages of its own, a whole number
// over the devices, and runs it in `encoder_parts` parts of a micro-batch. All others treat the
// encoder's blocks as the first ones of the chain. A cascade (models::CascadeSpec) has a second
// backbone at the end of the chain. `diffusionpipe-cascaded` gives it stages of its own, a device's
// second chunk, that it goes through the other way; without a pipeline the blocks of both run one
// after the other.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/schedule_traits.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

// Layers of the chain, without embeddings and heads: every stage has one at least.
int layers_of(const models::Network& network);
// Positions of the chain that belong to the encoder; they are its first ones.
int encoder_positions(const models::Network& network);
bool encoder_is_frozen(const models::Network& network);
// Positions at the begin of the chain without a backward: a frozen encoder, or the embedding below
// the first adapters. Nothing is sent back to stages that hold no others.
int frozen_positions(const models::Network& network);

// Where the second backbone of a cascade begins in the chain; its length without one.
int second_backbone(const models::Network& network);

// Portions in which `diffusionpipe` runs the encoder for a micro-batch.
int frozen_portions(const models::Network& network);
// Forwards of virtual stage `stage` (of stage_contents), and of a block of the chain, for each
// micro-batch: parts of one count each, stages that share out the micro-batches less than one.
double runs_of_stage(const Plan& plan, std::size_t stage);
double runs_of_block(const Plan& plan, int block);

// Virtual stages of the encoder over all devices, of a plan with `dip`; 0: a stage has blocks of
// both modules, or they do not come out even.
int encoder_segments(const Plan& plan);
// Whether a network with a cascade runs in a schedule on so many virtual stages.
bool takes_cascade(const ScheduleTraits& traits, int virtual_stages);
// "" when encoder_parts divide the items of a micro-batch, else the smallest change; O(1).
std::string encoder_parts_problem(const Plan& plan);
// "" when the plan's network and stages have what the schedule needs, else what to add.
std::string modules_problem(const Plan& plan);

// How a chain is cut for a kind of schedule.
enum class ModuleCut : std::uint8_t {
  OneChain,
  FrozenApart,  // stages of the trained blocks alone; the encoder counts to the first one
  Cascaded,     // the same of each of two backbones
  ByModules,    // as many segments for each module as its share of the forward FLOPs says
};
ModuleCut module_cut(const Plan& plan);
ModuleCut module_cut(const sim::Schedule& schedule, const models::Network& network);
// Chain positions per virtual stage; empty where there is no such cut. Even, or balanced by `work`
// of each position of the chain (plan/stages.hpp).
std::vector<int> cut_stages(const models::Network& network, std::int64_t sequence, int pp,
                            int chunks, ModuleCut cut, std::span<const std::int64_t> work = {});

}  // namespace orrery::plan
