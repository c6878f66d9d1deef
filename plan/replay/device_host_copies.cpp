// SPDX-License-Identifier: Apache-2.0
// Replay of schedules that copy micro-batches to the host and back (plan/stage/host_copies.hpp).
#include "plan/replay/device_replay.hpp"

namespace orrery::plan {

void DeviceReplay::leave(int stage, std::uint32_t begins) {
  const StageReplay& replay = stages[stage];
  if (replay.leaving == 0 || begins < replay.leaving) {
    return;
  }
  const std::uint32_t unit = begins - replay.leaving;
  if (unit < ended_[stage] + replay.coming) {
    return;  // it has come back
  }
  Live& live = live_.at({stage, unit});
  for (std::size_t index = 0; index < replay.positions.size(); ++index) {
    evict(at(stage, unit, index), live.buffers[index]);
  }
}

void DeviceReplay::come_back(int stage, std::uint32_t ended) {
  const StageReplay& replay = stages[stage];
  if (replay.leaving == 0) {
    return;
  }
  ended_[stage] = ended + 1;
  const auto live = live_.find({stage, ended + replay.coming});
  if (live != live_.end()) {
    for (std::size_t index = 0; index < replay.positions.size(); ++index) {
      restore(at(stage, ended + replay.coming, index), live->second.buffers[index]);
    }
  }
}

}  // namespace orrery::plan
