// SPDX-License-Identifier: Apache-2.0
// Schedule documents with passes that registered schedules do not have in plans, in the search: the
// best plan is that of simulating all, also where memory is short.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "search/space/empty_space.hpp"
#include "tests/unit/search/small_search.hpp"
#include "tests/unit/sim/listed_document.hpp"

namespace orrery::search {
namespace {

struct Documented {
  const char* name;
  bool tight;  // the plans that need most memory do not fit
  bool synchronous;
};

constexpr const char* kHead = R"({"schema": "orrery-schedule", "version": 1, "name": "mine", )";

// 1F1B of 4 stages and 4 micro-batches that updates after each.
std::string updating(sim::Versions versions) {
  sim::PipelineOrder order =
      sim::find_schedule("1f1b", "test").order({.stages = 4, .micro_batches = 4});
  order.extended = true;
  order.versions = versions;
  for (std::uint16_t device = 0; device < 4; ++device) {
    order.passes[device].emplace_back(sim::PassKind::Optimizer, device, 0);
  }
  return sim::document_of(order);
}

std::string document_named(std::string_view name) {
  if (name == "again") {
    return kHead + std::string(R"("placement": "loop", "warm_up": {"per_later_device": 1},
                                  "recompute": true})");
  }
  if (name == "again_v") {
    return kHead + std::string(R"("placement": "v", "split_backward": true, "recompute": true})");
  }
  return updating(name == "updates" ? sim::Versions::Flush : sim::Versions::Stashed);
}

ByteCount most_memory(const plan::Plan& base, const Constraints& constraints) {
  std::vector<ByteCount> all;
  enumerate(base, constraints,
            [&](const plan::Plan&, const plan::Simulation& simulation, plan::Simulator&) {
              ByteCount fullest;
              for (const plan::StageMemory& stage : simulation.memory) {
                fullest = std::max(fullest, stage.total());
              }
              all.push_back(fullest);
            });
  return *std::max_element(all.begin(), all.end());
}

class DocumentSearch : public testing::TestWithParam<Documented> {};

TEST_P(DocumentSearch, BestEqualsSimulatingEverything) {
  const std::string file = testing::TempDir() + GetParam().name + ".json";
  write_file_atomically(file, document_named(GetParam().name));
  models::NetworkSpec spec = small_spec(8);
  spec.tied_embeddings = false;
  plan::Plan base = base_plan({spec, "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  Options options;
  options.jobs = 1;
  options.constraints = fixed("pp=4,cp=1");
  options.constraints.choose_schedule(file);
  if (!GetParam().synchronous) {
    EXPECT_THROW((void)search(base, options), Error);  // not unasked
    options.constraints.allow("asynchronous");
  }
  if (GetParam().tight) {
    base.memory_reserve =
        base.cluster.gpu.memory - most_memory(base, options.constraints) + ByteCount(1);
  }
  const Exhaustive all = enumerate(
      base, options.constraints,
      [&](const plan::Plan& plan, const plan::Simulation& simulation, plan::Simulator& simulator) {
        EXPECT_EQ(plan.schedule, "mine");
        EXPECT_LE(simulator.lower_bound(plan), simulation.iteration_time);
        EXPECT_EQ(simulation.synchronous, GetParam().synchronous);
        EXPECT_NO_THROW(plan::check_plan(plan, "enumerated"));
      });
  const Outcome found = search(base, options);
  EXPECT_EQ(found.plans, all.plans);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(all.fitting < all.plans, GetParam().tight);
  EXPECT_EQ(found.best->simulation.iteration_time, *all.best);
  EXPECT_EQ(verify(*found.best), "");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DocumentSearch,
    testing::Values(Documented{"again", false, true}, Documented{"again", true, true},
                    Documented{"again_v", false, true}, Documented{"again_v", true, true},
                    Documented{"updates", false, true}, Documented{"stale", false, false}),
    [](const testing::TestParamInfo<Documented>& row) {
      return fmt::format("{}{}", row.param.name, row.param.tight ? "_tight" : "");
    });

// At one stage a schedule that recomputes is no plain loop: another that is named takes its place.
TEST(DocumentSearches, OneStageRunsWhatDoesLess) {
  const std::string file = testing::TempDir() + "again.json";
  write_file_atomically(file, document_named("again"));
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  Options options;
  options.jobs = 1;
  options.constraints = fixed("pp=1,cp=1");
  options.constraints.choose_schedule(file);
  const Seconds again = search(base, options).best->simulation.iteration_time;
  options.constraints.choose_schedule("1f1b");
  const Outcome both = search(base, options);
  EXPECT_EQ(both.best->plan.schedule, "1f1b");
  EXPECT_LT(both.best->simulation.iteration_time, again);
}

// Sizes at which a document deadlocks are left out, without the advice that its error would have.
TEST(DocumentSearches, SizesThatDeadlockAreLeftOut) {
  const std::string file = testing::TempDir() + "deadlocks.json";
  write_file_atomically(
      file, kHead + std::string(R"("placement": "loop", "warm_up": {"per_later_device": 2}})"));
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  Options options;
  options.jobs = 1;
  options.constraints = fixed("cp=1");
  options.constraints.choose_schedule(file);
  const Outcome found = search(base, options);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->plan.schedule, "mine");

  plan::Plan deep = found.best->plan;
  deep.dp = deep.blocks.front().layout.tp = 1;
  deep.pp = 4;
  deep.chunks = 2;
  EXPECT_FALSE(plan::schedule_runs(deep));
  EXPECT_THROW((void)plan::schedule_problem(deep, "schedule"), Error);
  deep.chunks = 1;
  EXPECT_TRUE(plan::schedule_runs(deep));
  EXPECT_EQ(plan::schedule_problem(deep, "schedule"), "");
}

// What is wrong with lists whatever the plan is said before the search, not blamed on sizes.
TEST(DocumentSearches, WrongListsAreNamedBeforeTheSearch) {
  const std::string good = updating(sim::Versions::Flush);
  const std::string pass = R"({"pass": "BW", "direction": 0, "stage": 1, "micro_batch": 2})";
  const std::string other = R"({"pass": "BW", "direction": 0, "stage": 1, "micro_batch": 1})";
  const std::string file = testing::TempDir() + "wrong.json";
  const auto error_with = [&](const std::string& instead) -> std::string {
    std::string text = good;
    text.replace(text.find(pass), pass.size(), instead);
    write_file_atomically(file, text);
    try {
      Constraints().choose_schedule(file);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_with(pass), "no error");
  EXPECT_THAT(error_with(pass + ", " + pass),
              testing::HasSubstr("doubled pass: BW of stage 1, micro-batch 2"));
  EXPECT_THAT(error_with(other), testing::HasSubstr("doubled pass: BW of stage 1, micro-batch 1"));
}

std::string reason_of(const plan::Plan& base, const std::string& fix, const std::string& text) {
  const std::string file = testing::TempDir() + "reason.json";
  write_file_atomically(file, text);
  Options options;
  options.jobs = 1;
  options.constraints = fixed(fix);
  options.constraints.choose_schedule(file);
  try {
    (void)search(base, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A search of several schedules goes on without those that no plan can have, which are named.
TEST(DocumentSearches, ThoseOfSeveralThatNoPlanHasAreNamed) {
  const std::string file = testing::TempDir() + "left_out.json";
  write_file_atomically(file, updating(sim::Versions::Flush));  // of 4 stages
  models::NetworkSpec spec = small_spec(8);
  spec.tied_embeddings = false;
  const plan::Plan base = base_plan({spec, "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  const auto left_out = [&](const std::string& fix, const std::vector<std::string>& schedules) {
    Constraints constraints = fixed(fix);
    for (const std::string& schedule : schedules) {
      constraints.choose_schedule(schedule);
    }
    return schedules_without_plans(base, constraints);
  };
  EXPECT_THAT(left_out("pp=2,cp=1", {file, "gpipe", "1f1b"}),
              testing::ElementsAre(
                  testing::StartsWith("mine: schedule \"mine\": lists of 4 devices do not fit 2")));
  EXPECT_THAT(left_out("pp=2,cp=1", {"gpipe", "1f1b"}), testing::IsEmpty());
  EXPECT_THAT(left_out("pp=2,cp=1", {file}), testing::IsEmpty());  // an error says why
}

TEST(DocumentSearches, SlicesOfListsDivideTheSequence) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  const auto pass = [](const char* kind, int slice) {
    return fmt::format(R"({{"pass": "{}", "stage": 0, "micro_batch": 0, "slice": {}}})", kind,
                       slice);
  };
  const std::string list = fmt::format("[{}, {}, {}, {}, {}, {}]", pass("F", 0), pass("F", 1),
                                       pass("F", 2), pass("BW", 2), pass("BW", 1), pass("BW", 0));
  EXPECT_THAT(
      reason_of(base, "cp=1", kHead + fmt::format(R"("slices": 3, "passes": [{}]}})", list)),
      testing::HasSubstr("the 3 slices of its lists do not divide the 512 tokens of a "
                         "sequence: set --seq to a multiple of 3"));
}

// Of the groups of a space those are asked that have as many micro-batches as the lists.
TEST(DocumentSearches, ReasonsAreThoseOfPlansThatFitTheLists) {
  models::NetworkSpec spec = small_spec(8);
  spec.tied_embeddings = true;
  const plan::Plan base = base_plan({spec, "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  const std::string text = updating(sim::Versions::Flush);
  EXPECT_THAT(reason_of(base, "pp=4,cp=1", text), testing::HasSubstr("tied table"));
  EXPECT_THAT(reason_of(base, "pp=4,cp=1,micro_batch=1", text),
              testing::HasSubstr("lists of 4 micro-batches do not fit 16: set micro_batch to 4"));
}

}  // namespace
}  // namespace orrery::search
