// SPDX-License-Identifier: Apache-2.0
// Every pipeline schedule in plans: registered ones, documents, two copies of the model, split
// backwards and schedules that never flush.
#include "plan/stage/plan_schedule.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/live_counts.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stages.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/pipeline/pipeline_path.hpp"
#include "sim/pipeline/schedule_picture.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"
#include "tests/unit/sim/listed_document.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

// Four stages of two chunks each at most, 16 micro-batches.
Plan pipeline(const std::string& schedule, int chunks = 1) {
  return in_pipeline(small_plan(), schedule, {.chunks = chunks});
}

Plan with_document(Plan plan, const std::string& members) {
  const Json document =
      parse_json(R"({"schema": "orrery-schedule", "version": 1, "name": "mine", )" + members + "}",
                 "mine.json");
  plan.schedule_document = std::make_shared<const sim::ScheduleDocument>(
      sim::read_schedule_document(document, "mine.json"));
  plan.schedule = "mine";
  return plan;
}

// Two schedules that nobody has published: a shallow warm-up that grows by one, and a V that runs
// what is ready with weight gradients last.
constexpr const char* kShallow =
    R"("placement": "loop", "warm_up": {"forwards": 2, "per_later_device": 1})";
constexpr const char* kLazyV =
    R"("placement": "v", "split_backward": true, "priority": ["B", "F", "W"], "cap": 6)";

int chunks_of(const sim::Schedule& schedule) {
  for (const int chunks : {1, 2}) {
    if (schedule.check({.stages = 4, .micro_batches = 16, .chunks = chunks}).empty()) {
      return chunks;
    }
  }
  return 1;
}

// A frozen encoder or one to train, or workers instead of stages.
void give_what_it_needs(const sim::Schedule& schedule, Plan& plan) {
  const ScheduleTraits traits = schedule_traits(schedule);
  if (traits.fills_frozen || traits.by_modules) {
    plan.network = models::build_network(
        traits.cascades ? with_cascade() : with_encoder(traits.fills_frozen), "test");
    plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
    plan.chunks = traits.by_modules || traits.cascades ? 2 : 1;
    plan.encoder_parts = traits.by_modules ? 2 : 1;
    plan.stage_blocks =
        cut_stages(plan.network, plan.sequence, plan.pp, plan.chunks, module_cut(plan));
  }
  if (traits.packs_sequences) {  // 8 ranks
    plan.dp *= plan.pp;
    plan.pp = 1;
    plan.stage_blocks = even_stages(plan.network, 1);
    plan.packs = {{{plan.dp / 2, {1024, 2048}}, {plan.dp / 2, {512, 512, 512}}}};
    plan.batch = 5;
  }
  if (traits.spreads_attention) {
    plan.chunks = 2;  // of a layer each
    plan.stage_blocks = even_stages(plan.network, 8);
  }
  if (traits.uses_servers) {
    plan.blocks.front().layout.zero_stage = 0;
    if (schedule.name == "zou-ps-ring") {
      plan.pp = 1;
      plan.dp = 8;
      plan.stage_blocks = even_stages(plan.network, 1);
    }
  }
}

// Two stages, F = 1 and B = 2, four micro-batches: the last device waits for a forward and is
// followed by a gradient, unless enough of its own work may come after its last gradient.
TEST(PipelineFloor, CountsWhatComesBeforeAndAfterTheBusiestDevice) {
  const StagePlacement place = {.device_of = {0, 1}};
  const StagePasses whole = {SimTime{1}, SimTime{2}, SimTime{}};
  EXPECT_EQ(pipeline_floor({whole, whole}, place, 2, 4).ps, 1 + 12 + 2);
  StagePasses cut = whole;
  cut.late = SimTime{1};
  EXPECT_EQ(pipeline_floor({cut, cut}, place, 2, 4).ps, 1 + 8 + 4);
  StagePasses once = whole;
  once.send_back = SimTime{5};
  EXPECT_EQ(pipeline_floor({once, whole}, place, 2, 4).ps, 1 + 12 + 2 + 5);
  const BesideChain shards = {.before = SimTime{8}, .late = SimTime{1}};
  EXPECT_EQ(pipeline_floor({whole, whole}, place, 2, 4, shards).ps, 1 + 12 + 8 + 2);
}

