// SPDX-License-Identifier: Apache-2.0
// Schedules of several modules, groups, arcs of tasks and copies. In integer ticks.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/periodic_body.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/pipeline/versions.hpp"
#include "tests/folders.hpp"
#include "tests/unit/sim/oracle_fixture.hpp"

namespace orrery::sim {
namespace {

// Times of a device's share, each unit as long as its part.
PipelineResult run_of(const PipelineOrder& order, const PassTimes& share) {
  return evaluate_pipeline(order, share_costs(order, share).costs, {.record_spans = true});
}

std::int64_t largest_sum(const std::vector<std::int64_t>& loads,
                         const std::vector<std::uint16_t>& run_of_load) {
  std::map<int, std::int64_t> sums;
  for (std::size_t k = 0; k < loads.size(); ++k) {
    sums[run_of_load[k]] += loads[k];
  }
  std::int64_t largest = 0;
  for (const auto& [run, sum] : sums) {
    largest = std::max(largest, sum);
  }
  return largest;
}

TEST(LeastLargestRuns, EqualBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int count = *rc::gen::inRange(1, 10);
    const int parts = *rc::gen::inRange(1, count + 1);
    const std::vector<std::int64_t> loads = random_times(count);
    const std::vector<std::uint16_t> run_of_load = least_largest_runs(loads, parts);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (unsigned cuts = 0; cuts < (1U << (count - 1)); ++cuts) {
      std::vector<std::uint16_t> tried(loads.size(), 0);
      for (std::size_t k = 1; k < loads.size(); ++k) {
        tried[k] = static_cast<std::uint16_t>(tried[k - 1] + (cuts >> (k - 1) & 1U));
      }
      if (tried.back() + 1 == parts) {
        best = std::min(best, largest_sum(loads, tried));
      }
    }
    RC_ASSERT(run_of_load.back() + 1 == parts);
    RC_ASSERT(std::is_sorted(run_of_load.begin(), run_of_load.end()));
    RC_ASSERT(largest_sum(loads, run_of_load) == best);
  }));
}

// Steady period of LayerPipe on layers of the given tasks (forward, gradient and weight gradient
// alike), and the best of whole layers on as many devices.
struct Periods {
  double arcs;
  std::int64_t layers;
};

Periods layer_periods(int devices, std::vector<std::int64_t> tasks) {
  const int chunks = (static_cast<int>(tasks.size()) + devices - 1) / devices;
  tasks.resize(static_cast<std::size_t>(chunks * devices), 0);
  ScheduleParams params{devices, 1, chunks, 0};
  std::vector<std::int64_t> whole;
  for (const std::int64_t task : tasks) {
    params.times.push_back({{task}, {task}, {task}, {0}});
    whole.push_back(3 * task);
  }
  params.iterations = 12 * devices;
  const PipelineOrder order = order_of("layerpipe", params);
  const PipelineResult result =
      evaluate_pipeline(order, stage_costs(order, params), {.record_spans = true});
  const std::vector<VersionUseOfStage> versions = count_versions(order);
  const bool in_layers = order.weight_grad_device_of == order.device_of;
  for (std::size_t l = 0; l < tasks.size(); ++l) {
    const int lag = in_layers ? 2 * (devices - 1 - order.device_of[l])
                              : order.weight_grad_device_of[l] - order.device_of[l];
    EXPECT_EQ(versions[l].staleness, lag);
    EXPECT_EQ(versions[l].versions, lag + 1);
  }
  return {steady_period(order, result), largest_sum(whole, least_largest_runs(whole, devices))};
}

// The period is the largest load of an arc, or of whole layers where that is smaller; never shorter
// than the mean load or the longest task.
TEST(ModuleOracles, LayerPipeRunsAtTheLargestArc) {
  EXPECT_TRUE(rc::check([] {
    const int devices = *rc::gen::inRange(1, 7);
    const std::vector<std::int64_t> tasks = random_times(devices * *rc::gen::inRange(1, 4));
    const std::int64_t sum = std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0});
    std::vector<std::int64_t> loop = tasks;
    for (std::size_t l = tasks.size(); l-- > 0;) {
      loop.insert(loop.end(), 2, tasks[l]);
    }
    const Periods periods = layer_periods(devices, tasks);
    const std::int64_t largest =
        std::min(largest_sum(loop, least_largest_runs(loop, devices)), periods.layers);
    RC_ASSERT(std::abs(periods.arcs - static_cast<double>(largest)) < 1e-9);
    RC_ASSERT(periods.arcs >= 3.0 * static_cast<double>(sum) / devices - 1e-9);
    RC_ASSERT(periods.arcs >= static_cast<double>(*std::max_element(tasks.begin(), tasks.end())));
  }));
}

