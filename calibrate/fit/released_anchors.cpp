// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/released_anchors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>

#include "calibrate/fit/both_passes.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::Load;

// Choices, of which the two standard errors count (docs/fidelity.md). Of fewer points, and of
// points in fewer groups, folds say nothing of other shapes.
constexpr double kFewestPointsToRelease = 8;
constexpr std::size_t kFewestGroupsToRelease = 3;

// How much larger errors are with the anchors than without, point by point, in the logarithm.
struct Differences {
  double with = 0;
  double gain = 0;
  double gain_squares = 0;
  double count = 0;
  std::set<std::uint64_t> groups;

  void add(std::uint64_t group, double error_with, double error_without) {
    groups.insert(group);
    const double difference = std::abs(error_with) - std::abs(error_without);
    with += std::abs(error_with);
    gain += difference;
    gain_squares += difference * difference;
    count += 1;
  }
  // By more than a tenth, and by more than twice what chance would do.
  bool clear() const {
    constexpr double kShare = 0.1;
    constexpr double kErrors = 2;
    if (count < kFewestPointsToRelease || groups.size() < kFewestGroupsToRelease) {
      return false;
    }
    const double mean = gain / count;
    const double variance = gain_squares / count - mean * mean;
    return gain > kShare * with && mean > kErrors * std::sqrt(std::max(0.0, variance) / count);
  }
};

}  // namespace

std::function<Predict(const KernelPoints&)> fits_of(const KernelFitter& fitter,
                                                    const Anchors& anchors) {
  return [&](const KernelPoints& kept) -> Predict {
    const costmodel::Profile without = fitter.fit(kept, anchors);
    return [burst = DeviceModel(fitter.gpu(), without),
            sustained = DeviceModel(fitter.gpu(), without, Load::Sustained),
            slower = slower_when_sustained(without.kernels.residuals.sets())](const auto& point) {
      return predicted_time(point, burst, sustained) / (point.both_passes ? slower : 1.0);
    };
  };
}

void release_anchors(const KernelFitter& fitter, const KernelPoints& points, Anchors& anchors,
                     std::vector<std::string>& remarks) {
  const std::vector<costmodel::ResidualKey> dense = anchors.dense();
  if (dense.empty()) {
    return;
  }
  Anchors released = anchors;
  for (const costmodel::ResidualKey& key : dense) {
    released.release(key);
  }
  std::map<const KernelPointOf*, double> with;
  predict_left_out(points, fits_of(fitter, anchors),
                   [&](const auto& point, double seconds) { with[&point] = seconds; });
  std::map<const KernelPointOf*, double> without;
  predict_left_out(points, fits_of(fitter, released),
                   [&](const auto& point, double seconds) { without[&point] = seconds; });
  for (const costmodel::ResidualKey& key : dense) {
    Differences differences;
    for (const auto& [point, seconds] : with) {
      if (point->key.kind == key.kind && point->key.layout == key.layout &&
          point->key.load == key.load && share_formula(point->key, key)) {
        differences.add(point->group, std::log(seconds / point->seconds),
                        std::log(without.at(point) / point->seconds));
      }
    }
    if (differences.clear()) {
      anchors.release(key);
      remarks.push_back(
          fmt::format("{} without the table of {}: left-out times differ by "
                      "{:.1f} % on average, with it by {:.1f} %",
                      class_name(key), fitter.base().name,
                      100 * (differences.with - differences.gain) / differences.count,
                      100 * differences.with / differences.count));
    }
  }
}

}  // namespace orrery::calibrate