class EverySchedule : public testing::TestWithParam<const sim::Schedule*> {};

TEST_P(EverySchedule, RunsInAPlanBetweenItsBoundsOrSaysWhyNot) {
  const sim::Schedule& schedule = *GetParam();
  Plan plan = pipeline(std::string(schedule.name), chunks_of(schedule));
  plan.slices = schedule_traits(schedule).uses_slices && schedule.in_plans ? 8 : 1;
  give_what_it_needs(schedule, plan);
  if (!schedule.in_plans) {
    EXPECT_THAT(problem(plan), HasSubstr("it needs ")) << schedule.name;
    return;
  }
  ASSERT_EQ(problem(plan), "");
  Simulator simulator(plan);
  const Simulation result = simulator.run(plan);
  EXPECT_GT(result.iteration_time, Seconds());
  EXPECT_LE(simulator.work_bound(plan), simulator.lower_bound(plan));
  EXPECT_LE(simulator.lower_bound(plan), simulator.list_bound(plan));
  EXPECT_LE(simulator.list_bound(plan), result.iteration_time);
  LayoutBounds bounds = simulator.layout_bounds(plan, {1});
  const StagePlacement place = simulator.placement(plan);
  EXPECT_LE(bounds.time(plan.stage_blocks, place, simulator.transfer_times()),
            simulator.lower_bound(plan));
  EXPECT_LE(bounds.least_time(place.shares_ends, place.joins_passes), result.iteration_time);
  ByteCount fullest;
  for (const StageMemory& stage : result.memory) {
    fullest = std::max(fullest, stage.total());
  }
  EXPECT_LE(bounds.memory(plan.stage_blocks, place).front(), fullest);
  EXPECT_LE(bounds.least_memory(0, false), fullest);
  // No faster with the memory that it takes.
  const Seconds within = bounds.time_within(plan.stage_blocks, place, 0, fullest);
  EXPECT_LE(within, result.iteration_time);
  EXPECT_EQ(within > Seconds(), schedule.traits.synchronous && !schedule.traits.copies_to_host &&
                                    !schedule.traits.spreads_attention &&
                                    !schedule.traits.packs_sequences && !schedule.traits.cascades);
  EXPECT_EQ(result.synchronous, schedule.traits.synchronous);
  // It is drawn, a row for each list, and has a path as long as it.
  const Simulation drawn = simulator.run(plan, {.record_spans = true});
  EXPECT_EQ(drawn.iteration_time, result.iteration_time);
  const std::string picture = sim::schedule_picture(drawn.pipeline, {.order = &drawn.order});
  EXPECT_EQ(static_cast<std::size_t>(std::count(picture.begin(), picture.end(), '\n')),
            drawn.order.passes.size() + 1);
  EXPECT_EQ(sim::pipeline_path(drawn.order, drawn.pipeline).total(), drawn.pipeline.makespan);
  // The document reads back to the same picosecond.
  const Plan again = read_plan(to_json(plan), "again");
  EXPECT_EQ(simulate(again).iteration_time, result.iteration_time);
}

std::vector<const sim::Schedule*> all_schedules() {
  const auto table = sim::schedule_table();
  return {table.begin(), table.end()};
}

