// SPDX-License-Identifier: Apache-2.0
// The search against simulating everything, its certificate and its counts.
#include "search/tree/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/files.hpp"
#include "search/tree/memory_check.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

struct Case {
  const char* name;
  Shape shape;
  const char* fix;
};

std::string inconsistency(const plan::Plan& plan) {
  try {
    plan::check_plan(plan, "enumerated");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Six layers on four virtual stages, with a head of several.
models::NetworkSpec uneven_spec() {
  models::NetworkSpec spec = small_spec(6);
  spec.vocab = 200'000;
  return spec;
}

class SmallSpace : public testing::TestWithParam<Case> {};

TEST_P(SmallSpace, BestEqualsSimulatingEverything) {
  const plan::Plan base = base_plan(GetParam().shape);
  Options options;
  options.jobs = 1;
  options.constraints = fixed(GetParam().fix);
  std::set<std::string> inconsistent;
  const Exhaustive all = enumerate(
      base, options.constraints,
      [&](const plan::Plan& plan, const plan::Simulation& simulation, plan::Simulator& simulator) {
        const Seconds bound = simulator.lower_bound(plan);
        EXPECT_LE(bound, simulation.iteration_time) << plan::to_json(plan).dump().substr(0, 300);
        EXPECT_LE(simulator.work_bound(plan), bound);
        EXPECT_EQ(simulator.fits(plan).fits, !simulation.does_not_fit);
        const std::string wrong = inconsistency(plan);
        if (!wrong.empty()) {
          inconsistent.insert(wrong);
        }
      });
  EXPECT_THAT(inconsistent, testing::IsEmpty());
  const Outcome found = search(base, options);
  EXPECT_EQ(found.plans, all.plans);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->simulation.iteration_time, *all.best);
  EXPECT_EQ(found.gap_fraction, 0.0);
  EXPECT_EQ(found.lower_bound, *all.best);
  EXPECT_EQ(found.plans, found.pruned + found.simulated);
  EXPECT_LE(found.infeasible, found.pruned);
  EXPECT_LE(found.simulated, all.fitting);
  EXPECT_LE(found.infeasible, all.plans - all.fitting);
  EXPECT_FALSE(found.interrupted);
  EXPECT_EQ(verify(*found.best), "");

  EXPECT_FALSE(found.top_is_proven);

  options.top = kFastest - 1;
  options.proves_top = true;
  const Outcome proven = search(base, options);
  EXPECT_TRUE(proven.top_is_proven);
  EXPECT_EQ(proven.gap_fraction, 0.0);
  std::vector<Seconds> times = {proven.best->simulation.iteration_time};
  for (const Found& other : proven.alternatives) {
    times.push_back(other.simulation.iteration_time);
  }
  EXPECT_EQ(times, all.fastest);
}

models::NetworkSpec grouped_queries() {
  models::NetworkSpec spec = small_spec(2);
  spec.heads = 12;
  spec.kv_heads = 4;
  spec.hidden = 768;
  spec.ffn_hidden = 3072;
  return spec;
}

models::NetworkSpec shared_experts() {
  models::NetworkSpec spec = small_mixture();
  spec.moe.shared_ffn_hidden = 1024;
  spec.moe.first_dense_layers = 1;
  return spec;
}

// Little memory: most plans do not fit.
const Shape kTight{small_spec(), "dgx-a100:1", {"node.gpus=4", "gpu.memory=3 GiB"}, 8, 2048};

INSTANTIATE_TEST_SUITE_P(
    Cases, SmallSpace,
    testing::Values(
        Case{"dense", {small_spec()}, ""}, Case{"tight", kTight, ""},
        Case{"mixture", {small_mixture()}, "cp=1"},
        Case{"shared", {shared_experts()}, "cp=1,schedule=1f1b"},
        Case{"context", {small_spec(2)}, "pp=1,cp=2"},
        Case{"pipelines", {small_spec(), "dgx-a100:1", {"node.gpus=4"}, 16, 512}, "cp=1,tp=1"},
        Case{"pipelines_tight",
             {small_spec(), "dgx-a100:1", {"node.gpus=4", "gpu.memory=2600 MiB"}, 16, 1024},
             "cp=1,tp=1"},
        Case{"zero_bubble", {small_spec(8), "hgx-h100:2", {"node.gpus=2"}, 16, 512}, "pp=4,cp=1"},
        Case{"nodes", {small_spec(), "hgx-h100:2", {"node.gpus=2"}, 4, 2048}, "cp=1"},
        Case{"ethernet", {small_spec(), "rtx-3090-8:1", {"node.gpus=4"}, 4, 512}, "cp=1"},
        Case{"uneven_chunks", {uneven_spec()}, "pp=2,chunks=2,cp=1"},
        Case{"sixes", {grouped_queries(), "dgx-a100:1", {"node.gpus=6"}, 12, 1024}, "cp=1"}),
    [](const testing::TestParamInfo<Case>& row) { return std::string(row.param.name); });

// Two schedules of nobody, beside a registered one.
TEST(Search, SearchesOverDocuments) {
  const std::string head = R"({"schema": "orrery-schedule", "version": 1, "name": )";
  const std::string folder = testing::TempDir();
  write_file_atomically(folder + "shallow.json", head + R"("shallow", "placement": "loop",
                                   "warm_up": {"forwards": 2, "per_later_device": 1}})");
  write_file_atomically(folder + "lazy-v.json",
                        head + R"("lazy-v", "placement": "v", "split_backward": true,
                                   "priority": ["B", "F", "W"], "cap": 6})");
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  Options options;
  options.jobs = 2;
  options.constraints.fix("pp=4");
  for (const char* name : {"shallow.json", "lazy-v.json", "gpipe"}) {
    const std::string text = name;
    options.constraints.choose_schedule(text.ends_with(".json") ? folder + text : text);
  }
  std::set<std::string> seen;
  const Exhaustive all = enumerate(base, options.constraints,
                                   [&](const plan::Plan& plan, const plan::Simulation&,
                                       plan::Simulator&) { seen.insert(plan.schedule); });
  EXPECT_EQ(seen, (std::set<std::string>{"gpipe", "lazy-v", "shallow"}));
  const Outcome found = search(base, options);
  EXPECT_EQ(found.plans, all.plans);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->simulation.iteration_time, *all.best);
  EXPECT_EQ(verify(*found.best), "");
  // The winner is a document, and its plan needs no other file.
  EXPECT_NE(found.best->plan.schedule, "gpipe");
  const plan::Plan again = plan::read_plan(plan::to_json(found.best->plan), "again");
  EXPECT_EQ(plan::simulate(again).iteration_time, *all.best);
}

