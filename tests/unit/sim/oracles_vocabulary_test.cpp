// SPDX-License-Identifier: Apache-2.0
// Vocabulary parallelism: structure, and 40 measured iterations (Yeung et al., MLSys 2025,
// artifact) from their pass times alone.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "tests/folders.hpp"

namespace orrery::sim {
namespace {

using CsvRow = std::map<std::string, std::string>;

std::vector<CsvRow> measured_rows() {
  std::ifstream file(orrery::shared_folder() / "strategies/data/vocab_parallel_pp8.csv");
  std::vector<CsvRow> rows;
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    std::stringstream cells(line);
    CsvRow row;
    std::size_t column = 0;
    for (std::string cell; std::getline(cells, cell, ',');) {
      if (rows.empty() && names.size() == column && row.empty() &&
          cell.find_first_not_of("0123456789.") != std::string::npos &&
          line.starts_with("method")) {
        names.push_back(cell);
      } else {
        row[names.at(column)] = cell;
      }
      ++column;
    }
    if (!row.empty()) {
      rows.push_back(row);
    }
  }
  return rows;
}

// Nanoseconds of a column of one stage.
SimTime time_of(const CsvRow& row, const std::string& column, int stage) {
  return {std::llround(1000 * std::stod(row.at(column + std::to_string(stage) + "_us")))};
}

std::string schedule_of(const std::string& method) {
  return method == "vocab1"       ? "vocab-1"
         : method == "vocab2"     ? "vocab-2"
         : method == "interlaced" ? "interlaced"
                                  : "1f1b";
}

// Iteration in milliseconds. A third of the output layer's time is its S.
double simulated(const CsvRow& row) {
  constexpr int kStages = 8;
  const Schedule& schedule = find_schedule(schedule_of(row.at("method")), "test");
  ScheduleParams params{kStages, std::stoi(row.at("microbatches")), 1, 0};
  const SimTime send{std::llround(1000 * std::stod(row.at("p2p_us")))};
  PipelineCosts costs;
  const auto add = [&](SimTime forward, SimTime backward) {
    costs.forward.push_back(forward);
    costs.backward.push_back(backward);
    params.times.push_back({forward, backward, {}, send});
  };
  for (int i = 0; i < kStages; ++i) {
    add(time_of(row, "F", i), time_of(row, "B", i));
  }
  const bool shards = schedule.name != "1f1b";
  for (int i = 0; shards && i < kStages; ++i) {
    const SimTime both = time_of(row, "S", i);
    add({both.ps / 3}, {both.ps - both.ps / 3});
  }
  for (int i = 0; shards && i < kStages; ++i) {
    add(time_of(row, "inF", i), time_of(row, "inB", i));
  }
  const PipelineOrder order = schedule.order(params);
  EXPECT_EQ(check_order(order, params.micro_batches), "");
  costs.send_forward.assign(costs.forward.size() - 1, send);
  costs.send_backward = costs.send_forward;
  return static_cast<double>(evaluate_pipeline(order, costs).makespan.ps) / 1e6;
}

// O17.
TEST(VocabularyOracles, MeasuredIterations) {
  const std::vector<CsvRow> rows = measured_rows();
  if (rows.empty()) {
    GTEST_SKIP() << "the measured iterations are not here";
  }
  EXPECT_EQ(rows.size(), 40U);
  for (const CsvRow& row : rows) {
    const double measured = std::stod(row.at("iter_ms"));
    EXPECT_NEAR(simulated(row) / measured, 1.0, 0.02)
        << row.at("method") << " " << row.at("vocab_k") << "K " << row.at("seq");
  }
}

PipelineResult unit_run(const char* name, const ScheduleParams& params, int& pieces) {
  const Schedule& schedule = find_schedule(name, "test");
  EXPECT_EQ(to_text(schedule.check(params)), "") << name;
  const PipelineOrder order = schedule.order(params);
  EXPECT_EQ(check_order(order, params.micro_batches), "") << name;
  pieces = pieces_of(order);
  return evaluate_pipeline(order, share_costs(order, {{1}, {1}, {1}, {0}}).costs);
}

TEST(VocabularyOracles, OneMoreMicroBatchPerBarrier) {
  int pieces = 1;
  for (const int p : {2, 4, 8, 16}) {
    const ScheduleParams params{p, 4 * p, 1, 0};
    EXPECT_EQ(unit_run("vocab-1", params, pieces).devices.front().peak_chunks, p + 2) << p;
    EXPECT_EQ(unit_run("vocab-2", params, pieces).devices.front().peak_chunks, p + 1) << p;
    const PipelineResult half = unit_run("vocab-1", {p, 4 * p, 2, 0}, pieces);
    EXPECT_LE(half.devices.front().peak_chunks, 2 * ((p + 2) / 2) + 4) << p;
    EXPECT_EQ(pieces, 2);
    EXPECT_EQ(unit_run("interlaced", params, pieces).devices.front().peak_chunks, 3 * p / 2) << p;
  }
}

// With collectives that take no time both take a device's work for each micro-batch more, layers
// and its shard of an output layer as heavy. They differ by their ends alone: with two barriers the
// last gradient waits for T, too, which one barrier puts off.
TEST(VocabularyOracles, ABarrierMoreCostsNothingInTheSteadyState) {
  int pieces = 1;
  for (const int p : {2, 3, 4, 6, 8, 16}) {
    for (const int chunks : {1, 2}) {
      const auto run = [&](const char* name, int m) {
        return unit_run(name, {p, m, chunks, 0}, pieces).makespan.ps;
      };
      const std::int64_t unit = std::int64_t{p} * chunks;
      for (const char* name : {"vocab-1", "vocab-2"}) {
        EXPECT_EQ(run(name, 8 * p) - run(name, 4 * p), 4 * (3 * p + 3) * unit) << name << p;
      }
      const std::int64_t more = run("vocab-1", 4 * p) - run("vocab-2", 4 * p);
      EXPECT_EQ(run("vocab-1", 8 * p) - run("vocab-2", 8 * p), more) << p;
      if (chunks == 1) {
        EXPECT_GE(more, 2) << p;  // T, of a share of p
        EXPECT_LE(more, 3) << p;  // S and T
      }
    }
  }
}

// Few micro-batches fill and drain the pipeline once: 2 (p - 1) layers' passes beside their own,
// and no more than S, T and input passes once beside the shards' own; one more takes longer.
TEST(VocabularyOracles, FewMicroBatchesDrainOnce) {
  int pieces = 1;
  for (const char* name : {"vocab-1", "vocab-2", "interlaced"}) {
    for (const int p : {2, 3, 8, 16}) {
      std::int64_t last = 0;
      for (int m = 1; m <= p + 4; ++m) {
        const std::int64_t makespan = unit_run(name, {p, m, 1, 0}, pieces).makespan.ps;
        EXPECT_GT(makespan, last) << name << p << " " << m;
        EXPECT_LE(makespan, 3 * p * (m + p - 1) + 3 * (m + 2)) << name << p << " " << m;
        last = makespan;
      }
    }
  }
}

// All passes of V-Half take as long, so that devices stop together without waiting and hold no
// more: each micro-batch adds a pth of an output layer as heavy as a device's layers.
TEST(VocabularyOracles, InterlacedVHalfStopsBetweenSlots) {
  int pieces = 1;
  for (const int p : {1, 2, 3, 4, 5, 8, 16}) {
    for (const int m : {1, 2, 5, 4 * p, 12 * p}) {
      const PipelineResult plain = unit_run("v-half", {p, m, 2, 0}, pieces);
      const PipelineResult result = unit_run("interlaced", {p, m, 2, 0}, pieces);
      // A share of three is 2 chunks of 3 passes, each p long.
      EXPECT_EQ(result.makespan.ps, p * plain.makespan.ps + 6 * m) << p << " " << m;
      for (std::size_t d = 0; d < result.devices.size(); ++d) {
        EXPECT_EQ(result.devices[d].peak_chunks, plain.devices[d].peak_chunks) << p << " " << m;
      }
    }
  }
}

// Between S and T of a micro-batch no device runs anything else.
TEST(VocabularyOracles, InterlacedRunsTAfterS) {
  for (const int chunks : {1, 2}) {
    const PipelineOrder order = find_schedule("interlaced", "test").order({4, 12, chunks, 0});
    const PassInputs inputs(order);
    for (const std::vector<Pass>& list : order.passes) {
      std::uint32_t next = 0;
      for (std::size_t at = 0; at < list.size(); ++at) {
        if (inputs.role(list[at].virtual_stage) == Role::Output) {
          EXPECT_EQ(list[at], (Pass{PassKind::Forward, list[at].virtual_stage, next}));
          ++at;
          EXPECT_EQ(list[at], (Pass{PassKind::Backward, list[at].virtual_stage, next++}));
        }
      }
      EXPECT_EQ(next, 12U);
    }
  }
}

TEST(VocabularyOracles, OneDeviceRunsTheWholeLayer) {
  int pieces = 1;
  for (const char* name : {"vocab-1", "vocab-2", "interlaced"}) {
    const PipelineResult result = unit_run(name, {1, 8, 1, 0}, pieces);
    EXPECT_EQ(result.makespan.ps, 8 * (3 + 3)) << name;  // layers and an output layer as heavy
  }
}

// With an input layer of 1 forward and 2 backward.
PipelineCosts with_input_costs(const PipelineOrder& order, const ShareCosts& share) {
  PipelineCosts costs = share.costs;
  const PassInputs inputs(order);
  for (std::size_t s = 0; s < costs.forward.size(); ++s) {
    if (inputs.role(s) == Role::Input) {
      costs.forward[s] = {share.scale};
      costs.backward[s] = {share.scale * 2};
    }
  }
  return costs;
}

// Every device has looked a micro-batch up before its first forward, and none ahead of need: the
// passes in flight on a device are those of the first stage and of the cycles around them.
TEST(VocabularyOracles, InputLayerRunsAroundTheFirstStage) {
  for (const auto& [name, chunks] : std::vector<std::pair<const char*, int>>{{"vocab-1", 1},
                                                                             {"vocab-2", 1},
                                                                             {"interlaced", 1},
                                                                             {"vocab-1", 2},
                                                                             {"vocab-2", 2},
                                                                             {"interlaced", 2}}) {
    const Schedule& schedule = find_schedule(name, "test");
    for (const int p : {2, 4, 8}) {
      const PipelineOrder order = schedule.order({p, 8 * p, chunks, 0});
      const PassInputs inputs(order);
      const std::size_t own = 2;  // the one in front, and the one whose gradient is taken late
      for (std::size_t d = 0; d < order.passes.size(); ++d) {
        std::size_t ahead = 0;
        std::size_t most = 0;
        bool begun = false;
        for (const Pass& pass : order.passes[d]) {
          const bool input = inputs.role(pass.virtual_stage) == Role::Input;
          begun = begun || inputs.role(pass.virtual_stage) == Role::Layers;
          ahead += input && pass.kind == PassKind::Forward ? 1 : 0;
          ahead -= input && pass.kind != PassKind::Forward ? 1 : 0;
          most = std::max(most, ahead);
          EXPECT_TRUE(begun || ahead <= d + 2) << name << " " << d;
        }
        EXPECT_EQ(ahead, 0U);
        EXPECT_LE(most, static_cast<std::size_t>(2 * p) + 2 + own) << name << " " << p;
      }
    }
  }
}

// After the last S one gradient of the input layer follows each backward, where a device has one
// stage; the others come at the end.
TEST(VocabularyOracles, InputLayerDrainsBetweenBackwards) {
  for (const char* name : {"vocab-1", "vocab-2", "interlaced"}) {
    for (const int p : {2, 4, 8}) {
      const PipelineOrder order = find_schedule(name, "test").order({p, 4 * p, 1, 0});
      EXPECT_EQ(check_order(order, order.micro_batches), "") << name << p;
      const PassInputs inputs(order);
      for (const std::vector<Pass>& list : order.passes) {
        std::string drain;  // B and i, the input layer's, after the last S or T of all
        for (const Pass& pass : list) {
          const Role role = inputs.role(pass.virtual_stage);
          const bool last = static_cast<int>(pass.micro_batch) + 1 == order.micro_batches;
          if (role == Role::Output && last) {
            drain.clear();
          } else if (pass.kind != PassKind::Forward && role != Role::Output) {
            drain += role == Role::Input ? 'i' : 'B';
          }
        }
        EXPECT_EQ(drain.find("BB"), std::string::npos) << name << p << ": " << drain;
        EXPECT_EQ(drain.back(), 'i') << name << p;
      }
    }
  }
}

// Their sum and gradient are a cycle away from whom they are for, so that a pass more costs its own
// time, in whatever time the collectives take, if that is less than a cycle.
TEST(VocabularyOracles, InputLayerIsNotWaitedFor) {
  for (const char* name : {"vocab-1", "vocab-2"}) {
    for (const int p : {2, 4, 8}) {
      const auto took = [&](int m, std::int64_t tenths) {
        const PipelineOrder order = find_schedule(name, "test").order({p, m, 1, 0});
        const ShareCosts share = share_costs(order, {{10}, {10}, {10}, {0}});
        PipelineCosts costs = with_input_costs(order, share);
        const PassInputs inputs(order);
        for (std::size_t edge = 0; edge < order.edges.size(); ++edge) {
          const Edge& of = order.edges[edge];
          const bool input =
              inputs.role(of.from) == Role::Input || inputs.role(of.to) == Role::Input;
          costs.edge_latency[edge] = {input ? share.scale * tenths : 0};
        }
        return evaluate_pipeline(order, costs).makespan;
      };
      // Of the 30 + 30 / p of a cycle, and the input layer's 3.
      EXPECT_EQ((took(96, 20) - took(64, 20)).ps, (took(96, 0) - took(64, 0)).ps) << name << p;
      EXPECT_GT((took(96, 80) - took(64, 80)).ps, (took(96, 0) - took(64, 0)).ps) << name << p;
    }
  }
}

// Slices: with the output layer on all devices an iteration takes little more than the work of a
// device, where the last one alone would need m times both; one slice more is in flight.
TEST(VocabularyOracles, SlicesShareTheOutputLayer) {
  for (const int p : {1, 2, 4, 8}) {
    for (const int v : {1, 2}) {
      const int m = 4;
      ScheduleParams params{p, m, v, 0};
      params.slices = 4 * p;
      const Schedule& schedule = find_schedule("slimpipe-vocab", "test");
      const PipelineOrder order = schedule.order(params);
      EXPECT_EQ(check_order(order, order.micro_batches), "");
      const auto [costs, scale] = share_costs(order, {{1}, {1}, {1}, {0}});
      const PipelineResult result = evaluate_pipeline(order, costs);
      const double took = static_cast<double>(result.makespan.ps) / static_cast<double>(scale);
      const double work = m * (3.0 + 3.0 / p);
      EXPECT_EQ(static_cast<double>(result.devices[0].busy.ps) / static_cast<double>(scale), work);
      const double of_slice = 3.0 / (params.slices * v) + 3.0 / (params.slices * p);
      EXPECT_LE(took, work + 2 * p * of_slice) << p << " " << v;
      const std::int64_t ahead = params.slices * v + (v > 1 ? 2 : 1) * (p - 1) + 1;
      EXPECT_EQ(result.devices[0].peak_chunks, ahead) << p << " " << v;
    }
  }
}

}  // namespace
}  // namespace orrery::sim