INSTANTIATE_TEST_SUITE_P(Registered, EverySchedule, testing::ValuesIn(all_schedules()),
                         [](const auto& row) {
                           std::string name(row.param->name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return "s" + name;
                         });

// Lists with slices, directions and joined passes cost what the schedule costs whose they are.
TEST(ScheduleDocuments, ListsOfRegisteredSchedulesTakeAsLong) {
  for (const char* name : {"1f1b", "seq1f1b", "terapipe", "chimera", "dualpipe"}) {
    Plan plan = pipeline(name);
    plan.slices = schedule_traits(plan).uses_slices ? 4 : 1;
    ASSERT_EQ(problem(plan), "") << name;
    const sim::PipelineOrder order = schedule_order(plan, schedule_params(plan));
    Plan listed = plan;
    listed.schedule_document = std::make_shared<const sim::ScheduleDocument>(
        sim::read_schedule_document(parse_json(sim::document_of(order), "mine.json"), "mine.json"));
    listed.schedule = "mine";
    ASSERT_EQ(problem(listed), "") << name;
    const Simulation expected = simulate(plan);
    const Simulation result = simulate(listed);
    EXPECT_EQ(result.iteration_time, expected.iteration_time) << name;
    EXPECT_EQ(result.does_not_fit, expected.does_not_fit) << name;
    EXPECT_LE(Simulator(listed).lower_bound(listed), result.iteration_time) << name;
    EXPECT_EQ(simulate(read_plan(to_json(listed), "again")).iteration_time, result.iteration_time);
  }
}

TEST(ScheduleDocuments, WhatPlansDoNotTakeFromListsIsNamed) {
  const auto problem_of = [](Plan plan, const sim::PipelineOrder& order) {
    plan.schedule_document = std::make_shared<const sim::ScheduleDocument>(
        sim::read_schedule_document(parse_json(sim::document_of(order), "mine.json"), "mine.json"));
    plan.schedule = "mine";
    return problem(plan);
  };
  // Both directions the same way.
  const Plan plan = pipeline("1f1b");
  const Plan both = pipeline("chimera");
  sim::PipelineOrder twice = schedule_order(plan, schedule_params(plan));
  const int half = twice.micro_batches / 2;
  twice.num_virtual_stages = 8;
  for (std::uint16_t d = 0; d < 4; ++d) {
    twice.device_of.push_back(d);
    for (sim::Pass& pass : twice.passes[d]) {
      if (static_cast<int>(pass.micro_batch) >= half) {
        pass.virtual_stage = static_cast<std::uint16_t>(pass.virtual_stage + 4);
        pass.micro_batch -= static_cast<std::uint32_t>(half);
      }
    }
  }
  twice.chains = {{.first = 0, .stages = 4, .units = half},
                  {.first = 4, .stages = 4, .units = half, .first_unit = half}};
  twice.micro_batches = half;
  EXPECT_THAT(problem_of(both, twice), HasSubstr("mirror images"));
}

TEST(ScheduleDocuments, RunInPlansAndTravelWithThem) {
  const Plan shallow = with_document(pipeline("1f1b"), kShallow);
  const Plan lazy = with_document(pipeline("v-half", 2), kLazyV);
  for (const Plan& plan : {shallow, lazy}) {
    ASSERT_EQ(problem(plan), "");
    Simulator simulator(plan);
    const Simulation result = simulator.run(plan);
    EXPECT_LE(simulator.lower_bound(plan), simulator.list_bound(plan));
    EXPECT_LE(simulator.list_bound(plan), result.iteration_time);
    const Json document = to_json(plan);
    const Json* schedule = document.find("parallelism")->find("schedule");
    ASSERT_TRUE(schedule->is_object());
    EXPECT_EQ(schedule->find("name")->as_string(), "mine");
    EXPECT_EQ(simulate(read_plan(document, "again")).iteration_time, result.iteration_time);
  }
  // The deeper warm-up holds two micro-batches more on the first device than 1F1B on the last.
  const auto activations = [](const Plan& plan, std::size_t device) {
    return Simulator(plan).memory(plan)[device].activations.value();
  };
  EXPECT_EQ(activations(shallow, 1) * 4, activations(pipeline("gpipe"), 1));
}

TEST(ScheduleDocuments, BadOnesNameTheConstraint) {
  EXPECT_THAT(problem(with_document(pipeline("1f1b"), kLazyV)), HasSubstr("set chunks to 2"));
  EXPECT_THAT(
      problem(with_document(pipeline("1f1b"),
                            R"("passes": [[{"pass": "F", "stage": 0, "micro_batch": 0}]])")),
      HasSubstr("set pp to 1"));
  std::string lists;
  for (int stage = 0; stage < 4; ++stage) {
    lists += fmt::format(R"({}[{{"pass": "F", "stage": {}, "micro_batch": 0}},
                            {{"pass": "BW", "stage": {}, "micro_batch": 0}}])",
                         stage > 0 ? ", " : "", stage, stage);
  }
  EXPECT_THAT(problem(with_document(pipeline("1f1b"), fmt::format(R"("passes": [{}])", lists))),
              HasSubstr("lists of 1 micro-batch do not fit 16: set micro_batch to 16"));
  EXPECT_THAT(problem(with_document(pipeline("1f1b", 2),
                                    R"("placement": "loop", "traversal": "depth", "warm_up": 1)")),
              HasSubstr("deadlock"));
}

