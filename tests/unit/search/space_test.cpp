// SPDX-License-Identifier: Apache-2.0
// What the space of homogeneous plans holds, and the constraints on it.
#include "search/space/space.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "plan/stage/chain_work.hpp"
#include "plan/stages.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// Degrees that a plan of 4 GPUs can have, found the long way round.
TEST(Space, HoldsEveryGroupThatDivides) {
  const plan::Plan base = base_plan();
  const Constraints none;
  std::set<std::vector<std::int64_t>> expected;
  for (int tp = 1; tp <= 4; ++tp) {
    for (int cp = 1; cp <= 4; ++cp) {
      for (int pp = 1; pp <= 4; ++pp) {
        for (int dp = 1; dp <= 4; ++dp) {
          for (std::int64_t micro = 1; micro <= 8; ++micro) {
            if (tp * cp * pp * dp == 4 && 8 % (micro * dp) == 0) {
              expected.insert({tp, cp, pp, dp, micro});
            }
          }
        }
      }
    }
  }
  std::set<std::vector<std::int64_t>> held;
  for (const Group& group : Space(base, none).groups()) {
    EXPECT_EQ(group.ep, 1);
    EXPECT_TRUE(held.insert({group.tp, group.cp, group.pp, group.dp, group.micro_batch}).second);
  }
  EXPECT_EQ(held, expected);
}

// Experts that stay whole need not divide by the tensor-parallel ranks.
TEST(Space, WholeExpertsAllowAnyWidth) {
  Shape shape;
  shape.spec = small_mixture();
  shape.spec.moe.ffn_hidden = 2050;
  const plan::Plan base = base_plan(shape);
  const auto groups = [&base](const char* fields) {
    Constraints constraints;
    constraints.fix(fields);
    return Space(base, constraints).groups();
  };
  EXPECT_TRUE(groups("tp=4,expert_tp=0").empty());
  const std::vector<Group> whole = groups("tp=4");
  EXPECT_FALSE(whole.empty());
  for (const Group& group : whole) {
    EXPECT_EQ(group.ep, 4);
    EXPECT_EQ(group.expert_tp, 1);
  }
}

// Folding: the ranks that cut attention hold whole experts, or cut them, too. The degrees are found
// the long way round.
TEST(Space, FoldsExpertsOverTensorRanks) {
  const plan::Plan base = base_plan({small_mixture()});       // 4 GPUs, 4 experts, batch 8
  using ExpertDegrees = std::set<std::tuple<int, int, int>>;  // tp, ep, expert_tp
  const auto held = [&base](const Constraints& constraints) {
    ExpertDegrees degrees;
    for (const Group& group : Space(base, constraints).groups()) {
      if (group.cp == 1 && group.pp == 1 && group.micro_batch == 1) {
        EXPECT_TRUE(degrees.insert({group.tp, group.ep, group.expert_tp}).second);
      }
    }
    return degrees;
  };
  ExpertDegrees alone;
  ExpertDegrees cut;
  ExpertDegrees whole;
  for (const int tp : {1, 2, 4}) {
    const int dp = 4 / tp;
    for (const int ep : {1, 2, 4}) {
      if (dp % ep == 0) {
        (tp == 1 ? alone : cut).insert({tp, ep, 0});
      }
      if (tp > 1 && ep % tp == 0) {
        whole.insert({tp, ep, 1});
      }
    }
  }
  const auto with_alone = [&alone](ExpertDegrees degrees) {
    degrees.insert(alone.begin(), alone.end());
    return degrees;
  };
  ExpertDegrees both = with_alone(cut);
  both.insert(whole.begin(), whole.end());
  EXPECT_EQ(held(Constraints()), both);
  EXPECT_EQ(held(fixed("expert_tp=0")), with_alone(cut));
  EXPECT_EQ(held(forbidden("expert_tp=1")), with_alone(cut));
  EXPECT_EQ(held(fixed("expert_tp=1")), with_alone(whole));
  EXPECT_EQ(held(forbidden("expert_tp=0")), with_alone(whole));
  EXPECT_EQ(held(fixed("expert_tp=2")), ExpertDegrees({{2, 1, 0}, {2, 2, 0}, {4, 2, 2}}));
  ExpertDegrees without_pairs = both;
  without_pairs.erase({2, 1, 0});
  without_pairs.erase({2, 2, 0});
  EXPECT_EQ(held(forbidden("expert_tp=2")), without_pairs);
  Constraints meshes;
  meshes.allow("meshes");
  both.merge(ExpertDegrees({{4, 2, 2}, {2, 1, 1}, {4, 1, 1}, {4, 2, 1}, {4, 1, 2}}));
  EXPECT_EQ(held(meshes), both);
  const Constraints none;
  for (const Group& group : Space(base_plan(), none).groups()) {
    EXPECT_EQ(group.expert_tp, 0);  // without experts
  }
}

