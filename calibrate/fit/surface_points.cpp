// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/surface_points.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/quantile.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::KernelPoint;
using costmodel::KernelResiduals;
using costmodel::ResidualKey;
using costmodel::ResidualSet;

constexpr int kOutlierPasses = 2;
constexpr std::size_t kParts = 8;  // neighbours of the order lie in different ones

// A choice, beyond what stacks do: of 7,200 products under three stacks on A100 and H100 the
// furthest is 0.53 from what its stack shifts the table by. What other values do: docs/fidelity.md.
constexpr double kContradictionOfFew = 0.7;  // ln of the time: a factor of two
constexpr double kDeviations = 5;

double deviation(const SurfacePoint& point, double log_factor) {
  const double expected = point.formula_s * std::exp(log_factor) + point.beside_s;
  return std::abs(std::log(expected / point.measured_s));
}

KernelResiduals without_part(const ResidualKey& key, std::span<const SurfacePoint> points,
                             const std::vector<bool>& trusted, std::size_t part, int sms) {
  ResidualSet set{key, {}};
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (trusted[i] && i % kParts != part) {
      set.points.push_back(points[i].point);
    }
  }
  return {"", sms, "", {std::move(set)}};
}

// Of each point from the trusted of the other parts.
std::vector<double> deviations(const ResidualKey& key, std::span<const SurfacePoint> points,
                               const std::vector<bool>& trusted, int sms) {
  std::vector<double> result(points.size());
  for (std::size_t part = 0; part < kParts; ++part) {
    const KernelResiduals others = without_part(key, points, trusted, part, sms);
    for (std::size_t i = part; i < points.size(); i += kParts) {
      result[i] = deviation(points[i], others.log_factor(key, points[i].point.sizes, sms));
    }
  }
  return result;
}

}  // namespace

double contradiction_of_few(std::vector<double> absolute_deviations) {
  std::sort(absolute_deviations.begin(), absolute_deviations.end());
  return std::max(kContradictionOfFew,
                  kDeviations * kDeviationOfMedian * quantile(absolute_deviations, 0.5));
}

std::vector<KernelPoint> consistent_points(const ResidualKey& key,
                                           std::span<const SurfacePoint> points, int sms) {
  std::vector<bool> trusted(points.size(), true);
  const int passes = points.size() < kFewestToContradict ? 0 : kOutlierPasses;
  for (int pass = 0; pass < passes; ++pass) {
    const std::vector<double> apart = deviations(key, points, trusted, sms);
    const double limit =
        points.size() < kPointsOfDenseSet ? contradiction_of_few(apart) : kContradiction;
    for (std::size_t i = 0; i < points.size(); ++i) {
      trusted[i] = apart[i] <= limit;
    }
  }
  std::vector<KernelPoint> kept;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (trusted[i]) {
      kept.push_back(points[i].point);
    }
  }
  return kept;
}

}  // namespace orrery::calibrate
