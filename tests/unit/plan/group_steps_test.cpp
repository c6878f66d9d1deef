// SPDX-License-Identifier: Apache-2.0
// The one list of a group against all its ranks run together, each with a compute stream of its
// own, where a collective starts when the last rank is ready.
#include "plan/block/group_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/block/cost.hpp"
#include "sim/engine/engine.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// All ranks in one program; kernels beside collectives are not slowed down. Tokens travel between
// ranks of several groups that have the same place in theirs: nobody else waits for them.
SimTime together(const std::vector<std::vector<Step>>& ranks) {
  sim::Program program;
  std::vector<sim::StreamId> compute;
  std::vector<sim::StreamId> tokens;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto device = static_cast<std::uint32_t>(rank);
    compute.push_back(program.add_stream(device, sim::StreamKind::Compute, "compute"));
    tokens.push_back(program.add_stream(device, sim::StreamKind::Collective, "tokens"));
  }
  const sim::StreamId network = program.add_stream(0, sim::StreamKind::Collective, "network");
  std::vector<std::vector<sim::NodeId>> nodes(ranks.size());
  for (std::size_t index = 0; index < ranks.front().size(); ++index) {
    const bool routed = is_routed(ranks.front()[index]);
    const bool collective = ranks.front()[index].collective && !routed;
    Seconds longest;
    for (const std::vector<Step>& steps : ranks) {
      longest = std::max(longest, steps[index].time);
    }
    const sim::NodeId joint =
        collective ? program.add_work(network, to_sim_time(longest), {}) : sim::NodeId{};
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Step& step = ranks[rank][index];
      const sim::NodeId node = collective ? joint
                                          : program.add_work((routed ? tokens : compute)[rank],
                                                             to_sim_time(step.time), {});
      nodes[rank].push_back(node);
      for (const int before : step.after) {
        program.depend(node, nodes[rank][static_cast<std::size_t>(before)]);
      }
    }
  }
  program.finalize();
  return sim::run(program).makespan;
}

struct Group {
  explicit Group(const std::vector<int>& shares, bool overlap, int ep = 1) {
    models::NetworkSpec spec = small_spec();
    if (ep > 1) {
      spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
    }
    plan = small_plan(spec);
    plan.blocks.front().layout.ep = ep;
    plan.execution.overlap_tp = overlap;
    plan.blocks.front().layout.sequence_parallel = true;
    plan.blocks.front().layout.tensor_shares = TensorShares(shares);
    const BlockCosts costs(plan);
    group = costs.steps_of(block(), layout(), 1);
    for (int rank = 0; rank < static_cast<int>(shares.size()); ++rank) {
      BlockContext context = costs.block_context(block(), layout(), 1);
      context.mesh.tensor_rank = rank;
      ranks.push_back(lower_block(context));
    }
  }
  int block() const { return plan.network.chain[1]; }
  const BlockPlan& layout() const { return plan.blocks.front().layout; }
  std::vector<std::vector<Step>> lists(std::vector<Step> BlockSteps::*member) const {
    std::vector<std::vector<Step>> lists;
    for (const BlockSteps& rank : ranks) {
      lists.push_back(rank.*member);
    }
    return lists;
  }
  Plan plan;
  BlockSteps group;
  std::vector<BlockSteps> ranks;
};

// Rank 1 is made fast in attention and slow elsewhere, so that ranks take turns in being slowest.
void take_turns(std::vector<std::vector<Step>>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t index = 0; index < ranks[rank].size(); ++index) {
      Step& step = ranks[rank][index];
      step.time = step.time * (1.0 + 0.3 * static_cast<double>((index + 2 * rank) % 5));
    }
  }
}

std::vector<Step> at_pace(const std::vector<std::vector<Step>>& ranks) {
  std::vector<const std::vector<Step>*> lists;
  for (const std::vector<Step>& list : ranks) {
    lists.push_back(&list);
  }
  return at_pace_of_group(lists);
}