// Cuts are made when they are asked for, by whichever thread comes first.
TEST(Space, CutsAreTheSameWhoeverAsksFirst) {
  const plan::Plan base = base_plan({small_spec(64), "dgx-a100:1", {"node.gpus=4"}, 8, 2048});
  const Constraints none = fixed("schedule=interleaved");
  const Space alone(base, none);
  const Space shared(base, none);
  // Of devices with one stage each, and with two.
  const auto cuts_of = [](const Space& space, int count, bool balanced) {
    const ScheduleSpace& schedules = space.schedules();
    const ScheduleChoice& choice = schedules.choices().front();
    std::vector<std::vector<int>> cuts = {schedules.stages(count, 1, choice, balanced)};
    if (count > 1 && count <= 32) {
      cuts.push_back(schedules.stages(count, 2, choice, balanced));
    }
    return cuts;
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int step = 0; step < 64; ++step) {
        const int count = 1 + (thread % 2 == 0 ? step : 63 - step);
        (void)cuts_of(shared, count, step % 2 == 0);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int count = 1; count <= 64; ++count) {
    for (const bool balanced : {false, true}) {
      EXPECT_EQ(cuts_of(shared, count, balanced), cuts_of(alone, count, balanced));
    }
    EXPECT_EQ(cuts_of(shared, count, false).front(), plan::even_stages(base.network, count));
  }
}

// Of layers that nothing divides no more cuts than of others; those that are asked for exist.
TEST(Space, TriesFewChunksOfManyLayers) {
  const auto most_chunks = [](std::int64_t layers, const std::string& fix) {
    const plan::Plan base = base_plan({small_spec(layers), "dgx-a100:1", {"node.gpus=2"}, 8, 2048});
    const Constraints constraints = fixed("pp=2,tp=1,stages=balanced,micro_batch=1" + fix);
    int most = 0;
    const Space space(base, constraints);
    for (const Family& family : space.families(space.groups().front())) {
      most = std::max(most, family.chunks);
    }
    return most;
  };
  EXPECT_EQ(most_chunks(101, ""), 50);
  EXPECT_EQ(most_chunks(509, ""), 64);
  EXPECT_EQ(most_chunks(509, ",chunks=200"), 200);
  EXPECT_EQ(most_chunks(512, ""), 256);
}

// Chunks that do not divide the layers are cut evenly, too; a head that all devices share is no
// work of the last stage.
TEST(Space, CutsUnevenChunksBothWays) {
  models::NetworkSpec spec = small_spec(6);
  spec.vocab = 200'000;
  const plan::Plan base = base_plan({spec, "dgx-a100:1", {"node.gpus=2"}, 8, 2048});
  const auto cuts = [&](const std::string& schedule, const std::string& stages) {
    const Constraints constraints =
        fixed("pp=2,tp=1,chunks=2,micro_batch=1,schedule=" + schedule + stages);
    const Space space(base, constraints);
    std::set<std::vector<int>> found;
    plan::Plan plan = base;
    for (const Member& member : space.members(space.groups().front())) {
      space.configure(space.groups().front(), member, plan);
      found.insert(plan.stage_blocks);
    }
    return found;
  };
  const std::vector<int> even = plan::even_stages(base.network, 4);
  const std::vector<std::uint16_t> in_turn = {0, 1, 0, 1};
  const std::vector<std::int64_t> work = plan::work_of_chain(base);
  const std::vector<int> balanced =
      plan::balance_devices(work, in_turn, plan::balanced_stages(work, 4));
  ASSERT_NE(even, balanced);
  EXPECT_EQ(cuts("interleaved", ""), (std::set{even, balanced}));
  EXPECT_EQ(cuts("interleaved", ",stages=even"), std::set{even});
  EXPECT_EQ(cuts("interleaved", ",stages=balanced"), std::set{balanced});
  EXPECT_EQ(cuts("vocab-1", ""), std::set{even});
  EXPECT_EQ(cuts("vocab-2", ""), std::set{even});
  EXPECT_EQ(cuts("vocab-2", ",stages=balanced"), std::set{even});  // which is both
}

