// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/split.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace orrery::search {

namespace {

constexpr double kWhole = 1e-4;  // nearer to a whole number counts as one
constexpr int kMost = std::numeric_limits<int>::max() / 2;

using Stages = std::vector<std::size_t>;

double blocks_of(const Shares& shares, const Stages& stages) {
  double sum = 0;
  for (const std::size_t stage : stages) {
    for (const std::vector<double>& of_block : shares.blocks[stage]) {
      sum = std::accumulate(of_block.begin(), of_block.end(), sum);
    }
  }
  return sum;
}

bool is_whole(double blocks) { return std::abs(blocks - std::round(blocks)) <= kWhole; }

// By device, each virtual stage once.
std::vector<Stages> stages_of_devices(const Pipeline& pipeline, std::size_t stages) {
  std::vector<Stages> devices;
  for (std::size_t index = 0; index < pipeline.placement.device_of.size(); ++index) {
    const std::size_t device = pipeline.placement.device_of[index];
    devices.resize(std::max(devices.size(), device + 1));
    Stages& held = devices[device];
    if (std::find(held.begin(), held.end(), index % stages) == held.end()) {
      held.push_back(index % stages);
    }
  }
  for (Stages& held : devices) {
    std::sort(held.begin(), held.end());
  }
  return devices;
}

// The device that is farthest below a whole number: one block more says most of it.
Stages device_with_parts(const Shares& shares, const std::vector<Stages>& devices) {
  Stages best;
  double most = 0;
  for (const Stages& held : devices) {
    const double blocks = blocks_of(shares, held);
    const double missing = std::ceil(blocks) - blocks;
    if (!is_whole(blocks) && missing > most) {
      most = missing;
      best = held;
    }
  }
  return best;
}

// The stage that is farthest from one, of devices of which something is known before others.
Stages stage_with_parts(const Shares& shares, const std::vector<Stages>& devices,
                        const std::vector<StageRange>& known) {
  std::set<std::size_t> begun;
  for (const StageRange& range : known) {
    if (range.stages.size() == 1) {
      begun.insert(range.stages.front());
    }
  }
  Stages best;
  double most = 0;
  for (const Stages& held : devices) {
    const bool goes_on = std::any_of(held.begin(), held.end(),
                                     [&](std::size_t stage) { return begun.contains(stage); });
    for (const std::size_t stage : held) {
      const double blocks = blocks_of(shares, {stage});
      const double rank = std::abs(blocks - std::round(blocks)) + (goes_on ? 1.0 : 0.0);
      if (!is_whole(blocks) && rank > most) {
        most = rank;
        best = {stage};
      }
    }
  }
  return best;
}

std::vector<StageRange> with(std::vector<StageRange> known, StageRange range) {
  for (StageRange& one : known) {
    if (one.stages == range.stages) {
      one.least = std::max(one.least, range.least);
      one.most = std::min(one.most, range.most);
      return known;
    }
  }
  known.push_back(std::move(range));
  return known;
}

}  // namespace

std::vector<std::vector<StageRange>> split_stages(const Shares& shares, const Pipeline& pipeline,
                                                  const std::vector<StageRange>& known) {
  const std::vector<Stages> devices = stages_of_devices(pipeline, shares.blocks.size());
  Stages stages = device_with_parts(shares, devices);
  if (stages.empty()) {
    stages = stage_with_parts(shares, devices, known);
  }
  if (stages.empty()) {
    return {};
  }
  const int least = static_cast<int>(stages.size());
  const int below = static_cast<int>(std::floor(blocks_of(shares, stages)));
  return {with(known, {stages, least, std::max(least, below)}),
          with(known, {stages, below + 1, kMost})};
}

}  // namespace orrery::search
