// SPDX-License-Identifier: Apache-2.0
// Given pass times: per device share, per virtual stage and per micro-batch, as JSON and CSV; and a
// plan under other schedules.
#include "studies/schedule_costs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/files.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/schedule_cuts.hpp"
#include "plan/stages.hpp"
#include "studies/plan_schedules.hpp"
#include "studies/schedule_run.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::studies {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

std::string file(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  write_file_atomically(path, text);
  return path;
}

sim::PipelineOrder order_of(const char* name, int stages, int micro_batches, int chunks = 1) {
  return sim::find_schedule(name, "test")
      .order({.stages = stages, .micro_batches = micro_batches, .chunks = chunks});
}

constexpr const char* kCsv =
    "stage,micro_batch,forward_s,input_grad_s,weight_grad_s,send_s,activation_bytes\n"
    "0,,0.010,0.011,0.009,0.001,2000\n"
    "1,,0.012,0.013,0.011,0.001,3000\n"
    "1,1,0.024,,,,\n";
constexpr const char* kJson =
    R"({"schema": "orrery-schedule-costs", "version": 1,
        "stages": [{"forward": "10 ms", "input_grad": "11 ms", "weight_grad": "9 ms",
                    "send": "1 ms", "activation": "2000 B"},
                   {"forward": "12 ms", "input_grad": "13 ms", "weight_grad": "11 ms",
                    "send": "1 ms", "activation": "3000 B"}],
        "micro_batches": [{"stage": 1, "micro_batch": 1, "forward": "24 ms"}]})";

TEST(ScheduleCosts, JsonAndCsvAgreeAndTimesAreThoseOfTheTable) {
  const sim::PipelineOrder order = order_of("gpipe", 2, 2);
  const CostTable csv = read_cost_table(file("times.csv", kCsv));
  const CostTable json = read_cost_table(file("times.json", kJson));
  const auto run = [&](const CostTable& table) {
    const sim::ShareCosts given = table_costs(order, table);
    return run_schedule(order, true, given.costs, given.scale, true);
  };
  const ScheduleRun a = run(csv);
  const ScheduleRun b = run(json);
  EXPECT_EQ(a.result.makespan, b.result.makespan);
  // Forwards 10, 10 on device 0; 12 and 24 on device 1 from 11 on; backwards of 24 each, which
  // device 0 follows by 1 ms and 20.
  EXPECT_NEAR(a.measures.makespan, 0.011 + 0.012 + 0.024 + 2 * 0.024 + 0.001 + 0.020, 1e-9);
  EXPECT_EQ(a.measures.peak_activation_bytes, (std::vector<std::int64_t>{4000, 6000}));
}

// A row a stage, whatever number of devices it is on; the all-reduce follows a round.
TEST(ScheduleCosts, ReplicatedStagesHaveARowEach) {
  sim::ScheduleParams params{.stages = 2, .micro_batches = 3};
  params.replicas_of = {3, 1};
  const sim::PipelineOrder order = sim::find_schedule("pipedream", "test").order(params);
  const auto period_of = [&](const std::string& reduce, const std::string& unit) {
    const CostTable table = read_cost_table(
        file("replicas.csv", "stage,micro_batch,forward_s,input_grad_s,reduce_s\n0,,3,6," + reduce +
                                 "\n1,,0.5,1,\n" + unit));
    const sim::ShareCosts given = table_costs(order, table);
    return run_schedule(order, false, given.costs, given.scale, true).measures;
  };
  EXPECT_NEAR(period_of("", "").steady_period, 3, 1e-9);
  EXPECT_NEAR(period_of("1.5", "").steady_period, 3.5, 1e-9);
  EXPECT_GT(period_of("", "0,4,5,,\n").makespan, period_of("", "").makespan);
  const CostTable one = read_cost_table(
      file("one.csv", "stage,micro_batch,forward_s,input_grad_s,reduce_s\n0,,3,6,1\n1,,1,1,\n"));
  EXPECT_THROW((void)table_costs(order_of("1f1b", 2, 2), one), Error);
  const CostTable four = read_cost_table(file(
      "four.csv", "stage,micro_batch,forward_s,input_grad_s\n0,,3,6\n1,,1,1\n2,,1,1\n3,,1,1\n"));
  EXPECT_THROW((void)table_costs(order, four), Error);
}