TEST(Space, MembersAreDistinctAndCoverTheChoices) {
  const plan::Plan base = base_plan();
  const Constraints none;
  const Space space(base, none);
  using Choice = std::tuple<std::string, int, int, bool, plan::Recompute, int>;
  const auto choices = [&](const Group& group) {
    std::set<std::string> documents;
    std::set<Choice> found;
    plan::Plan plan = base;
    const std::vector<Member> members = space.members(group);
    for (const Member& member : members) {
      space.configure(group, member, plan);
      documents.insert(plan::to_json(plan).dump());
      const plan::BlockPlan& layout = plan.blocks.front().layout;
      found.insert({plan.schedule, plan.chunks, plan.slices, layout.sequence_parallel,
                    layout.recompute, layout.zero_stage});
    }
    EXPECT_EQ(documents.size(), members.size());
    return found.size();
  };
  // Thirteen schedules without chunks and thirteen with, three with 2, 4 and 8 slices and one of
  // them with chunks, too; with and without sequence parallelism, three recomputations; one data
  // rank has nothing to shard.
  Group group;
  group.pp = 2;
  group.tp = 2;
  EXPECT_EQ(choices(group), 38u * 2 * 3);
  group.tp = 1;
  group.dp = 2;
  EXPECT_EQ(choices(group), 38u * 3 * 4);
  group.pp = 1;
  group.dp = 4;
  EXPECT_EQ(choices(group), 3u * 4);
}

// Every synchronous schedule of plans is there without being named, but for those that are others
// for equal micro-batches or cost a search of their own; asynchronous ones only in another search.
TEST(Space, HoldsEverySynchronousSchedule) {
  const plan::Plan base = base_plan();
  Constraints constraints;
  const auto names = [&](const Constraints& of) {
    std::set<std::string> found;
    const Space space(base, of);
    for (const ScheduleChoice& choice : space.schedules().choices()) {
      found.insert(choice.name);
    }
    return found;
  };
  const std::set<std::string> usual = names(constraints);
  constraints.allow("asynchronous");
  EXPECT_EQ(names(constraints), usual);
  EXPECT_EQ(usual.count("dynapipe") + usual.count("infinipipe") + usual.count("flexpipe") +
                usual.count("tessel") + usual.count("pipeoffload") + usual.count("helixpipe"),
            0U);
  const std::set<std::string> apart = names(constraints.asynchronous_alone());
  for (const sim::Schedule* schedule : sim::schedule_table()) {
    const std::string name(schedule->name);
    EXPECT_EQ(usual.contains(name),
              schedule->in_plans && schedule->traits.synchronous && schedule->in_search)
        << name;
    EXPECT_EQ(apart.contains(name), schedule->in_plans && !schedule->traits.synchronous) << name;
  }
  Constraints stale;
  stale.fix("schedule=pipedream");
  EXPECT_THROW((void)Space(base, stale), Error);
  stale.allow("asynchronous");
  EXPECT_EQ(names(stale), (std::set<std::string>{"pipedream"}));
}

TEST(Space, ExpertDegreesDivideExpertsAndDataRanks) {
  const plan::Plan base = base_plan({small_mixture()});
  const Constraints cut = fixed("expert_tp=0");
  std::set<std::pair<int, int>> degrees;
  for (const Group& group : Space(base, cut).groups()) {
    degrees.emplace(group.dp, group.ep);
  }
  EXPECT_EQ(degrees,
            (std::set<std::pair<int, int>>{{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}}));
}

// Whatever is enumerated is a consistent plan, for networks of every family.
class SpaceOfNetwork : public testing::TestWithParam<const char*> {};

TEST_P(SpaceOfNetwork, HoldsConsistentPlansOnly) {
  plan::Plan base;
  base.network = models::load_network(GetParam());
  base.cluster = topologies::load_cluster("hgx-h100:2");
  base.profile = costmodel::load_profile("", base.cluster.gpu);
  base.batch = 32;
  base.sequence = base.network.spec.sequence;
  const Constraints none;
  const Space space(base, none);
  plan::Plan plan = base;
  std::int64_t plans = 0;
  for (const Group& group : space.groups()) {
    for (const Member& member : space.members(group)) {
      // Micro-batch and recomputation divide nothing but the batch.
      if (group.micro_batch != 1 || member.recompute != plan::Recompute::None) {
        continue;
      }
      space.configure(group, member, plan);
      ++plans;
      try {
        plan::check_plan(plan, "enumerated");
      } catch (const Error& error) {
        FAIL() << error.what();
      }
    }
  }
  EXPECT_GT(plans, 10);
}

