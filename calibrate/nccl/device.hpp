// SPDX-License-Identifier: Apache-2.0
// What the runner needs of a GPU and NCCL: groups to join, collectives and multiplications to time.
// The implementation is nccl_device.cpp where the build found CUDA and NCCL, else no_device.cpp;
// tests drive the runner with one that computes its times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/nccl/groups.hpp"
#include "calibrate/samples.hpp"

namespace orrery::calibrate {

struct DeviceFacts {
  std::string name;
  std::string driver;
  std::string cuda;
  std::string nccl;
};

// Times of the operations that ran wholly while the other stream was busy.
struct OverlapTimes {
  std::vector<double> collective;
  std::vector<double> gemm;
};

class CollectiveDevice {
 public:
  virtual ~CollectiveDevice() = default;
  virtual DeviceFacts facts() = 0;
  virtual LinkClasses links() = 0;  // among the GPUs of this host; empty when unknown
  virtual void reserve(std::int64_t bytes) = 0;
  virtual std::string new_group_id() = 0;
  virtual void join(const std::string& id, int rank, int size) = 0;
  virtual void leave() = 0;
  // Seconds an iteration, of each batch of back-to-back iterations. Sizes as nccl-tests prints
  // them.
  virtual std::vector<double> time_collective(sim::CommKind kind, std::int64_t bytes, int batches,
                                              int iterations) = 0;
  virtual std::vector<double> time_gemm(const GemmSample& gemm, int batches, int iterations) = 0;
  virtual OverlapTimes time_overlap(sim::CommKind kind, std::int64_t bytes, int collectives,
                                    const GemmSample& gemm, int gemms) = 0;
};

// 0 where this build or this machine has none; `why` then says which.
int collective_device_count(std::string& why);
// GPU `index` of this host. `poll` is called while waiting for it and may throw.
// Error(DeviceMissing) when it cannot be used.
std::unique_ptr<CollectiveDevice> open_collective_device(int index, std::function<void()> poll);

}  // namespace orrery::calibrate
