// SPDX-License-Identifier: Apache-2.0
#include "search/packed_layouts.hpp"

#include <initializer_list>
#include <utility>

#include "plan/heads.hpp"
#include "plan/packs.hpp"
#include "plan/stage/chain_work.hpp"
#include "plan/stages.hpp"

namespace orrery::search {
namespace {

// `plan` has its schedule and degrees but tp; `work` is that of its chain, where it has stages.
void add_layouts(plan::Plan plan, int tp, const std::vector<std::int64_t>& work,
                 std::initializer_list<int> zero_stages, const Constraints& constraints,
                 std::vector<plan::Plan>& plans) {
  const auto chain = static_cast<int>(plan.network.chain.size());
  plan.chunks = 1;
  plan.micro_batch = 1;
  plan.stage_blocks = plan.pp == 1 ? std::vector<int>{chain} : plan::balanced_stages(work, plan.pp);
  plan::BlockPlan layout;
  constraints.apply(layout);
  layout.tp = tp;
  for (const int zero : zero_stages) {
    for (const plan::Recompute recompute :
         {plan::Recompute::None, plan::Recompute::Selective, plan::Recompute::Full}) {
      for (const bool sequence_parallel : {false, true}) {
        if ((zero > 0 && plan.dp == 1) || (sequence_parallel && tp == 1) ||
            !constraints.admits("zero", zero) ||
            !constraints.admits("recompute", plan::to_text(recompute)) ||
            !constraints.admits("sequence_parallel", sequence_parallel ? "true" : "false")) {
          continue;
        }
        layout.zero_stage = zero;
        layout.recompute = recompute;
        layout.sequence_parallel = sequence_parallel;
        plan.blocks = {{chain, layout}};
        plans.push_back(plan);
      }
    }
  }
}

}  // namespace

std::vector<plan::Plan> pipeline_layouts(const plan::Plan& base, const Constraints& constraints,
                                         const std::string& schedule) {
  std::vector<plan::Plan> plans;
  const std::vector<std::int64_t> work = plan::work_of_chain(base);
  const int gpus = base.cluster.num_gpus();
  for (int tp = 1; tp <= base.cluster.node.gpus; tp *= 2) {
    for (int pp = 1; tp * pp <= gpus && pp <= base.network.spec.layers; ++pp) {
      const int dp = gpus / (tp * pp);
      if (dp * tp * pp != gpus || dp > base.batch || !plan::cuts_evenly(base.network.spec, tp) ||
          !constraints.admits("tp", tp) || !constraints.admits("pp", pp) ||
          !constraints.admits("dp", dp)) {
        continue;
      }
      plan::Plan plan = base;
      plan.schedule = schedule;
      plan.dp = dp;
      plan.pp = pp;
      add_layouts(std::move(plan), tp, work, {0, 1}, constraints, plans);
    }
  }
  return plans;
}

std::vector<plan::Plan> group_layouts(const plan::Plan& base, const Constraints& constraints) {
  std::vector<plan::Plan> plans;
  const int gpus = base.cluster.num_gpus();
  for (int tp = 1; tp <= base.cluster.node.gpus; tp *= 2) {
    const int dp = gpus / tp;
    if (gpus % tp != 0 || !plan::cuts_evenly(base.network.spec, tp) || dp > kMostPackedRanks ||
        !constraints.admits("tp", tp) || !constraints.admits("dp", dp)) {
      continue;
    }
    plan::Plan plan = base;
    plan.schedule = "flexsp";
    plan.dp = dp;
    plan.pp = 1;
    add_layouts(std::move(plan), tp, {}, {0, 1, 2, 3}, constraints, plans);
  }
  return plans;
}

}  // namespace orrery::search