INSTANTIATE_TEST_SUITE_P(Zoo, SpaceOfNetwork,
                         testing::Values("gpt3-175b", "llama3-8b", "mixtral-8x7b", "deepseek-v3",
                                         "bert-huge-32", "vit-huge-32", "t5-large-32"),
                         [](const testing::TestParamInfo<const char*>& row) {
                           std::string name = row.param;
                           std::erase(name, '-');
                           return name;
                         });

std::string message(const std::function<void(Constraints&)>& use) {
  Constraints constraints;
  try {
    use(constraints);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

TEST(Constraints, ReadOneSpellingOfEveryValue) {
  Constraints constraints;
  constraints.fix(" tp = 08 , recompute=full,sequence_parallel=yes,");
  EXPECT_TRUE(constraints.admits("tp", 8));
  EXPECT_FALSE(constraints.admits("tp", 4));
  EXPECT_TRUE(constraints.admits("pp", 4));
  EXPECT_TRUE(constraints.admits("sequence_parallel", "true"));
  EXPECT_FALSE(constraints.admits("recompute", "none"));
  EXPECT_EQ(constraints.fixed_number("tp"), 8);
  EXPECT_FALSE(constraints.fixed_number("dp"));
  EXPECT_TRUE(constraints.is_fixed("recompute"));
  constraints.forbid("pp=4,pp=2");
  EXPECT_FALSE(constraints.admits("pp", 4));
  EXPECT_FALSE(constraints.admits("pp", 2));
  EXPECT_TRUE(constraints.admits("pp", 1));
}

TEST(Constraints, SetExecutionFlags) {
  Constraints constraints;
  constraints.fix("fused_attention=false,stream_tp=on");
  plan::Execution execution;
  constraints.apply(execution);
  EXPECT_FALSE(execution.fused_attention);
  EXPECT_TRUE(execution.stream_tp);
  EXPECT_TRUE(execution.overlap_tp);
}

// Of two values one is left.
TEST(Constraints, ForbiddenFlagsTakeTheOtherValue) {
  plan::Execution execution;
  const bool usual = execution.overlap_p2p;
  Constraints constraints;
  constraints.forbid(std::string("overlap_p2p=") + (usual ? "true" : "false"));
  constraints.apply(execution);
  EXPECT_EQ(execution.overlap_p2p, !usual);
  Constraints both;
  both.fix("zigzag=true");
  both.forbid("zigzag=true");
  EXPECT_FALSE(both.admits("zigzag", "true"));
}

TEST(Constraints, ErrorsSuggest) {
  using testing::HasSubstr;
  EXPECT_THAT(message([](Constraints& c) { c.fix("micro_batc=2"); }), HasSubstr("micro_batch"));
  EXPECT_THAT(message([](Constraints& c) { c.fix("schedule=1f1v"); }), HasSubstr("1f1b"));
  EXPECT_THAT(message([](Constraints& c) { c.fix("recompute=ful"); }), HasSubstr("full"));
  EXPECT_THAT(message([](Constraints& c) { c.fix("tp"); }), HasSubstr("has no value"));
  EXPECT_THAT(message([](Constraints& c) { c.fix("tp=2,tp=4"); }), HasSubstr("both 2 and 4"));
  EXPECT_THAT(message([](Constraints& c) { c.allow("asynchronos"); }), HasSubstr("asynchronous"));
  EXPECT_THAT(message([](Constraints& c) { c.forbid("expert_cp=0"); }),
              HasSubstr("--forbid expert_cp: no search tries several values of it"));
  for (const char* text : {"tp=0", "tp=-1", "tp=two", "tp=99999999999999999999", "zero=4",
                           "sequence_parallel=maybe", "context=rings", "=3", "tp=1.5"}) {
    EXPECT_NE(message([&](Constraints& c) { c.fix(text); }), "") << text;
    EXPECT_NE(message([&](Constraints& c) { c.forbid(text); }), "") << text;
  }
}

}  // namespace
}  // namespace orrery::search
