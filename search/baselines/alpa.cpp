// SPDX-License-Identifier: Apache-2.0
// Two levels, one after the other: for every submesh of a stage and micro-batch the layout that
// exchanges least and fits (the intra-operator pass), then over those the stage count with the
// least sum of stages + (micro-batches - 1) x slowest stage (the inter-operator pass). Neither sees
// what the schedule hides or exposes. Layers are recomputed, stages run 1F1B on submeshes of equal
// size.
#include <fmt/format.h>

#include <map>
#include <tuple>

#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "search/baseline.hpp"
#include "search/space/fitting_plans.hpp"
#include "search/stage_times.hpp"

namespace orrery::search {
namespace {

struct Candidate {
  StageTimes times;
  plan::Plan plan;
};
using Submesh = std::tuple<int, std::int64_t>;  // stages, sequences of a micro-batch on all ranks

// The layout of every submesh that exchanges least.
std::map<Submesh, Candidate> intra_operator(const Space& space, plan::Simulator& simulator,
                                            const Deadline& deadline, std::int64_t& plans) {
  std::map<Submesh, Candidate> best;
  const auto stop = [&] { return deadline.over() || interrupted(); };
  plans +=
      for_fitting_plans(space, simulator, stop, [&](const Group& group, const plan::Plan& plan) {
        const StageTimes times = stage_times(simulator, plan);
        const Submesh submesh(group.pp, group.micro_batch * group.dp);
        const auto found = best.find(submesh);
        if (found == best.end() || times.communication < found->second.times.communication) {
          best.insert_or_assign(submesh, Candidate{times, plan});
        }
      });
  return best;
}

BaselineChoice two_levels(const plan::Plan& base, const Options& options) {
  const Deadline deadline(options, Seconds());
  const Space space(base, options.constraints);
  plan::Simulator simulator(base);
  BaselineChoice choice;
  Seconds least;
  const std::map<Submesh, Candidate> submeshes =
      intra_operator(space, simulator, deadline, choice.plans);
  for (const auto& [submesh, candidate] : submeshes) {
    const auto waits = static_cast<double>(candidate.plan.num_micro_batches() - 1);
    const Seconds estimate = candidate.times.all + candidate.times.slowest * waits;
    if (!choice.found || estimate < least) {
      least = estimate;
      choice.found = Found{candidate.plan, {}};
    }
  }
  if (!choice.found) {
    choice.note = fmt::format("none of {} fits", counted(choice.plans, "plan"));
    note_end(deadline, choice);
    return choice;
  }
  choice.found->simulation = simulator.run(choice.found->plan);
  choice.note = "estimated " + format_duration(least);
  note_end(deadline, choice);
  return choice;
}

}  // namespace

extern const Baseline baseline_alpa = {
    .name = "alpa",
    .description = "two levels: least communication per submesh, then the pipeline's closed form",
    .source = "Zheng et al., Alpa, OSDI 2022 (arXiv 2201.12023), sections 4 and 5",
    .fix = "cp=1,chunks=1,schedule=1f1b,recompute=full",
    .choose = two_levels,
};

}  // namespace orrery::search