// Layers of (1, 1, 4), (0, 1, 4) and (1, 1, 4) ticks on three devices: every arc of the loop that
// cuts them in three takes 8 or more, whole layers 6, as in PipeDream.
TEST(ModuleOracles, LayerPipeIsNoSlowerThanPipeDream) {
  ScheduleParams params{3, 4, 1, 0};
  params.times = {{{1}, {1}, {4}, {0}}, {{0}, {1}, {4}, {0}}, {{1}, {1}, {4}, {0}}};
  const auto period = [&params](const char* name) {
    const PipelineOrder order = order_of(name, params);
    return steady_period(
        order, evaluate_pipeline(order, stage_costs(order, params), {.record_spans = true}));
  };
  EXPECT_DOUBLE_EQ(period("layerpipe"), 6);
  EXPECT_DOUBLE_EQ(period("pipedream"), 6);
}

// O18: VGG-16 on 7, 8 and 9 devices.
TEST(ModuleOracles, LayerPipeOnVgg16) {
  const std::filesystem::path path =
      orrery::shared_folder() / "strategies/data/pipedream_chains.csv";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no released profiles beside the source tree";
  }
  const CsvTable table = read_csv_file(path.string());
  std::vector<std::int64_t> tasks;  // in ns
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    if (table.cell(row, "model") == "vgg16") {
      tasks.push_back(
          std::llround(std::stod(std::string(table.cell(row, "compute_ms_fb"))) * 1e6 / 3));
    }
  }
  for (const auto& [devices, ratio] : {std::pair{7, 1.56}, {8, 1.75}, {9, 1.80}}) {
    const Periods periods = layer_periods(devices, tasks);
    EXPECT_NEAR(static_cast<double>(periods.layers) / periods.arcs, ratio, 0.005) << devices;
  }
}

// One module: the makespan of interleaved 1F1B.
TEST(ModuleOracles, DipOfOneModuleIsInterleaved) {
  EXPECT_TRUE(rc::check([] {
    const int p = *rc::gen::inRange(1, 9);
    ScheduleParams params{p, p * *rc::gen::inRange(1, 5), *rc::gen::inRange(1, 4), 0};
    const PassTimes share = random_share();
    params.times = {share};
    RC_ASSERT(run_of(order_of("dip", params), share).makespan ==
              run_of(order_of("interleaved", params), share).makespan);
  }));
}

// An encoder with n times as many micro-batches: nothing of a micro-batch's second module starts
// before its n parts are encoded, kinds alternate, and less memory never saves time below the load.
TEST(ModuleOracles, DipInterleavesTwoModules) {
  for (const int n : {1, 2, 3}) {
    ScheduleParams params{4, 12, 3, n == 1 ? 1 : 0, n};
    const PassTimes share{{12}, {12}, {12}, {0}};
    params.times = {share};
    const PipelineOrder order = order_of("dip", params);
    ASSERT_EQ(order.chains.size(), 2U);
    EXPECT_EQ(order.chains[0].units, 12 * n);
    EXPECT_EQ(order.chains[1].units, 12);
    const PipelineResult result = run_of(order, share);
    std::map<std::pair<int, unsigned>, SimTime> forward_end;
    for (const auto& device : result.spans) {
      for (const PassSpan& span : device) {
        if (span.pass.kind == PassKind::Forward) {
          forward_end[{span.pass.virtual_stage, span.pass.micro_batch}] = span.end;
        }
      }
    }
    for (const PassSpan& span : result.spans[0]) {
      for (int part = 0; part < n; ++part) {
        if (span.pass.kind == PassKind::Forward && span.pass.virtual_stage == 4) {
          const unsigned unit =
              span.pass.micro_batch * static_cast<unsigned>(n) + static_cast<unsigned>(part);
          EXPECT_GE(span.start, (forward_end[{3, unit}]));
        }
      }
    }
    const double work = 12 * 36.0;
    const double makespan = static_cast<double>(result.makespan.ps) / (3.0 * n);
    EXPECT_GE(makespan, work);
    EXPECT_LE(makespan, work * 1.25);
    for (const double cap : {1.0, 2.0, 6.0}) {
      params.cap = cap;
      const PipelineOrder capped = order_of("dip", params);
      EXPECT_LE(largest_peak(capped, run_of(capped, share)), cap);
    }
  }
}

