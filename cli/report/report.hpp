// SPDX-License-Identifier: Apache-2.0
// A simulated plan explained, as text and as JSON with the names of docs/cli.md: where the
// time of the busiest stage goes, the critical path through the pipeline, memory per stage.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::cli {

// What options changed of the named network and cluster: ", layers=30, 2 GiB of a GPU kept free".
std::string overrides_text(const std::vector<std::string>& overrides, ByteCount reserve);
// "Llama... on hgx-h100:8 (64 x h100-sxm5-80gb), batch 512, sequence 8192, bf16", and what
// options changed
std::string subject_text(const plan::Plan& plan);
// The interval of a time; null and words where none was drawn.
std::string interval_text(Seconds low, Seconds high);
Json interval_json(Seconds low, Seconds high);
// "MFU counts causal attention in full; by half it is 48.1 %\n" where that matters: of long
// sequences more than what a GPU can do may be counted, as kernels leave out what the mask does.
std::string attention_counting_text(const plan::Plan& plan, const plan::Simulation& simulation);
// ", asynchronous: staleness 3, 4 weight versions"; nothing for synchronous schedules.
std::string staleness_text(const plan::Simulation& simulation);
ByteCount largest_memory(const plan::Simulation& simulation);
// A plan that fits by its categories may still not fit when it is replayed, which every report of
// one plan says.
void add_replayed_verdict(const plan::Plan& plan, const std::vector<plan::MemoryPeak>& peaks,
                          plan::Simulation& simulation);
// Whether an iteration has a critical path: recorded, and not running into the next one as those of
// asynchronous schedules and of post-validation do.
bool has_path(const plan::Plan& plan, const plan::Simulation& simulation);
// Whether it fits, time, throughput (for each of `gpus`, in words), utilisation and bubble.
std::string figures_text(const plan::Plan& plan, const plan::Simulation& simulation,
                         std::string_view gpus);
std::string explanation(const plan::Plan& plan, const plan::Simulation& simulation);

// peak_memory_bytes, memory_bytes and peak_owners, by stage.
void add_memory_json(const std::vector<plan::StageMemory>& memory, Json::Object& result);
// Members that say nothing of the plan.
Json::Object simulated_json(const plan::Simulation& simulation);
// The members that `plan` and `simulate` share; `plan` last.
Json::Object simulation_json(const plan::Plan& plan, const plan::Simulation& simulation);

}  // namespace orrery::cli
