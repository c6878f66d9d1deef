// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/split.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace orrery::search {

namespace {

constexpr double kWhole = 1e-4;      // nearer to a whole number counts as one
constexpr double kLeastStay = 0.02;  // of the time: what a peak delays
constexpr int kMost = std::numeric_limits<int>::max() / 2;
constexpr std::size_t kLongest = 256;  // neighbours that are looked at together
// What lengths count beside half a block: little.
constexpr double kOfLength = 0.1;

using Stages = std::vector<std::size_t>;

double blocks_of(const Shares& shares, std::size_t stage) {
  double sum = 0;
  for (const std::vector<double>& of_block : shares.blocks[stage]) {
    sum = std::accumulate(of_block.begin(), of_block.end(), sum);
  }
  return sum;
}

double blocks_of(const Shares& shares, const Stages& stages) {
  double sum = 0;
  for (const std::size_t stage : stages) {
    sum += blocks_of(shares, stage);
  }
  return sum;
}

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
  return devices;
}

// Of neighbours in `groups`, those whose blocks together are farthest from a whole number, and of
// these the ones whose number is nearest to `length`; each stage once. Empty: all are whole.
Stages with_parts(const Shares& shares, const std::vector<Stages>& groups, double length) {
  const std::size_t count = groups.size();
  Stages best;
  double most = -std::numeric_limits<double>::infinity();
  std::vector<std::size_t> seen_from(shares.blocks.size(), count);
  for (std::size_t first = 0; first < count; ++first) {
    Stages stages;
    double blocks = 0;
    for (std::size_t last = first; last < std::min(count, first + kLongest); ++last) {
      for (const std::size_t stage : groups[last]) {
        if (seen_from[stage] != first) {
          seen_from[stage] = first;
          stages.push_back(stage);
          blocks += blocks_of(shares, stage);
        }
      }
      const double away = std::abs(blocks - std::round(blocks));
      const double off = std::abs(static_cast<double>(last + 1 - first) - length);
      const double rank = away - kOfLength * off / static_cast<double>(count);
      if (away > kWhole && rank > most && stages.size() < shares.blocks.size()) {
        most = rank;
        best = stages;
      }
    }
  }
  std::sort(best.begin(), best.end());
  return best;
}

std::vector<StageRange> with(std::vector<StageRange> known, StageRange range) {
  for (StageRange& one : known) {
    if (one.of == range.of && one.stages == range.stages) {
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
  const double half = static_cast<double>(devices.size()) / 2;
  Stages stages = with_parts(shares, devices, half);
  if (stages.empty()) {
    std::vector<Stages> each;
    for (std::size_t stage = 0; stage < shares.blocks.size(); ++stage) {
      each.push_back({stage});
    }
    stages = with_parts(shares, each, half);
  }
  if (stages.empty()) {
    return {};
  }
  const int least = static_cast<int>(stages.size());
  const int below = std::max(least, static_cast<int>(std::floor(blocks_of(shares, stages))));
  return {with(known, {stages, least, below}), with(known, {stages, below + 1, kMost})};
}

std::vector<std::vector<StageRange>> split_peak(const models::Network& network,
                                                const Pipeline& pipeline, std::size_t stages,
                                                std::int64_t micro_batches) {
  const plan::StagePlacement& placement = pipeline.placement;
  const std::size_t devices = stages / static_cast<std::size_t>(pipeline.chunks);
  const auto layers = std::count_if(network.chain.begin(), network.chain.end(), [&](int block) {
    return network.blocks[static_cast<std::size_t>(block)].kind == models::BlockKind::Layer;
  });
  const auto count = static_cast<std::ptrdiff_t>(stages);
  const std::ptrdiff_t peak = (layers + count - 1) / count;
  // In passes of a layer: what a device has to do, what is before and behind it, and the stays.
  const double before_it = static_cast<double>(devices) - 1.0;
  const double mean = static_cast<double>(layers) / static_cast<double>(count);
  const double busy = mean * pipeline.chunks * static_cast<double>(micro_batches);
  const double stays = before_it * (static_cast<double>(peak) - mean);
  if (placement.device_of.size() != stages || pipeline.chunks < 2 ||
      stays < kLeastStay * (busy + before_it * mean)) {
    return {};
  }
  Stages before(stages - devices);
  std::iota(before.begin(), before.end(), std::size_t{0});
  Stages last(devices);
  std::iota(last.begin(), last.end(), before.size());
  const int least = static_cast<int>(peak);
  return {
      {{before, least, kMost, StageRange::Of::One}},
      {{before, 0, least - 1, StageRange::Of::Each}, {last, least, kMost, StageRange::Of::One}}};
}

std::vector<std::vector<StageRange>> split_part(const Shares& shares, const Pipeline& pipeline,
                                                const models::Network& network,
                                                std::int64_t micro_batches,
                                                const std::vector<StageRange>& known,
                                                const std::function<bool()>& knows_peaks) {
  if (known.empty()) {
    auto parts = split_peak(network, pipeline, shares.blocks.size(), micro_batches);
    if (!parts.empty() && knows_peaks()) {
      return parts;
    }
  }
  return split_stages(shares, pipeline, known);
}

}  // namespace orrery::search
