// SPDX-License-Identifier: Apache-2.0
// Built where CUDA or NCCL was not found.
#include "base/error.hpp"
#include "calibrate/nccl/device.hpp"

namespace orrery::calibrate {
namespace {

constexpr const char* kWhy = "this build measures no collectives: CUDA and NCCL were not found";

}  // namespace

int collective_device_count(std::string& why) {
  why = kWhy;
  return 0;
}

std::unique_ptr<CollectiveDevice> open_collective_device(int, std::function<void()>) {
  throw Error(ErrorKind::DeviceMissing, "calibrate nccl", kWhy);
}

}  // namespace orrery::calibrate