// A plan without a cap says nothing of it; 0 is no cap that a plan can ask for.
TEST(ScheduleProblems, RefuseCapsBelowOneMicroBatch) {
  const Plan plan = pipeline("zb-1p");
  Json document = to_json(plan);
  EXPECT_FALSE(document.find("parallelism")->find("activation_cap"));
  EXPECT_EQ(read_plan(document, "again").activation_cap, 0.0);
  for (const double cap : {0.0, -1.0, 0.5}) {
    Json edited = document;
    Json parallelism = *document.find("parallelism");
    parallelism.set("activation_cap", cap);
    edited.set("parallelism", parallelism);
    EXPECT_THROW((void)read_plan(edited, "edited"), Error) << cap;
  }
  Plan capped = plan;
  capped.activation_cap = 1.0;
  EXPECT_EQ(read_plan(to_json(capped), "again").activation_cap, 1.0);
}

TEST(ScheduleProblems, NameTheConstraintAndTheSmallestChange) {
  EXPECT_THAT(problem(pipeline("zb-v", 1)), HasSubstr("set chunks to 2"));
  EXPECT_THAT(problem(pipeline("1f1b", 2)), HasSubstr("set chunks to 1"));
  Plan plan = pipeline("interleaved", 2);
  plan.batch = 36;
  EXPECT_THAT(problem(plan), HasSubstr("set micro-batches to 20"));
  plan = pipeline("zb-1p");
  plan.activation_cap = 0.5;
  EXPECT_THAT(problem(plan), HasSubstr("set activation_cap to 1"));
}

TEST(TwoDirections, HoldTwoCopiesAndSumTheirGradients) {
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = false;  // a tied table would be on the first and the last device once
  const Plan once = in_pipeline(small_plan(spec), "1f1b");
  const Plan twice = in_pipeline(small_plan(spec), "chimera");
  const std::vector<StageMemory> one = Simulator(once).memory(once);
  const std::vector<StageMemory> two = Simulator(twice).memory(twice);
  for (std::size_t d = 0; d < 4; ++d) {
    EXPECT_EQ(two[d].parameters, one[d].parameters + one[3 - d].parameters);
    EXPECT_EQ(two[d].optimizer, one[d].optimizer + one[3 - d].optimizer);
  }
  Plan distant = twice;
  distant.cluster.node.scale_up.nccl_bandwidth *= 0.01;
  EXPECT_GT(simulate(distant).iteration_time, simulate(twice).iteration_time);
}

TEST(SplitBackward, TakesNoLessThanTheWholeAndExposesWhatItHid) {
  Plan plan = pipeline("zb-h1");
  plan.blocks.front().layout.sequence_parallel = true;
  BlockCosts costs(plan);
  SplitBackwards splits;
  for (const bool overlap : {false, true}) {
    plan.execution.overlap_tp = overlap;
    BlockCosts of_plan(plan);
    SplitBackwards cut;
    const StageContent middle = stage_contents(plan)[1];
    const StageCost stage = add_up_stage(middle, plan, of_plan);
    const SplitTimes times = cut.times(middle, plan, of_plan, stage);
    EXPECT_GT(times.weight_grad, SimTime{});
    EXPECT_GE(times.input_grad + times.weight_grad, stage.backward);
    // Collectives under weight-gradient GEMMs have nothing to hide under in B.
    const SimTime lost = times.input_grad + times.weight_grad - stage.backward;
    EXPECT_EQ(overlap, lost > SimTime{1000}) << lost.ps;
  }
}

