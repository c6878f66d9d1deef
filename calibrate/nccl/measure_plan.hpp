// SPDX-License-Identifier: Apache-2.0
// What `orrery calibrate nccl` runs, in order: for each group its collectives and sizes, then
// collectives beside a GEMM. Sizes are 1 KiB to 1 GiB in steps of four (11 of them), as nccl-tests
// prints them. The expected duration assumes 100 GB/s inside a node and 20 GB/s a GPU between nodes
// and is a hint for people only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/units.hpp"
#include "calibrate/nccl/groups.hpp"
#include "calibrate/samples.hpp"

namespace orrery::calibrate {

struct MeasureOptions {
  std::int64_t min_bytes = 1 << 10;
  std::int64_t max_bytes = std::int64_t{1} << 30;
  std::vector<sim::CommKind> kinds;  // empty: all six
  bool interference = true;
  Seconds point_budget{2.0};  // larger sizes of a series are left out once a point takes longer
};

struct MeasureSeries {
  GroupPlan group;
  std::vector<sim::CommKind> kinds;
  std::vector<std::int64_t> sizes;
  std::vector<GemmSample> beside;  // of interference series; empty else
};

struct MeasurePlan {
  std::vector<MeasureSeries> series;
  std::int64_t num_points() const;
};

// Powers of four from 1 KiB on, in bytes, both limits included.
std::vector<std::int64_t> sizes_between(std::int64_t min_bytes, std::int64_t max_bytes);
// Every collective on every group of the placement, in the order in which they are measured.
MeasurePlan plan_measurements(const Placement& placement, const LinkClasses& links,
                              const MeasureOptions& options);

// Repetitions of one point, once an iteration is known to take `estimate`: so many batches of so
// many back-to-back iterations.
struct Repetitions {
  int batches = 0;
  int iterations = 0;  // in a batch
};
Repetitions repetitions_for(Seconds estimate);

// Of the whole run, communicators included; an estimate from nominal rates, for people.
Seconds expected_duration(const MeasurePlan& plan, const MeasureOptions& options);
std::string plan_text(const MeasurePlan& plan, const MeasureOptions& options);
Json plan_json(const MeasurePlan& plan, const MeasureOptions& options);

}  // namespace orrery::calibrate
