// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/share_curves.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

constexpr double kPlaneTolerance = 1e-9;
using Vector = std::array<double, kSharingClasses>;

// A plane n . y = d that bounds the dual.
struct Plane {
  Vector normal{};
  double offset = 0;
};

double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

Vector cross(const Vector& a, const Vector& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// The share vectors in which `rest` gets what the others, at breakpoints, leave.
void append_vectors(const SharingCurves& curves, const std::array<bool, kSharingClasses>& runs,
                    std::size_t rest, std::vector<ShareVector>& vectors) {
  const std::size_t a = (rest + 1) % kSharingClasses;
  const std::size_t b = (rest + 2) % kSharingClasses;
  for (const ShareCurve::Point& first : curves[a]->points()) {
    for (const ShareCurve::Point& second : curves[b]->points()) {
      const double left = 1 - first.share - second.share;
      const bool idle_runs = (!runs[a] && first.share > 0) || (!runs[b] && second.share > 0);
      if (left < -kPlaneTolerance || idle_runs) {
        continue;
      }
      ShareVector vector;
      vector.share[a] = first.share;
      vector.share[b] = second.share;
      vector.share[rest] = std::max(0.0, left);
      for (std::size_t c = 0; c < kSharingClasses; ++c) {
        vector.speed[c] = curves[c]->speed(vector.share[c]);
      }
      vectors.push_back(vector);
    }
  }
}

bool dominates(const Vector& a, const Vector& b) {
  return a[0] >= b[0] && a[1] >= b[1] && a[2] >= b[2];
}

bool feasible(const Vector& y, const std::vector<Plane>& speeds) {
  return std::all_of(y.begin(), y.end(), [](double value) { return value >= -kPlaneTolerance; }) &&
         std::all_of(speeds.begin(), speeds.end(), [&](const Plane& plane) {
           return dot(plane.normal, y) <= plane.offset + kPlaneTolerance;
         });
}

}  // namespace

ShareCurve::ShareCurve(std::vector<Point> points, const std::string& where)
    : points_(std::move(points)) {
  if (points_.size() < 2 || points_.front().share != 0 || points_.front().speed != 0 ||
      points_.back().share != 1 || points_.back().speed != 1) {
    bad_input(where, "a share curve goes from [0, 0] to [1, 1]");
  }
  for (std::size_t i = 1; i < points_.size(); ++i) {
    if (!(points_[i].share > points_[i - 1].share) || !(points_[i].speed >= points_[i - 1].speed)) {
      bad_input(where, "shares of a curve must rise from point to point and speeds must not fall");
    }
  }
}

double ShareCurve::speed(double share) const {
  const auto high = std::find_if(points_.begin(), points_.end(),
                                 [&](const Point& point) { return point.share >= share; });
  if (high == points_.begin()) {
    return 0;
  }
  if (high == points_.end()) {
    return 1;
  }
  const Point& low = *(high - 1);
  return low.speed + (share - low.share) * (high->speed - low.speed) / (high->share - low.share);
}

double ShareCurve::share(double speed) const {
  const auto high = std::find_if(points_.begin(), points_.end(),
                                 [&](const Point& point) { return point.speed >= speed; });
  if (high == points_.begin()) {
    return 0;
  }
  if (high == points_.end()) {
    return 1;
  }
  const Point& low = *(high - 1);
  return low.share + (speed - low.speed) * (high->share - low.share) / (high->speed - low.speed);
}

const ShareCurve& gemm_curve() {
  static const ShareCurve curve({{0, 0}, {1, 1}}, "gemm");
  return curve;
}

const ShareCurve& memory_curve() {
  static const ShareCurve curve(
      {{0, 0}, {.1, .2}, {.2, .3}, {.4, .8}, {.8, .85}, {.9, .95}, {1, 1}}, "memory");
  return curve;
}

const ShareCurve& network_curve() {
  static const ShareCurve curve({{0, 0}, {.1, .3}, {.2, .5}, {.8, .9}, {.9, 1}, {1, 1}}, "network");
  return curve;
}

std::vector<ShareVector> share_vectors(const SharingCurves& curves,
                                       const std::array<bool, kSharingClasses>& runs) {
  std::vector<ShareVector> all;
  for (std::size_t rest = 0; rest < kSharingClasses; ++rest) {
    if (runs[rest]) {
      append_vectors(curves, runs, rest, all);
    }
  }
  std::vector<ShareVector> kept;
  for (const ShareVector& vector : all) {
    const bool useless =
        std::any_of(all.begin(), all.end(),
                    [&](const ShareVector& other) {
                      return other.speed != vector.speed && dominates(other.speed, vector.speed);
                    }) ||
        std::any_of(kept.begin(), kept.end(),
                    [&](const ShareVector& other) { return other.speed == vector.speed; });
    if (!useless) {
      kept.push_back(vector);
    }
  }
  return kept;
}

OptimalSharing::OptimalSharing(const SharingCurves& curves) {
  std::vector<Plane> bounds;
  for (const ShareVector& vector : share_vectors(curves, {true, true, true})) {
    bounds.push_back({vector.speed, 1});
  }
  std::vector<Plane> planes = bounds;
  for (std::size_t axis = 0; axis < kSharingClasses; ++axis) {
    Plane plane;
    plane.normal[axis] = 1;
    planes.push_back(plane);
  }
  for (std::size_t i = 0; i < planes.size(); ++i) {
    for (std::size_t j = i + 1; j < planes.size(); ++j) {
      const Vector ij = cross(planes[i].normal, planes[j].normal);
      for (std::size_t k = j + 1; k < planes.size(); ++k) {
        const double volume = dot(ij, planes[k].normal);
        if (std::abs(volume) < kPlaneTolerance) {
          continue;
        }
        const Vector jk = cross(planes[j].normal, planes[k].normal);
        const Vector ki = cross(planes[k].normal, planes[i].normal);
        Vector y{};
        for (std::size_t c = 0; c < kSharingClasses; ++c) {
          y[c] = (planes[i].offset * jk[c] + planes[j].offset * ki[c] + planes[k].offset * ij[c]) /
                 volume;
        }
        const bool known = std::any_of(vertices_.begin(), vertices_.end(), [&](const Vector& v) {
          return std::abs(v[0] - y[0]) + std::abs(v[1] - y[1]) + std::abs(v[2] - y[2]) < 1e-7;
        });
        if (!known && feasible(y, bounds)) {
          vertices_.push_back(y);
        }
      }
    }
  }
}

Seconds OptimalSharing::time(const SharedWork& work) const {
  double most = 0;
  for (const Vector& y : vertices_) {
    most = std::max(most, work[0].value() * y[0] + work[1].value() * y[1] + work[2].value() * y[2]);
  }
  return Seconds(most);
}

SharingCurves measured_curves() { return {&gemm_curve(), &memory_curve(), &network_curve()}; }

const OptimalSharing& nano_batch_sharing() {
  static const OptimalSharing sharing(measured_curves());
  return sharing;
}

}  // namespace orrery::sim
