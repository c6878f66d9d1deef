// SPDX-License-Identifier: Apache-2.0
// The search may put tensor-parallel groups over unlike GPUs of a node, with shares by their speed.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "search/mixed/search.hpp"
#include "search/mixed/space.hpp"
#include "tests/unit/plan/team_fixture.hpp"

namespace orrery::search {
namespace {

// One layer and one sequence: neither stages nor replicas can use both kinds.
plan::MixedPlan one_layer(bool in_one_node) {
  auto machine = std::make_shared<plan::MixedMachine>();
  machine->cluster = plan::shared_nodes(
      "h100-pcie-8", "l40s-8", 2,
      {"node.scale_up.nccl_bandwidth=200 GB/s", "node.scale_up.nccl_socket_bandwidth=200 GB/s"});
  if (!in_one_node) {
    machine->cluster.same_nodes.clear();
  }
  for (const topologies::Pool& pool : machine->cluster.pools) {
    machine->profiles.push_back(costmodel::load_profile("", pool.cluster.gpu));
  }
  plan::MixedPlan base;
  models::NetworkSpec spec = plan::small_spec();
  spec.layers = 1;
  spec.hidden = 8192;
  spec.heads = spec.kv_heads = 64;
  spec.head_dim = 128;
  spec.ffn_hidden = 32768;
  spec.vocab = 32000;
  spec.sequence = 16384;
  base.shape.network = models::build_network(spec, "test");
  base.shape.batch = 1;
  base.shape.sequence = 16384;
  base.shape.precision = DType::Bf16;
  base.shape.cluster = machine->cluster.pools.front().cluster;
  base.shape.profile = machine->profiles.front();
  base.machine = std::move(machine);
  return base;
}

MixedOutcome search(bool in_one_node, const std::string& fix, const std::string& forbid = "") {
  Options options;
  options.interval_draws = 0;
  options.constraints.fix("cp=1");
  if (!fix.empty()) {
    options.constraints.fix(fix);
  }
  if (!forbid.empty()) {
    options.constraints.forbid(forbid);
  }
  return search_mixed(one_layer(in_one_node), options);
}

Seconds time_of(const MixedOutcome& outcome) { return outcome.best->simulation.iteration_time; }

TEST(MixedTeams, PayWhereNothingElseUsesAllGpus) {
  const MixedOutcome apart = search(false, "");
  const MixedOutcome equal = search(true, "", "tensor_shares=by-speed");
  const MixedOutcome all = search(true, "");
  ASSERT_TRUE(apart.best && equal.best && all.best);
  EXPECT_LE(time_of(equal), time_of(apart));
  EXPECT_LT(time_of(all), time_of(equal));
  EXPECT_EQ(all.gap_fraction, 0.0);
  EXPECT_LT(apart.plans, equal.plans);
  EXPECT_LT(equal.plans, all.plans);
  const plan::MixedPlan& best = all.best->plan;
  ASSERT_NE(best.groups[0].team_of(0), nullptr);
  const plan::TensorShares& shares = best.shape.blocks[0].layout.tensor_shares;
  EXPECT_EQ(shares.ranks(), 4);
  EXPECT_GT(shares.of(0), shares.of(3));
  EXPECT_EQ(verify(*all.best), "");
}

// Listing the arrangements of a large cluster ends when it is told to.
TEST(MixedTeams, ListingCanBeStopped) {
  plan::MixedPlan base = one_layer(true);
  base.shape.batch = 1 << 12;
  const Constraints any;
  plan::MixedSimulator simulator(base);
  const MixedSpace whole(base, any, simulator);
  int asked = 0;
  const MixedSpace part(base, any, simulator, [&] { return ++asked == 1; });
  EXPECT_TRUE(whole.is_whole());
  EXPECT_FALSE(part.is_whole());
  EXPECT_LT(part.arrangements().size(), whole.arrangements().size());
  const MixedSpace copy(part, simulator);
  EXPECT_FALSE(copy.is_whole());
}

// The twin: every plan of a small space, one after the other.
TEST(MixedTeams, EqualSimulatingEverything) {
  plan::MixedPlan base = one_layer(true);
  models::NetworkSpec spec = plan::small_spec();
  spec.layers = 3;
  base.shape.network = models::build_network(spec, "test");
  base.shape.batch = 4;
  base.shape.sequence = 2048;
  Options options;
  options.interval_draws = 0;
  options.constraints.fix("cp=1,recompute=none,chunks=1,zero=0,schedule=1f1b");
  plan::MixedSimulator simulator(base);
  MixedSpace space(base, options.constraints, simulator);
  plan::MixedPlan plan = base;
  std::int64_t plans = 0;
  std::int64_t of_teams = 0;
  std::optional<Seconds> best;
  for (const Arrangement& arrangement : space.arrangements()) {
    const MixedChoices choices = space.choices(arrangement);
    for (const MixedLayout& layout : choices.layouts) {
      for (const MixedCut& cut : choices.cuts) {
        const MixedFamily& family = choices.families[static_cast<std::size_t>(cut.family)];
        const std::vector<int> stages = space.stages(arrangement, layout, family, cut);
        space.configure(arrangement, layout, family, stages, "1f1b", 0, plan);
        plan::check_mixed_plan(plan, "plan");
        ++plans;
        of_teams += arrangement.team.empty() ? 0 : 1;
        const Seconds time = simulator.run(plan).iteration_time;
        EXPECT_LE(space.least_time(arrangement, layout, family, stages), time);
        EXPECT_LE(simulator.lower_bound(plan), simulator.list_bound(plan));
        EXPECT_LE(simulator.list_bound(plan), time);
        best = best ? std::min(*best, time) : time;  // all of them fit
      }
    }
  }
  const MixedOutcome outcome = search_mixed(base, options);
  EXPECT_GT(of_teams, 10);
  EXPECT_EQ(outcome.plans, plans);
  EXPECT_EQ(outcome.infeasible, 0);
  EXPECT_EQ(outcome.best->simulation.iteration_time, best);
}

// A group of four over two key-value heads would leave ranks without any.
TEST(MixedTeams, AreNoWiderThanTheUnitsOfTheNetwork) {
  plan::MixedPlan base = one_layer(true);
  models::NetworkSpec spec = base.shape.network.spec;
  spec.kv_heads = 2;
  base.shape.network = models::build_network(spec, "test");
  base.shape.batch = 2;
  Options options;
  options.interval_draws = 0;
  options.constraints.fix("cp=1,recompute=full,tensor_shares=by-speed");
  const MixedOutcome outcome = search_mixed(base, options);
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->plan.shape.blocks[0].layout.tp, 2);
}

TEST(MixedTeams, FixAndForbidReachThem) {
  const MixedOutcome fixed = search(true, "tensor_shares=by-speed");
  ASSERT_TRUE(fixed.best.has_value());
  EXPECT_FALSE(fixed.best->plan.groups[0].teams.empty());
  EXPECT_EQ(time_of(fixed), time_of(search(true, "")));
  EXPECT_THROW((void)search(true, "tensor_shares=by-speed,tp=2"), Error);  // needs two stages
  EXPECT_THROW((void)search(false, "tensor_shares=by-speed"), Error);
}

}  // namespace
}  // namespace orrery::search