// With forward 1 and backward 2 the body is that of 1F1B; an output layer over all devices costs
// its share and no more.
TEST(ModuleOracles, TesselFindsTheLoadBound) {
  for (const int p : {1, 2, 4, 8}) {
    for (const int m : {p, 3 * p}) {
      EXPECT_EQ(order_of("tessel", {p, m, 1, 0}).passes, order_of("1f1b", {p, m, 1, 0}).passes);
    }
    for (const int chunks : {1, 2}) {
      const auto makespan = [&](int m) {
        const PipelineOrder order = order_of("tessel", {p, m, chunks, 1});
        const double scale = order.parts_per_share;
        return static_cast<double>(run_of(order, {}).makespan.ps) / scale;
      };
      const double period = (makespan(10 * p) - makespan(6 * p)) / (4 * p);
      EXPECT_NEAR(period, 3.0 + 3.0 / p, 1e-9) << p << " " << chunks;
    }
  }
}

// Under a cap the period of a V cannot be shorter than the activations' life allows.
TEST(ModuleOracles, TesselTakesMemoryIntoAccount) {
  for (const int p : {2, 4, 8}) {
    ScheduleParams params{p, 12 * p, 1, 0};
    params.cap = p / 2.0;
    const PipelineOrder order = order_of("tessel", params);
    const PipelineResult result = run_of(order, {});
    EXPECT_LE(largest_peak(order, result), params.cap);
    EXPECT_EQ(result.makespan.ps, 6 * (12 * p - 1) + 3 * p);
  }
}

// Never slower than the schedules it describes, under the same cap.
TEST(ModuleOracles, FlexPipeIsNeverWorseThanWhatItDescribes) {
  EXPECT_TRUE(rc::check([] {
    const int p = *rc::gen::inRange(1, 9);
    ScheduleParams params{p, p * *rc::gen::inRange(1, 4), *rc::gen::inRange(1, 4), 0};
    const PassTimes share = random_share(*rc::gen::inRange(0, 10));
    params.times = {share};
    for (const double cap : {0.5 * (p + 2), 1.0 * p, 2.0 * p, 1.0 * params.micro_batches}) {
      params.cap = cap;
      const PipelineOrder best = order_of("flexpipe", params);
      const PipelineCosts costs = stage_costs(best, params);
      const PipelineResult result = evaluate_pipeline(best, costs);
      RC_ASSERT(largest_peak(best, result) <= cap);
      for (const char* name :
           {"1f1b", "interleaved", "zb-h1", "v-half", "breadth-first", "gpipe", "zb-h2"}) {
        ScheduleParams own = params;
        own.cap = 0;
        if (!find_schedule(name, "test").check(own).empty()) {
          continue;
        }
        const PipelineOrder other = order_of(name, own);
        const PipelineResult run = evaluate_pipeline(other, stage_costs(other, own));
        RC_ASSERT(largest_peak(other, run) > cap || result.makespan <= run.makespan);
      }
    }
  }));
}

// The second stage alone holds more than the cap.
TEST(ModuleOracles, FlexPipeSaysThatNothingKeepsWithinTheCap) {
  ScheduleParams params{2, 4, 1, 0};
  params.cap = 1;
  params.activations = {1, 3};
  try {
    order_of("flexpipe", params);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("within 1 micro-batches"), std::string::npos)
        << error.what();
  }
}

// Every pack runs on as many neighbouring devices as its group has, at one time; equal packs give
// one degree everywhere.
TEST(ModuleOracles, FlexSpForms) {
  ScheduleParams params{8, 7, 1, 0};
  params.slices_of = {1, 8, 2, 4, 1, 4, 4};
  const PipelineOrder order = order_of("flexsp", params);
  const PassTimes share{{2}, {2}, {2}, {0}};
  const PipelineResult result = run_of(order, share);
  EXPECT_EQ(result.makespan.ps, 3 * 12);  // rounds: 8; 4 and 4; 4, 2, 1, 1
  for (const DeviceUse& use : result.devices) {
    EXPECT_EQ(use.busy.ps, 3 * 12);
    EXPECT_EQ(use.peak_chunks, 2);  // both halves of one pack
  }
  const PipelineOrder equal = order_of("flexsp", {8, 6, 1, 0, 4});
  EXPECT_EQ(equal.chains.size(), 8U);
  EXPECT_EQ(run_of(equal, share).makespan.ps, 3 * 12);
  // The exchange crosses: later halves wait for the slowest of the group.
  PipelineCosts costs = share_costs(equal, share).costs;
  costs.forward[0] = {50};
  const PipelineResult slow = evaluate_pipeline(equal, costs, {.record_spans = true});
  EXPECT_EQ(slow.spans[3][1].start.ps, 50);
  EXPECT_LT(slow.spans[4][1].start.ps, 50);
}

