// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/sampler.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "calibrate/cuda/gate.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate::cuda {
namespace {

constexpr double kGateTimeout = 5;          // seconds; nothing that is queued takes as long
constexpr double kShortRepetition = 50e-6;  // shorter ones run back to back ...
constexpr int kMaxBatch = 64;               // ... at most so often: the launch queue holds 1,024
constexpr double kClockInterval = 5e-3;     // between two readings of NVML
constexpr auto kCoolDown = std::chrono::milliseconds(20);

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Sampler::Sampler(const DeviceInfo& device, const Nvml& nvml)
    : nvml_(nvml), flush_(2 * device.l2_bytes), gate_(2 * sizeof(int)) {}

double Sampler::hold_and_time(const Launch& launch, int batch) {
  auto* gate = static_cast<int*>(gate_.data());
  std::atomic_ref<int> open(gate[0]);
  std::atomic_ref<int> gave_up(gate[1]);
  open = 0;
  gave_up = 0;
  enqueue_gate(stream_.get(), gate, kGateTimeout);
  try {
    start_.record(stream_.get());
    for (int i = 0; i < batch; ++i) {
      launch.enqueue(stream_.get());
    }
    stop_.record(stream_.get());
  } catch (...) {
    open = 1;
    throw;
  }
  open = 1;
  stop_.synchronize();
  if (gave_up != 0) {
    throw Unsupported("sampler", "the work waits for the host, so that it cannot be timed");
  }
  return seconds_between(start_, stop_) / batch;
}

double Sampler::repetition(const Launch& launch, bool cold, int batch) {
  if (cold) {
    check(cudaMemsetAsync(flush_.data(), 0, flush_.size(), stream_.get()), "cache flush");
  }
  if (launch.timed) {
    stream_.synchronize();
    return launch.timed(stream_.get());
  }
  return hold_and_time(launch, batch);
}

// Loads modules, lets libraries settle and the clock rise. Returns the time of one repetition.
double Sampler::warm_up(const Launch& launch, double seconds) {
  const double begin = now();
  double last = 0;
  do {
    if (launch.timed) {
      last = launch.timed(stream_.get());
      continue;
    }
    start_.record(stream_.get());
    launch.enqueue(stream_.get());
    stop_.record(stream_.get());
    stop_.synchronize();
    const bool first = last == 0;
    last = seconds_between(start_, stop_);
    if (first) {
      // The first run pays for loading; only later ones tell the time.
      launch.enqueue(stream_.get());
      stream_.synchronize();
    }
  } while (now() - begin < seconds);
  return last;
}

Sample Sampler::measure(const Case& item, double budget_seconds) {
  const Launch launch = item.prepare();
  check(cudaDeviceSynchronize(), "preparation");
  const double begin = now();
  const double once = warm_up(launch, std::min(0.01, 0.2 * budget_seconds));
  const bool batched = !item.cold_l2 && !launch.timed && once < kShortRepetition;
  const int batch =
      batched ? std::clamp(static_cast<int>(kShortRepetition / std::max(once, 1e-7)), 1, kMaxBatch)
              : 1;
  StopRule rule(
      {.min_seconds = std::min(0.02, 0.25 * budget_seconds), .budget_seconds = budget_seconds});
  ThrottleGuard guard(nvml_.max_sm_clock_mhz());
  while (!rule.finished(now() - begin)) {
    const double seconds = repetition(launch, item.cold_l2, batch);
    if (nvml_.available() && now() - last_clock_read_ > kClockInterval) {
      last_clock_read_ = now();
      const double clock = nvml_.sm_clock_mhz();
      if (guard.judge(clock, nvml_.slowed()) == ThrottleGuard::Verdict::Discard) {
        std::this_thread::sleep_for(kCoolDown);
        continue;
      }
      sm_clock_mhz_ = clock;
    }
    if (seconds > 0) {
      rule.add(seconds);
    }
  }
  const Summary summary = summarise(rule.values());
  return {
      .shape = item.shape,
      .time = {Seconds(summary.median), Seconds(summary.p25), Seconds(summary.p75),
               summary.count * batch},
      .implementation = item.implementation,
      .flags = {
          .cold_l2 = item.cold_l2, .throttled = guard.throttled(), .unsettled = !rule.settled()}};
}

}  // namespace orrery::calibrate::cuda
