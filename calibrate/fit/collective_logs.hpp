// SPDX-License-Identifier: Apache-2.0
// Samples of collectives sorted by log, each log with the simulated machine that stands for it.
// Out-of-place times alone, repeated sizes averaged (geometric mean), sizes below 1 KiB left out:
// there NCCL is not what takes the time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/collective_log.hpp"
#include "calibrate/fit/log_system.hpp"
#include "calibrate/samples.hpp"
#include "costmodel/collective_residuals.hpp"

namespace orrery::calibrate {

inline constexpr std::int64_t kSmallestFitted = 1024;
// One process that drives all GPUs launches them in turn: A100 x 8 35 to 40 us, V100 x 8 48 us,
// DGX-2 x 12 60 us for sizes that take a process per GPU half (nccl-tests logs).
inline constexpr Seconds kLaunchOfOneProcess = Seconds(4.7e-6);

struct MeasuredTime {
  Bytes size;
  Seconds time;
  std::string source = {};  // "file:line" of the first such row
};

struct CollectiveLog {
  std::string name;
  std::string family;  // logs of one family share NCCL's behaviour: "hopper", "blackwell-pcie"
  std::string gpu;
  LogSystem system;
  costmodel::FabricClass fabric = costmodel::FabricClass::Node;
  sim::CommKind kind = sim::CommKind::AllReduce;
  int nccl = 0;
  LaunchMode launch = LaunchMode::Unknown;
  std::vector<MeasuredTime> times;  // by size
};

struct CollectiveLogs {
  std::vector<CollectiveLog> logs;   // by name
  std::vector<CollectiveLog> peers;  // likewise, of messages: send_receive.hpp
  std::vector<std::string> remarks;  // what was left out and why, and what logs leave open
};

CollectiveLogs collect_logs(std::span<const SampleFile> files);

// The architecture, and "-pcie" where no links of their own join the GPUs of a node.
std::string family_of(const topologies::Gpu& gpu, const topologies::ScaleUp& links);
// A time of a log where launching, not NCCL, decides.
bool launch_bound(const CollectiveLog& log, Seconds time);
// What a launch mode adds to the time of the kernels.
Seconds with_launch(LaunchMode launch, int ranks, Seconds time);

}  // namespace orrery::calibrate