// The memory of the card is set to what the best plan needs by its categories, so that the
// allocator has nothing left: another plan is the answer, and it fits when it is replayed.
TEST(Search, AnswersFitWhenTheyAreReplayed) {
  plan::Plan base = base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 64, 2048});
  Options options;
  options.jobs = 2;
  options.constraints = fixed("recompute=none");
  const Outcome roomy = search(base, options);
  ASSERT_TRUE(roomy.best);
  ByteCount counted;
  for (const plan::StageMemory& stage : roomy.best->simulation.memory) {
    counted = std::max(counted, stage.total());
  }
  base.memory_reserve = base.cluster.gpu.memory - counted;
  plan::Plan same = roomy.best->plan;
  same.memory_reserve = base.memory_reserve;
  ASSERT_TRUE(plan::Simulator(same).fits(same).fits);
  ASSERT_FALSE(fits_replayed(same));
  const Outcome tight = search(base, options);
  ASSERT_TRUE(tight.best);
  EXPECT_TRUE(fits_replayed(tight.best->plan));
  EXPECT_GE(tight.best->simulation.iteration_time, roomy.best->simulation.iteration_time);
  EXPECT_EQ(tight.best->simulation.iteration_time, *enumerate(base, options.constraints).best);
  for (const Found& other : tight.alternatives) {
    EXPECT_TRUE(fits_replayed(other.plan));
  }
}

