// SPDX-License-Identifier: Apache-2.0
// The search on random small networks, machines and constraints: it finds what simulating every
// plan finds, bounds are admissible, and constraints never help.
#include "search/tree/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"
#include "tests/property/drawing.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

Shape any_shape() {
  Shape shape;
  shape.spec = pick<int>({0, 1}) == 0 ? small_spec(2) : small_mixture();
  shape.spec.tied_embeddings = pick({false, true});
  shape.spec.adapters.rank = pick<std::int64_t>({0, 0, 8});
  shape.cluster = pick<std::string>({"dgx-a100:1", "hgx-h100:2", "dgx-2:1", "l40s-8:2"});
  const bool two_nodes = shape.cluster.back() == '2';
  shape.overrides = {
      two_nodes ? "node.gpus=2" : "node.gpus=4",
      pick<std::string>({"gpu.memory=3 GiB", "gpu.memory=5 GiB", "gpu.memory=80 GiB"})};
  shape.batch = pick<std::int64_t>({2, 4, 8});
  shape.sequence = pick<std::int64_t>({512, 2048});
  return shape;
}

Constraints any_constraints() {
  Constraints constraints;
  constraints.fix(pick<std::string>(
      {"cp=2", "cp=1", "pp=2", "tp=2", "recompute=full", "micro_batch=1", "zero=2", "zero=3",
       "slices=2", "schedule=slimpipe", "schedule=combined-1f1b", "tp=2,expert_tp=1", "expert_tp=0",
       "slices=2,offload_activations=0.5"}));
  constraints.forbid(pick<std::string>({"", "tp=1", "schedule=gpipe", "zero=0,zero=1", "pp=1",
                                        "expert_tp=0", "schedule=interleaved,schedule=zb-v,tp=1"}));
  return constraints;
}

// Layers that the virtual stages do not divide, with a head of none to several layers.
Shape uneven_shape() {
  Shape shape = any_shape();
  shape.spec = small_spec(pick<std::int64_t>({5, 6, 7}));
  shape.spec.vocab = pick<std::int64_t>({32'000, 200'000});
  return shape;
}

Constraints uneven_constraints() {
  Constraints constraints;
  constraints.fix("cp=1,pp=2,chunks=2,recompute=" + pick<std::string>({"none", "full"}) +
                  pick<std::string>({",tp=1", ",tp=2"}));
  constraints.forbid(pick<std::string>({"", "stages=even", "stages=balanced", "schedule=vocab-2"}));
  return constraints;
}

void equals_simulating_everything(const Shape& shape, const Constraints& constraints) {
  plan::Plan base = base_plan(shape);
  base.execution.hierarchical_gather = pick({false, false, true});
  Options options;
  options.jobs = pick({1, 2});
  options.top = 3;
  options.constraints = constraints;
  const Exhaustive all = enumerate(
      base, options.constraints,
      [&](const plan::Plan& plan, const plan::Simulation& simulation, plan::Simulator& simulator) {
        const Seconds bound = simulator.lower_bound(plan);
        RC_ASSERT(bound <= simulation.iteration_time);
        const Seconds lists = simulator.list_bound(plan);
        RC_ASSERT(lists <= simulation.iteration_time);
        RC_ASSERT(bound <= lists);
        RC_ASSERT(simulator.work_bound(plan) <= bound);
      });
  if (all.plans == 0) {
    RC_ASSERT_THROWS_AS((void)search(base, options), Error);
    return;
  }
  const Outcome outcome = search(base, options);
  RC_ASSERT(outcome.plans == all.plans);
  RC_ASSERT(outcome.plans == outcome.simulated + outcome.pruned);
  RC_ASSERT(outcome.best.has_value() == all.best.has_value());
  if (!outcome.best) {
    RC_ASSERT(!outcome.closest_overflow.empty());
    return;
  }
  RC_ASSERT(outcome.best->simulation.iteration_time == *all.best);
  RC_ASSERT(outcome.gap_fraction == 0.0);
  RC_ASSERT(outcome.lower_bound == *all.best);
  RC_ASSERT(verify(*outcome.best).empty());
}

