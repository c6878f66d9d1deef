// SPDX-License-Identifier: Apache-2.0
// The search on small random clusters of several kinds of nodes finds what simulating every plan of
// its space finds, and every bound on the way is below every plan that it stands for.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"
#include "plan/mixed/replay.hpp"
#include "search/mixed/memory_floor.hpp"
#include "search/mixed/search.hpp"
#include "search/mixed/space.hpp"
#include "tests/property/drawing.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

plan::MixedPlan any_base() {
  Problem problem;
  problem.cluster = pick<std::string>({"hgx-h100:1+dgx-a100:1", "dgx-a100:1+l40s-8:1",
                                       "hgx-h100:1+dgx-a100:2", "dgx-a100:1+hgx-h100:1+l40s-8:1"});
  std::vector<std::string> overrides;
  for (const topologies::Pool& pool : topologies::load_mixed_cluster(problem.cluster).pools) {
    overrides.push_back(pool.name + pick<std::string>({".node.gpus=2", ".node.gpus=4"}));
    overrides.push_back(pool.name + pick<std::string>({".gpu.memory=4 GiB", ".gpu.memory=6 GiB",
                                                       ".gpu.memory=40 GiB"}));
  }
  auto machine = std::make_shared<plan::MixedMachine>();
  machine->cluster = topologies::load_mixed_cluster(problem.cluster, overrides);
  if (problem.cluster == "dgx-a100:1+l40s-8:1" && pick({0, 1}) == 1) {  // one machine
    Json document = machine->cluster.document;
    document.set("same_nodes", Json::Array{Json::Array{"dgx-a100", "l40s-8"}});
    machine->cluster = topologies::read_mixed_cluster(document, "test");
  }
  for (const topologies::Pool& pool : machine->cluster.pools) {
    machine->profiles.push_back(costmodel::load_profile("", pool.cluster.gpu));
  }
  plan::MixedPlan base;
  const int layers = pick({2, 3, 5});
  models::NetworkSpec spec = pick({0, 0, 1}) == 1 ? small_mixture() : small_spec();
  spec.layers = layers;
  base.shape.network = models::build_network(spec, "test");
  base.shape.batch = pick<std::int64_t>({4, 6, 8});
  base.shape.sequence = pick<std::int64_t>({512, 2048});
  base.shape.precision = DType::Bf16;
  base.shape.execution.hierarchical_gather = pick({false, false, true});
  base.shape.cluster = machine->cluster.pools.front().cluster;
  base.shape.profile = machine->profiles.front();
  base.machine = std::move(machine);
  return base;
}

Constraints any_mixed_constraints() {
  Constraints constraints;
  constraints.fix(pick<std::string>({"tp=1", "tp=2", "recompute=none", "recompute=full",
                                     "micro_batch=1", "chunks=1", "chunks=2", "zero=1", "zero=3",
                                     "schedule=1f1b", "schedule=zb-h1"}));
  constraints.fix(pick<std::string>({"pp=2", "pp=3", "pp=1", "dp=2", "dp=3"}));
  constraints.fix(pick<std::string>({"cp=1", "cp=1", "cp=1", "cp=2,context=ring",
                                     "cp=2,context=all-gather", "cp=4,context=ulysses"}));
  const std::string experts = pick<std::string>({"", "", "", "expert_tp=0", "expert_tp=1"});
  if (!experts.empty()) {
    constraints.fix(experts);
  }
  if (pick({0, 0, 0, 1}) == 1) {
    constraints.forbid(pick<std::string>({"expert_tp=0", "expert_tp=1"}));
  }
  return constraints;
}