TEST(ScheduleCosts, AChunkTakesItsPartOfADevice) {
  const CostTable table = read_cost_table(file("times.json", kJson));
  CostTable uniform = table;
  uniform.units.clear();
  const sim::PipelineOrder order = order_of("zb-v", 2, 4, 2);
  const sim::ShareCosts costs = table_costs(order, uniform);
  EXPECT_EQ(costs.scale, 2);
  EXPECT_EQ(costs.costs.forward[0], to_sim_time(Seconds(0.010)));
  EXPECT_EQ(costs.costs.forward[3], costs.costs.forward[0]);  // the V ends where it began
  EXPECT_EQ(costs.costs.send_forward[1], SimTime{});          // both chunks on the last device
  // One row per virtual stage, too.
  uniform.stages.insert(uniform.stages.end(), table.stages.begin(), table.stages.end());
  EXPECT_EQ(table_costs(order, uniform).scale, 1);
}

// The same model as one row of its device and as a row for each of two virtual stages, both of a
// whole micro-batch: its slices share these times and bytes, not the transfers.
TEST(ScheduleCosts, SlicesShareRowsOfVirtualStages) {
  const std::string columns =
      "stage,forward_s,input_grad_s,weight_grad_s,send_s,activation_bytes\n";
  const CostTable one = read_cost_table(file("device.csv", columns + "0,2,2,2,0.5,2000000000\n"));
  const CostTable two = read_cost_table(
      file("stages.csv", columns + "0,1,1,1,0.5,1000000000\n1,1,1,1,0.5,1000000000\n"));
  const sim::PipelineOrder order =
      sim::find_schedule("slimpipe", "test")
          .order({.stages = 1, .micro_batches = 2, .chunks = 2, .slices = 4});
  for (const CostTable& table : {one, two}) {
    const sim::ShareCosts given = table_costs(order, table);
    const auto measures = run_schedule(order, true, given.costs, given.scale, false).measures;
    EXPECT_NEAR(measures.makespan, 2 * 6, 1e-9);
    EXPECT_EQ(measures.peak_activation_bytes, (std::vector<std::int64_t>{2'000'000'000}));
  }
  const sim::PipelineOrder crossing =
      sim::find_schedule("slimpipe", "test")
          .order({.stages = 2, .micro_batches = 2, .chunks = 1, .slices = 4});
  const sim::ShareCosts given = table_costs(crossing, two);
  EXPECT_EQ(given.costs.send_forward[0], to_sim_time(Seconds(0.5)) * given.scale);
}

TEST(ScheduleCosts, PredictionsOfSchedulesThatPredictNothingAreRefused) {
  const CostTable table = read_cost_table(
      file("predictions.csv", "stage,forward_s,input_grad_s,prediction_s\n0,1,1,1\n1,1,1,0\n"));
  try {
    (void)table_costs(order_of("1f1b", 2, 2), table);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("leave prediction out, or name xpipe"));
  }
}

TEST(ScheduleCosts, SlicesShareTheirMicroBatch) {
  CostTable table = read_cost_table(file("times.json", kJson));
  table.units.clear();
  const auto run = [&](int slices) {
    const sim::PipelineOrder order =
        sim::find_schedule("seq1f1b", "test")
            .order({.stages = 2, .micro_batches = 4, .slices = slices});
    const sim::ShareCosts given = table_costs(order, table);
    return run_schedule(order, true, given.costs, given.scale, false).measures;
  };
  const auto whole = run(1);
  const auto cut = run(5);
  EXPECT_LT(cut.makespan, whole.makespan);
  // The second device is busy for 36 ms a micro-batch, however it is cut.
  EXPECT_GT(cut.makespan, 4 * 0.036);
  EXPECT_LE(cut.peak_activation_bytes[0], whole.peak_activation_bytes[0]);
}

// What the weight gradient does not free the input gradient does: zb-h1 holds less, and with as
// much room for twice the stages' micro-batches zb-2p begins more of them.
TEST(ScheduleCosts, TheWeightGradientFreesItsPartOfTheActivations) {
  const auto run = [](const char* name, const std::string& bytes) {
    std::string csv =
        "stage,forward_s,input_grad_s,weight_grad_s,activation_bytes,"
        "weight_grad_activation_bytes\n";
    for (int s = 0; s < 4; ++s) {
      csv += std::to_string(s) + ",0.010,0.010,0.010,3000," + bytes + "\n";
    }
    const CostTable table = read_cost_table(file("parts.csv", csv));
    sim::ScheduleParams params{.stages = 4, .micro_batches = 12};
    const sim::Schedule& schedule = sim::find_schedule(name, "test");
    plan_with_table(schedule.order(params), table, params);
    const sim::PipelineOrder order = schedule.order(params);
    const sim::ShareCosts given = table_costs(order, table);
    return run_schedule(order, true, given.costs, given.scale, true).measures;
  };
  const auto peak = [&](const std::string& bytes) {
    return run("zb-h1", bytes).peak_activation_bytes.back();
  };
  EXPECT_EQ(peak(""), peak("3000"));
  EXPECT_LT(peak("1000"), peak("3000"));
  const ScheduleMeasures part = run("zb-2p", "1000");
  const ScheduleMeasures whole = run("zb-2p", "");
  EXPECT_EQ(part.peak_activation_bytes.front(), 2 * 4 * 3000);
  EXPECT_EQ(whole.peak_activation_bytes.front(), 2 * 4 * 3000);
  EXPECT_GT(part.peak_activations.front(), whole.peak_activations.front());
}

// The times of a table by device are those of one placement: on another flexpipe would choose by
// wrong ones.
TEST(ScheduleCosts, FlexpipeKeepsToThePlacementThatWasTimed) {
  const CostTable table = read_cost_table(
      file("devices.csv",
           "stage,forward_s,input_grad_s,weight_grad_s\n0,1,2,3\n1,1,1,2\n2,3,3,1\n3,3,2,2\n"
           "4,1,0.5,0.5\n"));
  for (const char* name : {"interleaved", "v-half"}) {
    sim::ScheduleParams params{.stages = 5, .micro_batches = 15, .chunks = 2};
    const sim::PipelineOrder placed = sim::find_schedule(name, "test").order(params);
    params.cap = 10;
    plan_with_table(placed, table, params);
    const sim::PipelineOrder order = sim::find_schedule("flexpipe", "test").order(params);
    EXPECT_EQ(order.device_of, placed.device_of) << name;
    const auto makespan = [&](const sim::PipelineOrder& of) {
      return sim::evaluate_pipeline(of, table_costs(of, table).costs).makespan;
    };
    EXPECT_LE(makespan(order), makespan(placed)) << name;
  }
}

// Of two stages the first predicts, once in each of four iterations but the first.
TEST(ScheduleCosts, PredictionsAreThoseOfTheTable) {
  const sim::PipelineOrder order =
      sim::find_schedule("xpipe", "test").order({.stages = 2, .micro_batches = 4, .iterations = 4});
  const CostTable csv =
      read_cost_table(file("predictions.csv",
                           "stage,forward_s,input_grad_s,weight_grad_s,prediction_s\n"
                           "0,0.010,0.011,0.009,0.003\n1,0.010,0.011,0.009,0.005\n"));
  const sim::ShareCosts given = table_costs(order, csv);
  const ScheduleRun run = run_schedule(order, false, given.costs, given.scale, true);
  EXPECT_EQ(run.result.devices[0].busy, to_sim_time(Seconds(16 * 0.030 + 3 * 0.003)));
  EXPECT_EQ(run.result.devices[1].busy, to_sim_time(Seconds(16 * 0.030)));
  EXPECT_EQ(run.measures.transfers, 8);  // four activations and their gradients
}

TEST(ScheduleCosts, BadTablesAreRefused) {
  const auto message = [](const std::string& name, const std::string& text) -> std::string {
    try {
      const CostTable table = read_cost_table(file(name, text));
      (void)table_costs(order_of("gpipe", 2, 2), table);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("a.csv", "stage,forward_s,input_grad_s\n1,1,1\n"),
              HasSubstr("a.csv:2: stage: stage 1 is out of order"));
  EXPECT_THAT(message("a.csv",
                      "stage,forward_s,input_grad_s,activation_bytes,weight_grad_activation_bytes\n"
                      "0,1,1,10,11\n"),
              HasSubstr("a.csv:2: weight_grad_activation_bytes: more than activation_bytes"));
  EXPECT_THAT(message("a.csv", "stage,forward_s,input_grad_s\n0,1,1\n"), HasSubstr("give 2"));
  // A misspelt or missing column is never a time of zero.
  EXPECT_THAT(message("a.csv", "stage,forwrd_s,input_grad_s\n0,1,1\n"),
              HasSubstr("unknown column \"forwrd_s\" (did you mean \"forward_s\"?)"));
  EXPECT_THAT(message("a.csv", "stage,input_grad_s\n0,1\n"),
              HasSubstr("forward_s: a time is missing"));
  EXPECT_THAT(message("a.csv", "stage,forward_s,input_grad_s\n0,1,\n"),
              HasSubstr("input_grad_s: a time is missing"));
  EXPECT_THAT(message("a.json", R"({"schema": "orrery-schedule-costs", "version": 1,
                                    "stages": [{"forward": "1 s"}]})"),
              HasSubstr("missing key \"input_grad\""));
  EXPECT_THAT(message("a.csv", "stage,forward_s\n0,-1\n"), HasSubstr("forward_s"));
  EXPECT_THAT(message("a.json", R"({"schema": "orrery-schedule-costs", "version": 1,
                                    "stages": [{"forwards": "1 s"}]})"),
              HasSubstr("forward"));
  EXPECT_THAT(message("b.csv", std::string(kCsv) + "0,9,1,,,,\n"), HasSubstr("micro-batch 9"));
  EXPECT_THAT(message("b.csv", std::string(kCsv) + "1,1,1,,,,\n"),
              HasSubstr("b.csv:5: micro_batch: micro-batch 1 of stage 1 is there twice"));
  EXPECT_THAT(message("b.csv", std::string(kCsv) + "1,0,1,,,9,\n"),
              HasSubstr("b.csv:5: send_s: a micro-batch has times alone"));
}

// Units of costs are arbitrary: runs beyond the 104 days that can be simulated have a smaller one.
TEST(ScheduleCosts, RunsOfAnyLengthAreInRange) {
  const SimTime time = to_sim_time(Seconds(1e5));
  const sim::PassTimes share{.forward = time, .input_grad = time, .weight_grad = time};
  const auto run = [&](const char* name, int chunks) {
    return run_schedule(order_of(name, 4, 64, chunks), true, share, false);
  };
  EXPECT_LT(run("1f1b", 1).scale, 1.0);
  EXPECT_DOUBLE_EQ(run("1f1b", 1).measures.makespan, 3e5 * (64 + 3));
  EXPECT_DOUBLE_EQ(run("interleaved", 3).measures.makespan, 3e5 * (64 + 1));
}

TEST(PlanSchedules, KeepThePlanAndChangeTheSchedule) {
  plan::Plan plan = plan::small_plan();
  plan.pp = 4;
  plan.dp = 2;
  plan.blocks.front().layout.tp = 2;
  plan.batch = 32;
  plan.stage_blocks = plan::even_stages(plan.network, 4);
  const PlanScheduleRun own = run_plan_schedule(with_schedule(plan, {}));
  EXPECT_EQ(own.simulation.iteration_time, plan::simulate(plan).iteration_time);
  const PlanScheduleRun v = run_plan_schedule(with_schedule(plan, {.name = "zb-v"}));
  EXPECT_EQ(v.plan.chunks, 2);
  EXPECT_EQ(v.plan.stage_blocks.size(), 8u);
  EXPECT_LT(v.simulation.bubble_fraction, own.simulation.bubble_fraction);
  EXPECT_EQ(v.measures.transfers, 2 * 16 * 6);  // the V turns without one
  EXPECT_THAT(comparison_text({own, v}), HasSubstr("zb-v"));
  EXPECT_THAT(to_text(v), HasSubstr("weight grad"));
  EXPECT_THROW((void)with_schedule(plan, {.name = "zb-v", .chunks = 1}), Error);
  EXPECT_THROW((void)with_schedule(plan, {.name = "dip"}), Error);
}

// A schedule that takes chunks names what else is wrong, not the chunks that nobody has set.
TEST(PlanSchedules, NameTheCapThatIsTooSmall) {
  plan::Plan plan = plan::in_pipeline(plan::small_plan(), "1f1b");
  const auto message = [&](const ScheduleRequest& request) -> std::string {
    try {
      (void)with_schedule(plan, request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({.name = "zb-v", .cap = 1, .cap_name = "--cap"}),
              HasSubstr("below the minimum: set --cap to 4"));
  EXPECT_THAT(message({.name = "zb-v", .chunks = 1, .cap = 1}), HasSubstr("set chunks to 2"));
  plan.batch = 6 * plan.dp;
  EXPECT_THAT(message({.name = "bitpipe"}), HasSubstr("set micro-batches to 8"));
}

// Schedules that know of modules cut the stages themselves, in either direction of a comparison,
// whatever the stages of the other one are.
TEST(PlanSchedules, CutStagesByModules) {
  for (const bool frozen : {false, true}) {
    const plan::Plan chain =
        plan::in_pipeline(plan::small_plan(plan::with_encoder(frozen)), "1f1b");
    const plan::ChainWork work = plan::chain_work(chain);
    const std::string name = frozen ? "diffusionpipe" : "dip";
    plan::Plan modules = with_schedule(chain, {.name = name}).plan;
    EXPECT_EQ(modules.schedule, name);
    EXPECT_EQ(modules.chunks, frozen ? 1 : 2);
    const plan::ScheduleCuts apart = plan::schedule_cuts(modules, work);
    EXPECT_THAT(modules.stage_blocks, AnyOf(apart.even, apart.balanced));
    modules.encoder_parts = frozen ? 1 : 2;
    const plan::Plan again = with_schedule(modules, {.name = "1f1b"}).plan;
    const plan::ScheduleCuts whole = plan::schedule_cuts(chain, work);
    EXPECT_THAT(again.stage_blocks, AnyOf(whole.even, whole.balanced));
    EXPECT_EQ(again.encoder_parts, 1);
    EXPECT_LE(plan::simulate(again).iteration_time, plan::simulate(chain).iteration_time);
  }
}

}  // namespace
}  // namespace orrery::studies