// B frees what only it needs; W keeps inputs and output gradients of the products.
TEST(SplitBackward, KeepsLessThanEverythingUntilTheWeightGradient) {
  Plan plan = pipeline("zb-h2");
  plan.network.spec.hidden_dropout = 0.1;
  plan.network = models::build_network(plan.network.spec, "test");
  plan.execution.fused_attention = false;  // scores are saved, and only B reads them
  const std::vector<LiveCounts> live =
      live_counts(schedule_order(plan, {.stages = 4, .micro_batches = 16}));
  BlockCosts costs(plan);
  SplitBackwards splits;
  const std::vector<StageContent> contents = stage_contents(plan);
  for (std::size_t d = 0; d < 4; ++d) {
    ASSERT_TRUE(live[d].splits);
    const StageCost stage = add_up_stage(contents[d], plan, costs);
    const SplitBackwards::Kept kept = splits.kept(contents[d], plan, costs);
    EXPECT_LT(kept.layers, stage.saved);
    EXPECT_GT(kept.layers * 4, stage.saved);
    ByteCount most;
    for (const std::vector<int>& counts : live[d].maxima) {
      most = std::max(most, (stage.saved + stage.saved_ends) * counts[0] +
                                (kept.layers + kept.ends) * counts[1]);
    }
    const StageMemory memory = Simulator(plan).memory(plan)[d];
    EXPECT_EQ(memory.activations + memory.ends, most);
  }
  // A late weight gradient and few forwards: both kinds are there at once.
  const auto mixed = [](const std::vector<int>& counts) { return counts[0] > 0 && counts[1] > 0; };
  EXPECT_TRUE(std::any_of(live[1].maxima.begin(), live[1].maxima.end(), mixed));
}

TEST(Asynchronous, ReportStalenessVersionsAndPeriod) {
  const Plan flushing = pipeline("1f1b");
  const Plan stale = pipeline("pipedream-2bw");
  const Simulation a = simulate(flushing);
  const Simulation b = simulate(stale);
  EXPECT_FALSE(b.synchronous);
  EXPECT_EQ(b.staleness, 1);
  EXPECT_EQ(b.weight_versions, 2);
  EXPECT_NEAR(b.iteration_time.value(), b.steady_period.value() * 16, 1e-9);
  EXPECT_LT(b.bubble_fraction, a.bubble_fraction);
  EXPECT_EQ(b.memory.front().parameters, a.memory.front().parameters * 2);
  // PipeDream updates after every micro-batch and keeps a version for each in flight.
  const Simulation c = simulate(pipeline("pipedream"));
  EXPECT_EQ(c.staleness, 3);
  EXPECT_EQ(c.weight_versions, 4);
  EXPECT_GT(c.iteration_time, b.iteration_time);
  EXPECT_TRUE(a.synchronous);
  EXPECT_EQ(a.weight_versions, 1);
}

// Shards of both ends lie on every device, yet nothing is converted between them.
TEST(PlanSchedule, EndsOfOtherLayoutsAreShared) {
  Plan plan = pipeline("vocab-2", 1);
  BlockPlan layers = plan.blocks.front().layout;
  const int blocks = plan.blocks.front().count;
  BlockPlan head = layers;
  head.zero_stage = 0;
  plan.blocks = {{blocks - 1, layers}, {1, head}};
  check_plan(plan, "test");
  const std::vector<StageContent> stages = stage_contents(plan);
  BlockCosts costs(plan);
  const StageCost ends = simulate_stage(stages.back(), plan, costs);
  EXPECT_EQ(ends.relayout_forward + ends.relayout_backward, Seconds(0));
  EXPECT_GT(simulate(plan).iteration_time, Seconds(0));
}

}  // namespace
}  // namespace orrery::plan
