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
  std::vector<std::vector<Seconds>> computed(run.devices.size());
  for (std::size_t x = 0; x < total; ++x) {
    const std::size_t block = x % blocks;
    const bool loads = !resident || x < blocks;
    const Seconds before = x > 0 ? ends[x - 1] : Seconds();
    Seconds done;
    for (std::size_t device = 0; device < run.devices.size(); ++device) {
      const WindowBlock& own = run.devices[device][block];
      if (loads) {
        const Seconds room = x >= window ? computed[device][x - window] : Seconds();
        loaded[device] = std::max(loaded[device], room) + own.load;
      }
      computed[device].push_back(std::max(before, loaded[device]) + own.compute);
      done = std::max(done, computed[device].back());
    }
    ends.push_back(done + run.reduce[block]);
  }
  return ends;
}

bool tight_steady_state(const LayerTimes& times) {
  return times.attention.compute + times.reduce >= times.ffn.load &&
         times.ffn.compute + times.reduce >= times.attention.load;
}

bool loose_steady_state(const LayerTimes& times, int layers, int keep_ffn) {
  const auto loaded_ffns = [&](int count) {
    return static_cast<double>(count - (keep_ffn > 0 ? count / keep_ffn : 0));
  };
  // Whether loads hide behind so many blocks and their reductions.
  const auto hides = [&](int attentions, int ffns, Seconds loads) {
    const Seconds runs = times.attention.compute * static_cast<double>(attentions) +
                         times.ffn.compute * static_cast<double>(ffns) +
                         times.reduce * static_cast<double>(attentions + ffns);
    return runs >= loads;
  };
  bool from_attention = true;
  bool from_ffn = true;
  for (int l = 1; l <= layers; ++l) {
    const double n = l;
    from_attention =
        from_attention &&
        hides(l, l - 1, times.ffn.load * loaded_ffns(l) + times.attention.load * (n - 1));
    from_ffn =
        from_ffn && hides(l - 1, l, times.attention.load * n + times.ffn.load * loaded_ffns(l - 1));
  }
  const int period = std::max(1, keep_ffn);
  const bool keeps_pace = hides(
      period, period,
      times.attention.load * static_cast<double>(period) + times.ffn.load * loaded_ffns(period));
  return keeps_pace && (from_attention || from_ffn);
}

}  // namespace orrery::sim