TEST(SearchProperty, EqualsSimulatingEverything) {
  EXPECT_TRUE(rc::check([] { equals_simulating_everything(any_shape(), any_constraints()); }));
}

TEST(SearchProperty, EqualsSimulatingEveryUnevenPipeline) {
  EXPECT_TRUE(
      rc::check([] { equals_simulating_everything(uneven_shape(), uneven_constraints()); }));
}

// The bound of a group, the work of its members without recomputation, bounds each member.
TEST(SearchProperty, WorkWithoutRecomputationBoundsTheGroup) {
  EXPECT_TRUE(rc::check([] {
    const plan::Plan base = base_plan(any_shape());
    const Constraints none;
    const Space space(base, none);
    const std::vector<Group> groups = space.groups();
    const Group group = groups[*rc::gen::inRange<std::size_t>(0, groups.size())];
    const std::vector<Member> members = space.members(group);
    RC_PRE(!members.empty());
    const Member member = members[*rc::gen::inRange<std::size_t>(0, members.size())];
    plan::Plan plan = base;
    space.configure(group, member, plan);
    plan::Simulator simulator(base);
    const Seconds time = simulator.run(plan).iteration_time;
    Member least = member;
    least.recompute = plan::Recompute::None;
    least.zero_stage = 0;
    space.configure(group, least, plan);
    RC_ASSERT(simulator.work_bound(plan) <= time);
  }));
}

TEST(SearchProperty, ForbiddingNeverHelps) {
  EXPECT_TRUE(rc::check([] {
    const plan::Plan base = base_plan(any_shape());
    Options options;
    options.jobs = 1;
    options.top = 0;
    const Outcome free = search(base, options);
    options.constraints = any_constraints();
    options.constraints.forbid(pick<std::string>({"cp=2", "chunks=2", "recompute=none"}));
    try {
      const Outcome constrained = search(base, options);
      RC_ASSERT(constrained.plans <= free.plans);
      if (constrained.best) {
        RC_ASSERT(constrained.best->simulation.iteration_time >=
                  free.best->simulation.iteration_time);
      }
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::BadInput);  // nothing left
    }
  }));
}

TEST(SearchProperty, AnyGapFindsAPlanWhereThereIsOne) {
  EXPECT_TRUE(rc::check([] {
    Shape shape = any_shape();
    shape.overrides.push_back(pick<std::string>({"gpu.memory=1.5 GiB", "gpu.memory=2 GiB"}));
    const plan::Plan base = base_plan(shape);
    Options options;
    options.jobs = 1;
    options.top = 0;
    const bool some = search(base, options).best.has_value();
    options.gap_fraction = pick({0.5, 1.0});
    RC_ASSERT(search(base, options).best.has_value() == some);
  }));
}

// What the best plan has, in the words of --fix.
std::vector<std::string> fields_of(const plan::Plan& plan) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  return {fmt::format("tp={}", layout.tp),
          fmt::format("pp={}", plan.pp),
          fmt::format("dp={}", plan.dp),
          fmt::format("chunks={}", plan.chunks),
          fmt::format("micro_batch={}", plan.micro_batch),
          fmt::format("zero={}", layout.zero_stage),
          fmt::format("recompute={}", plan::to_text(layout.recompute))};
}

// --fix takes plans away and nothing else: not the cut into stages of those that are left.
TEST(SearchProperty, FixingWhatTheBestHasKeepsIt) {
  EXPECT_TRUE(rc::check([] {
    Shape shape = any_shape();
    shape.spec.layers = pick<std::int64_t>({2, 5, 7});
    const plan::Plan base = base_plan(shape);
    Options options;
    options.jobs = 1;
    options.top = 0;
    const Outcome free = search(base, options);
    RC_PRE(free.best.has_value());
    for (const std::string& field : fields_of(free.best->plan)) {
      if (pick({false, true})) {
        options.constraints.fix(field);
      }
    }
    const Outcome fixed = search(base, options);
    RC_ASSERT(fixed.best.has_value());
    RC_ASSERT(fixed.best->simulation.iteration_time == free.best->simulation.iteration_time);
  }));
}

}  // namespace
}  // namespace orrery::search