TEST(MixedSearchProperty, EqualsSimulatingEverything) {
  EXPECT_TRUE(rc::check([] {
    const plan::MixedPlan base = any_base();
    Options options;
    options.constraints = any_mixed_constraints();
    options.interval_draws = 0;
    options.jobs = pick({1, 2, 3});
    plan::MixedSimulator simulator(base);
    MixedSpace space(base, options.constraints, simulator);
    plan::MixedPlan plan = base;
    std::int64_t plans = 0;
    std::int64_t with_chunks = 0;
    std::int64_t with_context = 0;
    std::int64_t with_experts = 0;
    std::int64_t whole_experts = 0;  // on tensor-parallel ranks
    std::int64_t teams = 0;          // tensor-parallel groups over both kinds
    std::int64_t beside = 0;         // divided replicas beside whole ones
    std::int64_t ruled_out = 0;      // by what devices hold at least
    std::vector<plan::Plan> views;
    for (std::size_t pool = 0; pool < base.num_pools(); ++pool) {
      views.push_back(plan::pool_view(base, pool));
    }
    std::optional<Seconds> best;
    MixedSpace same(space, simulator);  // as another thread has it
    for (const Arrangement& arrangement : space.arrangements()) {
      const Seconds of_all = space.least_time(arrangement);
      const MixedChoices choices = same.choices(arrangement);
      std::int64_t members = 0;
      for (const MixedLayout& layout : choices.layouts) {
        const Seconds of_layout = space.least_time(arrangement, layout);
        RC_ASSERT(of_all <= of_layout);
        for (const MixedCut& cut : choices.cuts) {
          const MixedFamily& family = choices.families[static_cast<std::size_t>(cut.family)];
          const std::vector<int> stages = space.stages(arrangement, layout, family, cut);
          const Seconds of_cut = space.least_time(arrangement, layout, family, stages);
          ByteCount missing;  // at least
          if (arrangement.team.empty()) {
            space.configure(arrangement, layout, family, stages, family.schedules.front(), 0, plan);
            const MixedMemoryFloor floor(plan, choices.zero_stages, views, simulator);
            missing = floor.excess_of_stages(family, stages);
            RC_ASSERT(floor.excess() <= missing);
            if (!arrangement.runs.empty() && !cut.blocks.empty()) {
              RC_ASSERT(floor.excess_of_runs(arrangement.runs, cut.blocks) <= missing);
            }
          }
          for (const std::string& schedule : family.schedules) {
            for (const int zero : choices.zero_stages) {
              space.configure(arrangement, layout, family, stages, schedule, zero, plan);
              plan::check_mixed_plan(plan, "plan");
              ++members;
              with_chunks += plan.shape.chunks > 1 ? 1 : 0;
              with_context += arrangement.cp > 1 ? 1 : 0;
              with_experts += arrangement.ep > 1 ? 1 : 0;
              whole_experts += plan.shape.blocks.front().layout.expert_tp == 1 ? 1 : 0;
              teams += arrangement.team.empty() ? 0 : 1;
              const std::vector<int>& last = arrangement.groups.back().pools;
              beside += arrangement.runs.empty() && last.front() != last.back() ? 1 : 0;
              const plan::MixedSimulation run = simulator.run(plan);
              const Seconds time = run.iteration_time;
              RC_ASSERT(of_layout <= time);
              RC_ASSERT(of_cut <= time);
              const Seconds bound = simulator.lower_bound(plan);
              const Seconds lists = simulator.list_bound(plan);
              RC_ASSERT(bound <= lists);
              RC_ASSERT(lists <= time);
              const plan::MemoryVerdict verdict = simulator.fits(plan);
              RC_ASSERT(verdict.fits == !run.does_not_fit.has_value());
              RC_ASSERT(missing <= verdict.excess);
              ruled_out += missing.value() > 0 ? 1 : 0;
              if (!run.does_not_fit && (!best || time < *best) &&
                  plan::replayed_verdict(plan, ByteCount()).fits) {
                best = time;
              }
            }
          }
        }
      }
      RC_ASSERT(members == space.num_members(arrangement));
      plans += members;
    }
    RC_CLASSIFY(with_chunks > 0, "chunks");
    RC_CLASSIFY(with_context > 0, "context ranks");
    RC_CLASSIFY(with_experts > 0, "experts");
    RC_CLASSIFY(whole_experts > 0, "whole experts on tensor-parallel ranks");
    RC_CLASSIFY(teams > 0, "groups over unlike GPUs");
    RC_CLASSIFY(beside > 0, "divided replicas beside whole ones");
    RC_CLASSIFY(ruled_out > 0, "ruled out by what devices hold at least");
    if (plans == 0) {
      RC_ASSERT_THROWS_AS((void)search_mixed(base, options), Error);
      return;
    }
    const MixedOutcome outcome = search_mixed(base, options);
    RC_ASSERT(outcome.plans == plans);
    RC_ASSERT(outcome.plans == outcome.simulated + outcome.pruned);
    RC_ASSERT(outcome.best.has_value() == best.has_value());
    if (outcome.best) {
      RC_ASSERT(outcome.best->simulation.iteration_time == *best);
      RC_ASSERT(outcome.gap_fraction == 0.0);
      RC_ASSERT(outcome.lower_bound == *best);
      RC_ASSERT(verify(*outcome.best).empty());
    } else {
      RC_ASSERT(!outcome.closest_overflow.empty());
    }
  }));
}

