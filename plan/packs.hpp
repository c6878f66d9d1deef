// SPDX-License-Identifier: Apache-2.0
// Micro-batches of sequences of any lengths. A pack is what one group of ranks takes together:
// sequences behind one another, of which each sees itself alone (one attention kernel), or padded
// to the longest of them, or one sequence that travels in slices. Sequences are padded to what the
// ranks that share their tokens divide.
//
// In a pipeline (`dynapipe`, `infinipipe`: runs_units_of_any_length) a group is a data-parallel
// replica: the k-th pack of a micro-batch is that of replica k, whose pipeline runs its packs one
// after the other; replicas with fewer of them stand last. Each pack costs, sends and holds what
// one does in a plan of such packs alone. Sources: DynaPipe (EuroSys 2024, arXiv 2311.10418),
// section 5; InfiniPipe (arXiv 2509.21275), elastic pipeline.
//
// Without one (`flexsp`) a micro-batch is several packs side by side, each on a group of
// data-parallel ranks of its own size, aligned, over which Ulysses exchanges sequence for heads. A
// pack costs what a plan with that degree of context parallelism on all ranks costs for as many
// tokens, states sharded over all ranks as everywhere. Where ZeRO gathers parameters or reduces in
// every micro-batch (stages 2 and 3) all ranks meet in it, so that the slowest pack counts;
// otherwise they meet at the end of the step. Source: FlexSP (arXiv 2412.01523), section 4.
#pragma once

#include <cstdint>
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

// Ranks, groups and slices as the schedule counts them.
void tell_packs(const Plan& plan, sim::ScheduleParams& params);

// The layout alone: what many packs share, so that none copies all the others.
Plan without_packs(const Plan& plan);
// A plan of such packs alone, one micro-batch of them on all ranks: in groups of the pack's size.
// `layout` is without_packs() of the plan.
Plan plan_of_pack(const Plan& layout, const Pack& pack);
// Makes a plan of other packs of a pipeline one of such packs, without a copy of all else.
void set_pack(const Pack& pack, Plan& alone);

// Distinct packs by what they hold.
struct PackLess {
  bool operator()(const Pack& a, const Pack& b) const;
};
// The one with most tokens on a rank, padding included.
const Pack& fullest_pack(const Plan& plan);

// Packs of an iteration that hold and send the same: on as many ranks as many tokens, in the same
// slices. The largest groups first, of those the longest packs.
struct PackShape {
  Plan plan;  // of one of them (plan_of_pack)
  int group = 1;
  int count = 0;
};
std::vector<PackShape> pack_shapes(const Plan& plan);

// Whether its micro-batches may be packs in a pipeline: one chain of whole passes, whose lists
// stand whatever the units are.
bool runs_units_of_any_length(const sim::ScheduleTraits& traits);
// Whether they are.
bool runs_packed_pipeline(const Plan& plan);
// The packs of one replica in order, as a plan of as many micro-batches.
struct PackedReplica {
  Plan plan;
  int count = 1;  // of replicas with the same packs
};
// Distinct ones, in the order of the first of each.
std::vector<PackedReplica> packed_replicas(const Plan& plan);

// Slices of all micro-batches; of packs in a pipeline as many as the one with most of them has.
std::int64_t units_of(const Plan& plan);
// The tokens that are not padding.
std::int64_t tokens_of(const Pack& pack);

}  // namespace orrery::plan
