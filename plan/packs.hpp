// SPDX-License-Identifier: Apache-2.0
// Schedules that run packs of sequences on groups of their own (`flexsp`) in plans. A micro-batch
// is several packs side by side, each on a group of data-parallel ranks of its own size, aligned,
// over which Ulysses exchanges sequence for heads. A pack costs what a plan with that degree of
// context parallelism on all ranks costs for as many tokens, states sharded over all ranks as
// everywhere; attention is one kernel in which every sequence sees itself alone. Where ZeRO gathers
// parameters or reduces in every micro-batch (stages 2 and 3) all ranks meet in it, so that the
// slowest pack counts; otherwise they meet at the end of the step. Sequences are padded to what a
// group divides. Source: FlexSP (arXiv 2412.01523), section 4.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "sim/schedule.hpp"

namespace orrery {
class JsonReader;
}

namespace orrery::plan {

std::vector<std::vector<Pack>> read_packs(const JsonReader& value);
Json packs_json(const std::vector<std::vector<Pack>>& packs);

// "" when the plan has packs exactly if its schedule runs some, and they suit its layout, ranks and
// batch; else the smallest change.
std::string packs_problem(const Plan& plan);

// "8, 4 and 1": the sizes of the groups that its packs run on.
std::string group_sizes_text(const Plan& plan);

// Ranks and groups as the schedule counts them.
void tell_packs(const Plan& plan, sim::ScheduleParams& params);

// All ranks in groups of the pack's size, each with such a pack, for one micro-batch.
Plan plan_of_pack(const Plan& plan, const Pack& pack);
// The one with most tokens on a rank.
const Pack& fullest_pack(const Plan& plan);

}  // namespace orrery::plan
