// SPDX-License-Identifier: Apache-2.0
// Random plans: the flat mode against the hierarchical simulation, all ranks against one.
#include "plan/flat/flat.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "plan/stages.hpp"
#include "sim/engine/fold.hpp"
#include "tests/property/drawing.hpp"
#include "tests/unit/plan/flat_fixture.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

BlockPlan any_layout() {
  BlockPlan layout;
  layout.tp = pick({1, 2, 4});
  layout.cp = pick({1, 1, 2});
  layout.sequence_parallel = layout.tp > 1 && coin();
  layout.context =
      pick({ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Ulysses});
  layout.recompute = pick({Recompute::None, Recompute::Selective, Recompute::Full});
  return layout;
}

// 16 GPUs; `beside` allows data-parallel traffic next to passes.
Plan any_plan(bool beside) {
  models::NetworkSpec spec = small_spec();
  spec.layers = pick<std::int64_t>({4, 5, 8});
  spec.kv_heads = pick<std::int64_t>({16, 16, 2});
  spec.tied_embeddings = coin();
  if (coin()) {
    spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
  }
  Plan plan = small_plan(spec);
  BlockPlan layout = any_layout();
  plan.pp = pick({1, 2});
  plan.dp = 16 / (layout.tp * layout.cp * plan.pp);
  if (spec.moe.experts > 0 && plan.dp > 1) {
    layout.ep = pick({1, 2});
    layout.ep_inside = pick({ExpertsInside::Data, ExpertsInside::Context, ExpertsInside::Tensor});
  }
  layout.zero_stage = beside ? pick({0, 1, 2, 3}) : 0;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  plan.chunks = plan.pp > 1 ? pick({1, 2}) : 1;
  plan.schedule = plan.chunks > 1
                      ? pick<const char*>({"interleaved", "breadth-first", "v-half", "hanayo"})
                      : pick<const char*>({"1f1b", "gpipe", "zb-h1", "zb-2p"});
  plan.batch = plan.dp * plan.pp * pick({1, 2, 3});
  plan.stage_blocks = even_stages(plan.network, plan.pp * plan.chunks);
  Execution& execution = plan.execution;
  execution.overlap_grad_reduce = beside && coin();
  execution.overlap_param_gather = beside && coin();
  execution.overlap_tp = coin();
  execution.overlap_p2p = coin();
  execution.serial_exchanges = coin();
  execution.synchronised_messages = coin();
  execution.stream_tp = coin();
  execution.reshard_after_forward = coin();
  check_plan(plan, "property");
  return plan;
}

// The decisions, without network and cluster.
std::string text(const Plan& plan) {
  std::string result;
  const Json document = to_json(plan);
  for (const auto& [key, value] : document.as_object()) {
    if (key != "network" && key != "cluster" && key != "profile") {
      result += key + ": " + value.dump(0) + "\n";
    }
  }
  return result;
}

TEST(FlatProperty, EqualsHierarchyWhereNothingCompetes) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_plan(false);
    const FlatSimulation flat = simulate_flat(plan);
    const Seconds difference = flat.iteration_time - simulate(plan).iteration_time;
    RC_LOG() << text(plan);
    RC_ASSERT(std::abs(difference.value()) <=
              1e-12 * static_cast<double>(flat.program.num_nodes()));
  }));
}

TEST(FlatProperty, StaysWithinTheBoundOfTheHierarchy) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_plan(true);
    const FlatSimulation flat = simulate_flat(plan);
    const Seconds hierarchical = simulate(plan).iteration_time;
    const FlatBound bound = flat_bound(plan, flat.program.num_nodes());
    RC_LOG() << text(plan) << "flat " << flat.iteration_time.value() << " hierarchical "
             << hierarchical.value() << " bound " << bound.above.value() << " "
             << bound.below.value() << "\n";
    RC_ASSERT(flat.iteration_time <= hierarchical + bound.above);
    RC_ASSERT(flat.iteration_time + bound.below >= hierarchical);
  }));
}

TEST(FlatProperty, AllRanksTakeTheTimeOfOneAndFoldToIt) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_plan(true);
    const FlatSimulation one = simulate_flat(plan, {.merge_kernels = true});
    const FlatSimulation all = simulate_flat(plan, {.all_ranks = true, .merge_kernels = true});
    RC_ASSERT(all.timeline.makespan == one.timeline.makespan);
    RC_ASSERT(sim::run(sim::fold(all.program).program).makespan == all.timeline.makespan);
  }));
}

}  // namespace
}  // namespace orrery::plan
