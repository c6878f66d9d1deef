// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/surface_points.hpp"

#include <cmath>
#include <utility>

namespace orrery::calibrate {
namespace {

using costmodel::KernelPoint;
using costmodel::KernelResiduals;
using costmodel::ResidualKey;
using costmodel::ResidualSet;

constexpr int kOutlierPasses = 2;
constexpr std::size_t kParts = 8;  // neighbours of the order lie in different ones

bool contradicted(const SurfacePoint& point, double log_factor) {
  const double expected = point.formula_s * std::exp(log_factor) + point.beside_s;
  return std::abs(std::log(expected / point.measured_s)) > kContradiction;
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

}  // namespace

std::vector<KernelPoint> consistent_points(const ResidualKey& key,
                                           std::span<const SurfacePoint> points, int sms) {
  std::vector<bool> trusted(points.size(), true);
  const int passes = points.size() < kPointsOfDenseSet ? 0 : kOutlierPasses;
  for (int pass = 0; pass < passes; ++pass) {
    std::vector<bool> next(points.size());
    for (std::size_t part = 0; part < kParts; ++part) {
      const KernelResiduals others = without_part(key, points, trusted, part, sms);
      for (std::size_t i = part; i < points.size(); i += kParts) {
        next[i] = !contradicted(points[i], others.log_factor(key, points[i].point.sizes, sms));
      }
    }
    trusted = std::move(next);
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
