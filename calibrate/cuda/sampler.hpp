// SPDX-License-Identifier: Apache-2.0
// Times one case: warm-up, then repetitions between two events until the stop rule is met
// (calibrate/statistics.hpp). The recipe is that of NVIDIA's nvbench: a kernel that waits for the
// host holds the stream, so that events and work are queued before anything runs and no launch
// latency is measured; the cache is flushed where the case asks for it; repetitions during a
// thermal slowdown are discarded. Kernels of a few microseconds run back to back in one repetition.
#pragma once

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/nvml.hpp"
#include "calibrate/samples.hpp"

namespace orrery::calibrate::cuda {

class Sampler {
 public:
  Sampler(const DeviceInfo& device, const Nvml& nvml);
  // At most about `budget_seconds` of wall time after preparation.
  Sample measure(const Case& item, double budget_seconds);
  // The clock last seen under load.
  double sm_clock_mhz() const { return sm_clock_mhz_; }

 private:
  double repetition(const Launch& launch, bool cold, int batch);
  double hold_and_time(const Launch& launch, int batch);
  double warm_up(const Launch& launch, double seconds);

  const Nvml& nvml_;
  OwnedStream stream_;
  OwnedEvent start_;
  OwnedEvent stop_;
  DeviceBuffer flush_;
  PinnedBuffer gate_;  // two ints: open, timed out
  double sm_clock_mhz_ = 0;
  double last_clock_read_ = -1;
};

}  // namespace orrery::calibrate::cuda
