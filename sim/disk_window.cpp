// SPDX-License-Identifier: Apache-2.0
#include "sim/disk_window.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace orrery::sim {

std::vector<Seconds> window_ends(const WindowedRun& run) {
  const std::size_t blocks = run.reduce.size();
  ORRERY_CHECK(run.window >= 1 && blocks > 0, "a window without blocks");
  const bool resident = static_cast<std::size_t>(run.window) >= blocks;
  const std::size_t total = blocks * static_cast<std::size_t>(run.tokens);
  const auto window = static_cast<std::size_t>(run.window);
  std::vector<Seconds> ends;
  ends.reserve(total);
  std::vector<Seconds> loaded(run.devices.size());
  for (std::size_t x = 0; x < total; ++x) {
    const std::size_t block = x % blocks;
    const bool loads = !resident || x < blocks;
    const Seconds room = x >= window ? ends[x - window] : Seconds();
    const Seconds before = x > 0 ? ends[x - 1] : Seconds();
    Seconds done;
    for (std::size_t device = 0; device < run.devices.size(); ++device) {
      const WindowBlock& own = run.devices[device][block];
      if (loads) {
        loaded[device] = std::max(loaded[device], room) + own.load;
      }
      done = std::max(done, std::max(before, loaded[device]) + own.compute);
    }
    ends.push_back(done + run.reduce[block]);
  }
  return ends;
}

bool tight_steady_state(const LayerTimes& times) {
  return times.attention.compute + times.reduce >= times.ffn.load &&
         times.ffn.compute + times.reduce >= times.attention.load;
}

bool loose_steady_state(const LayerTimes& times, int layers) {
  const auto holds = [&](const WindowBlock& a, const WindowBlock& f) {
    for (int l = 1; l <= layers; ++l) {
      const double n = l;
      const Seconds runs = a.compute * n + f.compute * (n - 1) + times.reduce * (2 * n - 1);
      if (runs < f.load * n + a.load * (n - 1)) {
        return false;
      }
    }
    return true;
  };
  const Seconds layer = times.attention.compute + times.ffn.compute + times.reduce * 2.0;
  return layer >= times.attention.load + times.ffn.load &&
         (holds(times.attention, times.ffn) || holds(times.ffn, times.attention));
}

}  // namespace orrery::sim