TEST(GroupSteps, WhereNothingOverlapsItIsTheGroupExactly) {
  const Group group({4, 3, 3, 6}, false);
  for (const auto member : {&BlockSteps::forward, &BlockSteps::backward}) {
    std::vector<std::vector<Step>> ranks = group.lists(member);
    ASSERT_TRUE(is_serial(ranks.front()));
    EXPECT_NEAR(to_seconds(together(ranks)).value(),
                to_seconds(together({group.group.*member})).value(), 1e-9);
    take_turns(ranks);
    EXPECT_NEAR(to_seconds(together(ranks)).value(), to_seconds(together({at_pace(ranks)})).value(),
                1e-9);
    for (const std::vector<Step>& rank : ranks) {  // nobody is slowest all along
      EXPECT_LT(together({rank}), together({at_pace(ranks)}));
    }
  }
}

TEST(GroupSteps, WhereKernelsRunBesideCollectivesNoLess) {
  const Group group({4, 3, 3, 6}, true);
  std::vector<std::vector<Step>> ranks = group.lists(&BlockSteps::backward);
  ASSERT_FALSE(is_serial(ranks.front()));
  for (const bool turns : {false, true}) {
    if (turns) {
      take_turns(ranks);
    }
    const double exact = to_seconds(together(ranks)).value();
    const double listed = to_seconds(together({at_pace(ranks)})).value();
    EXPECT_GE(listed, exact * (1 - 1e-9));
    EXPECT_LT(listed, exact * 1.03);
  }
}

// A stretch that ends with tokens on their way is the slowest rank's in the list, though the others
// could go on.
TEST(GroupSteps, WhereTokensTravelNoLess) {
  const Group group({4, 3, 3, 6}, false, 2);
  double waits = 0;
  for (const auto member : {&BlockSteps::forward, &BlockSteps::backward}) {
    std::vector<std::vector<Step>> ranks = group.lists(member);
    ASSERT_TRUE(std::any_of(ranks.front().begin(), ranks.front().end(), is_routed));
    const auto listed = [&] { return to_seconds(together({at_pace(ranks)})).value(); };
    const auto exact = [&] { return to_seconds(together(ranks)).value(); };
    EXPECT_NEAR(listed(), exact(), exact() * 1e-9);  // the largest share is the slowest throughout
    take_turns(ranks);
    EXPECT_GE(listed(), exact() * (1 - 1e-9));
    EXPECT_LT(listed(), exact() * 1.25);
    waits += listed() - exact();
  }
  EXPECT_GT(waits, 1e-6);
}

// Replicas that share experts wait for each other where tokens travel, nowhere else.
TEST(GroupSteps, ReplicasMeetWhereTokensTravelAlone) {
  const Group group({4, 3, 3, 6}, false, 2);
  const std::vector<Step> own = group.group.forward;
  std::vector<std::size_t> exchanges;
  for (std::size_t index = 0; index < own.size(); ++index) {
    if (is_routed(own[index])) {
      exchanges.push_back(index);
    }
  }
  ASSERT_EQ(exchanges.size(), 2U);
  // One is slower in the first step alone, another between the exchanges.
  std::vector<Step> early = own;
  std::vector<Step> late = own;
  early.front().time += Seconds(1.0);
  late[exchanges[0] + 1].time += Seconds(2.0);
  const auto sum = [](std::size_t, const std::vector<Step>& stretch) {
    Seconds time;
    for (const Step& step : stretch) {
      time += step.time;
    }
    return time;
  };
  const auto waits = [&](const std::vector<Step>& steps, const std::vector<Step>& alone) {
    std::vector<double> longer;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      if (is_routed(steps[index])) {
        longer.push_back((steps[index].time - alone[index].time).value());
      } else {
        EXPECT_EQ(steps[index].time, alone[index].time);
      }
    }
    return longer;
  };
  const auto beside = [&](const std::vector<Step>& a, const std::vector<Step>& b,
                          const std::vector<Step>& c) {
    return waits(waiting_for_replicas({&a, &b, &c}, sum), a);
  };
  const auto expect_near = [](const std::vector<double>& waited, double first, double second) {
    EXPECT_NEAR(waited[0], first, 1e-9);
    EXPECT_NEAR(waited[1], second, 1e-9);
  };
  expect_near(beside(own, early, late), 1.0, 2.0);
  expect_near(beside(early, own, late), 0.0, 2.0);
  expect_near(beside(late, early, own), 1.0, 0.0);
}

}  // namespace
}  // namespace orrery::plan
