// SPDX-License-Identifier: Apache-2.0
// A simulated plan explained, as text and as JSON with the names of docs/cli.md: where the
// time of the busiest stage goes, the critical path through the pipeline, memory per stage.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::cli {

struct TimeShare {
  std::string key;   // of JSON: "compute", "tp", "bubble", ...
  std::string name;  // for people
  Seconds time;
};
// Parts of the iteration on the busiest stage; they sum to the iteration time.
std::vector<TimeShare> time_shares(const plan::Simulation& simulation);

// Less than a picosecond, the unit of simulated time: two ways of adding up the same.
bool is_rounding(Seconds difference);
// What is left of the iteration time: slowdown by overlap, and waiting.
Seconds other_time(const plan::Simulation& simulation);

// US dollars for 10^12 tokens; nothing when the price of the GPU is not known.
std::optional<double> dollars_per_trillion_tokens(const plan::Plan& plan,
                                                  const plan::Simulation& simulation);

// "Llama... on hgx-h100:8 (64 x h100-sxm5-80gb), batch 512, sequence 8192, bf16"
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
// Whether an iteration has a critical path: recorded, and not running into the next one as those of
// asynchronous schedules and of post-validation do.
bool has_path(const plan::Plan& plan, const plan::Simulation& simulation);
std::string explanation(const plan::Plan& plan, const plan::Simulation& simulation);

// The members that `plan` and `simulate` share; `plan` last.
Json::Object simulation_json(const plan::Plan& plan, const plan::Simulation& simulation);

}  // namespace orrery::cli
