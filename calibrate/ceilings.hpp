// SPDX-License-Identifier: Apache-2.0
// The two physical ceilings of a chip, against which every sample is checked: no kernel computes
// faster than the peak rate, and none with a cold cache moves bytes faster than HBM. Also which GPU
// of topologies/gpus a driver's device name means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "calibrate/samples.hpp"
#include "topologies/cluster.hpp"

namespace orrery::calibrate {

// What one sample reaches; 0 where the question has no answer.
struct Achieved {
  FlopsPerSecond rate;
  BytesPerSecond bandwidth;
  double fraction = 0;  // the larger of the shares of both ceilings
};

// Clocks above the one that the nominal peak is stated for raise the ceiling in proportion.
Achieved achieved(const Sample& sample, const topologies::Gpu& gpu, double clock_ratio = 1.0);

// Sets above_ceiling; returns how many samples were above by more than `tolerance`.
int flag_impossible(SampleFile& file, const topologies::Gpu& gpu, double tolerance = 0.02);

// What is wrong with a time that is more than twice as fast as the peaks allow, which is no clock's
// doing, shorter than any kernel, or a thousand times as long as at the peaks and a millisecond
// more: it is in another unit. "" where it may be right, and of collectives, which networks bound.
std::string implausible_time(const Sample& sample, const topologies::Gpu& gpu);

// Takes these out of the file. What was taken out. Error naming the first (by its own source, else
// `path`) unless `partial`.
std::vector<std::string> drop_impossible(SampleFile& file, const topologies::Gpu& gpu,
                                         const std::string& path, bool partial);

// "NVIDIA H100 80GB HBM3" with 79 GiB and 132 SMs is "h100-sxm5-80gb"; "" when none fits.
std::string gpu_of_device(std::string_view device, double memory_bytes, int sm_count);

}  // namespace orrery::calibrate
