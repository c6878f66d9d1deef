// SPDX-License-Identifier: Apache-2.0
// What a run reached, by kind of kernel, against the two ceilings.
#pragma once

#include <string>
#include <vector>

#include "calibrate/samples.hpp"
#include "topologies/cluster.hpp"

namespace orrery::calibrate {

struct ReportGroup {
  std::string name;  // "gemm bf16 tn", "rms-norm backward", ...
  std::string implementation;
  int samples = 0;
  int unsettled = 0;
  double best_rate = 0;       // FLOP/s, 0: not counted
  double best_bandwidth = 0;  // bytes/s
  double best_fraction = 0;   // of the ceiling; 0: none known
  double fastest_seconds = 0;
};

// In order of first appearance. `gpu` may be null: then no ceiling is known.
std::vector<ReportGroup> report_groups(const SampleFile& file, const topologies::Gpu* gpu);
std::string report_text(const std::vector<ReportGroup>& groups);
Json report_json(const std::vector<ReportGroup>& groups);

}  // namespace orrery::calibrate
