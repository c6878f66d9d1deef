// SPDX-License-Identifier: Apache-2.0
// Runs a measurement plan on a team: joins each group, warms up, times every point and gathers the
// times. An iteration takes as long as its slowest rank; the median and quartiles are over batches.
// Every rank runs this in step; the samples are rank 0's, empty elsewhere.
#pragma once

#include <functional>
#include <string>

#include "calibrate/nccl/device.hpp"
#include "calibrate/nccl/measure_plan.hpp"
#include "calibrate/nccl/team.hpp"

namespace orrery::calibrate {

struct RunOptions {
  MeasureOptions measure;
  std::string node;    // name in topologies/nodes, as the user knows it
  std::string fabric;  // in words
  std::string command;
  // Called on rank 0 between points with the share done and what comes next.
  std::function<void(double, const std::string&)> progress;
};

// The host name of this rank tells the nodes.
SampleFile run_measurements(Team& team, CollectiveDevice& device, const std::string& host,
                            const RunOptions& options);

}  // namespace orrery::calibrate