TEST(Search, EmptySpacesNameWhatTheScheduleAsksFor) {
  Options options;
  options.jobs = 1;
  const auto message = [&](const std::string& text) -> std::string {
    try {
      options.constraints = fixed(text);
      (void)search(base_plan(), options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("schedule=zb-v,chunks=1,pp=2"), testing::HasSubstr("set chunks to 2"));
  EXPECT_THAT(message("schedule=dualpipe,pp=4,micro_batch=2"), testing::HasSubstr("micro-batches"));
  EXPECT_THAT(message("schedule=pipedream"), testing::HasSubstr("--allow asynchronous"));
  EXPECT_THAT(message("schedule=dip"), testing::HasSubstr("small has one module"));
}

std::string fingerprint(const Outcome& outcome) {
  std::string text = std::to_string(outcome.plans) + " " + std::to_string(outcome.pruned) + " " +
                     std::to_string(outcome.infeasible) + " " + std::to_string(outcome.simulated);
  const auto add = [&](const Found& found) {
    text += "\n" + plan::to_json(found.plan).dump() +
            std::to_string(to_sim_time(found.simulation.iteration_time).ps);
  };
  add(*outcome.best);
  for (const Found& found : outcome.alternatives) {
    add(found);
  }
  return text;
}

TEST(Search, IsTheSameOnAnyNumberOfThreads) {
  const plan::Plan base = base_plan(kTight);
  Options options;
  options.top = 7;
  options.jobs = 1;
  const std::string one = fingerprint(search(base, options));
  for (const int jobs : {2, 3, 8}) {
    options.jobs = jobs;
    EXPECT_EQ(fingerprint(search(base, options)), one) << jobs;
  }
}

TEST(Search, AlternativesAscendAndDiffer) {
  Options options;
  options.jobs = 1;
  options.top = 6;
  const Outcome outcome = search(base_plan(), options);
  ASSERT_EQ(outcome.alternatives.size(), 6u);
  Seconds last = outcome.best->simulation.iteration_time;
  for (const Found& found : outcome.alternatives) {
    EXPECT_GE(found.simulation.iteration_time, last);
    EXPECT_NE(plan::to_json(found.plan).dump(), plan::to_json(outcome.best->plan).dump());
    EXPECT_EQ(verify(found), "");
    last = found.simulation.iteration_time;
  }
  options.top = 0;
  EXPECT_TRUE(search(base_plan(), options).alternatives.empty());
}

TEST(Search, ConstraintsAreHonouredAndNeverHelp) {
  Options options;
  options.jobs = 1;
  const Seconds free = search(base_plan(), options).best->simulation.iteration_time;
  const auto best = [&](Constraints constraints) {
    Options constrained = options;
    constrained.constraints = std::move(constraints);
    Outcome outcome = search(base_plan(), constrained);
    EXPECT_TRUE(outcome.best);
    EXPECT_GE(outcome.best->simulation.iteration_time, free);
    return outcome.best->plan;
  };
  EXPECT_EQ(best(fixed("tp=2")).blocks.front().layout.tp, 2);
  EXPECT_EQ(best(fixed("pp=2,chunks=2")).chunks, 2);
  EXPECT_EQ(best(fixed("dp=2,cp=2")).blocks.front().layout.cp, 2);
  EXPECT_EQ(best(fixed("zero=3,dp=4")).blocks.front().layout.zero_stage, 3);
  EXPECT_EQ(best(fixed("micro_batch=2")).micro_batch, 2);
  EXPECT_EQ(best(fixed("recompute=full")).blocks.front().layout.recompute, plan::Recompute::Full);
  EXPECT_EQ(best(fixed("schedule=gpipe,pp=2")).schedule, "gpipe");
  EXPECT_EQ(best(fixed("schedule=gpipe,pp=1")).schedule, "gpipe");
  EXPECT_TRUE(best(fixed("tp=4,sequence_parallel=true")).blocks.front().layout.sequence_parallel);
  EXPECT_EQ(best(fixed("cp=4,context=all-gather")).blocks.front().layout.context,
            plan::ContextParallel::AllGather);
  const plan::Plan without = best(forbidden("tp=1,pp=1,zero=1"));
  EXPECT_NE(without.blocks.front().layout.tp, 1);
  EXPECT_NE(without.pp, 1);
  EXPECT_NE(without.blocks.front().layout.zero_stage, 1);
}

// One micro-batch on one stage is the same under every schedule.
TEST(Search, ForbiddingOneScheduleKeepsPlansWithoutAPipeline) {
  Options options;
  options.jobs = 1;
  options.constraints.fix("pp=1");
  options.constraints.forbid("schedule=1f1b");
  const Outcome outcome = search(base_plan(), options);
  ASSERT_TRUE(outcome.best);
  EXPECT_EQ(outcome.best->plan.schedule, "gpipe");
}

TEST(Search, MoreMemoryIsNeverWorse) {
  Options options;
  options.jobs = 1;
  options.constraints = fixed("cp=1");
  Seconds before(std::numeric_limits<double>::infinity());
  int found = 0;
  for (const char* memory : {"2 GiB", "3 GiB", "4 GiB", "8 GiB", "80 GiB"}) {
    Shape shape = kTight;
    shape.overrides[1] = std::string("gpu.memory=") + memory;
    const Outcome outcome = search(base_plan(shape), options);
    if (!outcome.best) {
      EXPECT_EQ(found, 0) << memory;
      continue;
    }
    ++found;
    EXPECT_LE(outcome.best->simulation.iteration_time, before) << memory;
    before = outcome.best->simulation.iteration_time;
  }
  EXPECT_GE(found, 3);
}

TEST(Search, ReserveCountsAsUsed) {
  plan::Plan base = base_plan(kTight);
  base.memory_reserve = ByteCount(1LL << 30);
  Shape shape = kTight;
  shape.overrides[1] = "gpu.memory=2 GiB";
  Options options;
  options.jobs = 1;
  const Outcome reserved = search(base, options);
  const Outcome smaller = search(base_plan(shape), options);
  EXPECT_EQ(reserved.best.has_value(), smaller.best.has_value());
  EXPECT_EQ(reserved.simulated, smaller.simulated);
  EXPECT_EQ(reserved.infeasible, smaller.infeasible);
}

TEST(Search, NothingFitsNamesTheClosestOverflow) {
  Shape shape = kTight;
  shape.overrides[1] = "gpu.memory=1100 MiB";
  Options options;
  options.jobs = 1;
  const plan::Plan base = base_plan(shape);
  const Outcome outcome = search(base, options);
  EXPECT_FALSE(outcome.best);
  EXPECT_EQ(outcome.simulated, 0);
  EXPECT_EQ(outcome.infeasible, outcome.plans);
  EXPECT_EQ(outcome.pruned, outcome.plans);
  EXPECT_FALSE(outcome.interrupted);
  std::string closest;
  ByteCount least(std::numeric_limits<std::int64_t>::max());
  enumerate(base, {},
            [&](const plan::Plan& plan, const plan::Simulation&, plan::Simulator& simulator) {
              least = std::min(least, simulator.fits(plan).excess);
            });
  // Its replay asks for no less: a card of that size takes the plan.
  bool named = false;
  enumerate(base, {},
            [&](const plan::Plan& plan, const plan::Simulation&, plan::Simulator& simulator) {
              const plan::MemoryVerdict counted = simulator.fits(plan);
              if (counted.excess != least) {
                return;
              }
              const plan::MemoryVerdict needed = replayed_misfit(plan, counted, ByteCount(), 1);
              if (needed.text != outcome.closest_overflow) {
                return;
              }
              named = true;
              EXPECT_GE(needed.excess, least);
              plan::Plan larger = plan;
              larger.cluster.gpu.memory = plan.cluster.gpu.memory + needed.excess;
              EXPECT_FALSE(plan::simulate(larger).does_not_fit);
              EXPECT_TRUE(fits_replayed(larger));
            });
  EXPECT_TRUE(named) << outcome.closest_overflow;
}

TEST(Search, EverythingFixedEvaluatesThatPlan) {
  const std::string all =
      "tp=2,cp=1,ep=1,pp=2,dp=1,chunks=1,micro_batch=2,zero=0,recompute=full,"
      "sequence_parallel=true,schedule=1f1b,stages=even";
  Options options;
  options.jobs = 2;
  options.constraints = fixed(all);
  const Outcome outcome = search(base_plan(), options);
  EXPECT_EQ(outcome.plans, 1);
  EXPECT_EQ(outcome.simulated, 1);
  EXPECT_EQ(outcome.gap_fraction, 0.0);
  ASSERT_TRUE(outcome.best);
  EXPECT_EQ(outcome.best->simulation.iteration_time,
            plan::simulate(outcome.best->plan).iteration_time);
  Shape shape = kTight;
  shape.overrides[1] = "gpu.memory=1500 MiB";
  const Outcome over = search(base_plan(shape), options);
  EXPECT_FALSE(over.best);
  EXPECT_THAT(over.closest_overflow, testing::ContainsRegex("stage . needs .* of 1.46 GiB"));
  EXPECT_THAT(over.closest_overflow, testing::HasSubstr("the largest part is"));
}

TEST(Search, EmptySpaceIsAnError) {
  Options options;
  options.constraints = fixed("tp=3");
  EXPECT_THROW((void)search(base_plan(), options), Error);
}

}  // namespace
}  // namespace orrery::search