// How experts lie on the tensor-parallel ranks is the search's to choose: its plans are those of
// both ways, and its best that of the better one.
TEST(MixedSearchProperty, ChoosesHowExpertsLieOnTensorRanks) {
  EXPECT_TRUE(rc::check([] {
    plan::MixedPlan base = any_base();
    models::NetworkSpec spec = small_mixture();
    spec.layers = pick({2, 3});
    base.shape.network = models::build_network(spec, "test");
    const std::string shape = pick<std::string>({"tp=2,pp=2", "tp=2,pp=1", "tp=4,pp=2,cp=1"});
    const auto found = [&](const std::string& experts) {
      Options options;
      options.constraints.fix(shape + ",zero=1,recompute=none,schedule=1f1b,micro_batch=1");
      if (!experts.empty()) {
        options.constraints.fix(experts);
      }
      options.interval_draws = 0;
      try {
        return search_mixed(base, options);
      } catch (const Error&) {
        return MixedOutcome{};  // no plan
      }
    };
    const MixedOutcome free = found("");
    const MixedOutcome cut = found("expert_tp=0");
    const MixedOutcome whole = found("expert_tp=1");
    RC_ASSERT(free.plans == cut.plans + whole.plans);
    std::optional<Seconds> best;
    for (const MixedOutcome* one : {&cut, &whole}) {
      if (one->best && (!best || one->best->simulation.iteration_time < *best)) {
        best = one->best->simulation.iteration_time;
      }
    }
    RC_CLASSIFY(cut.best && whole.best, "both ways fit");
    RC_ASSERT(free.best.has_value() == best.has_value());
    RC_ASSERT(!best || free.best->simulation.iteration_time == *best);
  }));
}

// One thread or several: the same plans, bounds and counts.
TEST(MixedSearchProperty, ThreadsDoNotMatter) {
  const auto text = [](const MixedOutcome& outcome) {
    std::string all = std::to_string(outcome.plans) + " " + std::to_string(outcome.simulated) +
                      " " + std::to_string(outcome.pruned) + " " +
                      std::to_string(outcome.infeasible) + " " +
                      std::to_string(outcome.lower_bound.value()) + outcome.closest_overflow;
    if (outcome.best) {
      all += plan::to_json(outcome.best->plan).dump();
    }
    for (const MixedFound& other : outcome.alternatives) {
      all += plan::to_json(other.plan).dump();
    }
    return all;
  };
  EXPECT_TRUE(rc::check([&text] {
    const plan::MixedPlan base = any_base();
    Options options;
    options.constraints = any_mixed_constraints();
    options.interval_draws = 0;
    options.jobs = 1;
    try {
      const std::string one = text(search_mixed(base, options));
      options.jobs = pick({2, 3, 5});
      RC_ASSERT(text(search_mixed(base, options)) == one);
    } catch (const Error&) {
      RC_DISCARD("empty space");
    }
  }));
}

}  // namespace
}  // namespace orrery::search