// The step is the longer of the computation and what all workers bring to a server: hidden exactly
// from the bound of the lemma on.
TEST(ModuleOracles, ParameterServersHideFromTheBoundOn) {
  for (const int workers : {2, 4, 6}) {
    for (int servers = 1; servers <= workers; ++servers) {
      for (const int m : {1, 2}) {
        ScheduleParams params{workers, m, 1, 0};
        params.replicas = servers;
        params.iterations = 60;  // steps come in pairs: an even number between the thirds
        const PassTimes share{{12}, {3}, {3}, {0}};
        const PipelineOrder order = order_of("zou-ps-ring", params);
        const double step = steady_period(order, run_of(order, share)) * m / order.parts_per_share;
        const double compute = 18.0 * m;
        const double served = 12.0 * workers / servers;
        EXPECT_NEAR(step, std::max(compute, served), 1e-9) << workers << " " << servers;
        const bool hidden = servers >= static_cast<int>(std::ceil(12.0 * workers / compute));
        EXPECT_EQ(step <= compute + 1e-9, hidden);
        EXPECT_EQ(worst_of(count_versions(order)).staleness, 1);
      }
    }
  }
}

// Copies that fit beside the passes cost nothing and leave four activations on a device; longer
// ones are exposed.
TEST(ModuleOracles, PipeOffloadHidesCopies) {
  for (const int p : {2, 4, 8, 12}) {
    const ScheduleParams params{p, 3 * p, 1, 0};
    const PassTimes share{{10}, {10}, {10}, {0}};
    const PipelineOrder order = order_of("pipeoffload", params);
    const PipelineOrder plain = order_of("1f1b", params);
    const SimTime alone = run_of(plain, share).makespan;
    PipelineCosts costs = share_costs(order, share).costs;
    const PipelineResult hidden = evaluate_pipeline(order, costs);
    EXPECT_EQ(hidden.makespan, alone * order.parts_per_share);
    EXPECT_EQ(largest_peak(order, hidden), std::min(p, 4));
    const auto copies = [&](std::int64_t time) {
      for (std::size_t s = static_cast<std::size_t>(p); s < costs.forward.size(); ++s) {
        costs.forward[s] = {time};
      }
      return evaluate_pipeline(order, costs).makespan;
    };
    if (p > 4) {
      EXPECT_GT(copies(70), hidden.makespan);  // longer than a forward and a backward
    }
  }
}

// Two backbones run as chimera with twice the micro-batches, which frozen portions never delay; as
// much of them as fits runs in its idle times, up to a portion.
TEST(CascadedBackbones, RunAsTwoDirectionsWithFrozenPortionsBetween) {
  const PassTimes share{{4}, {2}, {2}, {0}};
  for (const int p : {2, 4, 6, 8}) {
    for (const int units : {1, 2, 5}) {
      const int m = units * p / 2;
      // A device's share of both backbones takes twice as long.
      const PassTimes twice{share.forward * 2, share.input_grad * 2, share.weight_grad * 2, {0}};
      const ScheduleParams params{.stages = p, .micro_batches = m, .chunks = 2, .times = {twice}};
      const PipelineOrder order = order_of("diffusionpipe-cascaded", params);
      EXPECT_EQ(order.chains[0].units, m);
      EXPECT_EQ(order.chains[1].units, m);
      EXPECT_EQ(order.chains[1].first_unit, 0);
      const PipelineResult both = run_of(order, twice);
      const std::int64_t scale = share_costs(order, twice).scale;
      const PipelineOrder bare = order_of("chimera", {p, 2 * m, 1, 0});
      const std::int64_t alone =
          run_of(bare, share).makespan.ps * scale / share_costs(bare, share).scale;
      std::int64_t last = 0;
      for (int s = 0; s < 2 * p; ++s) {
        last = std::max(last, both.last_backward_end[static_cast<std::size_t>(s)].ps);
      }
      EXPECT_EQ(last, alone) << p << " " << m;
      const std::int64_t portion = share.forward.ps * scale / 2;
      const std::int64_t idle = alone - 2 * m * 8 * scale;
      EXPECT_LE(both.makespan.ps, alone + std::max(portion, m * portion - idle + 2 * portion))
          << p << " " << m;
      std::int64_t frozen = 0;
      for (const DeviceUse& device : both.devices) {
        frozen += device.busy.ps - 2 * m * 8 * scale;
      }
      EXPECT_EQ(frozen, p * m * portion) << p << " " << m;
    }
  }
  const Schedule& schedule = find_schedule("diffusionpipe-cascaded", "test");
  EXPECT_EQ(to_text(schedule.check({6, 6, 1, 0})),
            "2 model chunks per device are required, not 1: set chunks to 2");
  EXPECT_EQ(to_text(schedule.check({6, 4, 2, 0})),
            "micro-batches must be a multiple of 3 (half the stages), but 4 is not: set "
            "micro-batches to 3");
}

}  // namespace
}  // namespace orrery::sim
