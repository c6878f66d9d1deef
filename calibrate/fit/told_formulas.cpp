// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/told_formulas.hpp"

#include <set>
#include <utility>

namespace orrery::calibrate {
namespace {

using costmodel::KernelKind;
using costmodel::Load;
using costmodel::ResidualKey;

// Of a formula with four or five parameters. Shapes that differ in rows alone are one group: they
// say little of the others, and no fold tests them against each other.
constexpr std::size_t kMinPoints = 24;
constexpr std::size_t kMinGroups = 10;

KernelPoints points_of(const KernelPoints& points, const ResidualKey& key) {
  return select(points,
                [&](const KernelPointOf& point) { return point.key == key && !point.both_passes; });
}

bool tell_a_formula(const KernelPoints& points) {
  std::set<std::uint64_t> groups;
  for (const KernelPointOf* point : points) {
    groups.insert(point->group);
  }
  return points.size() >= kMinPoints && groups.size() >= kMinGroups;
}

}  // namespace

KernelPoints forward_bursts(const KernelPoints& points, DType dtype) {
  return points_of(points, {KernelKind::Gemm, dtype, costmodel::GemmLayout::TN, Load::Burst});
}

KernelPoints attention_points(const KernelPoints& points, KernelKind pass, Load load) {
  KernelPoints most;
  for (int i = 0; i < kNumDTypes; ++i) {
    KernelPoints of =
        points_of(points, {pass, static_cast<DType>(i), costmodel::GemmLayout::TN, load});
    most = of.size() > most.size() ? std::move(of) : most;
  }
  return most;
}

ToldFormulas::ToldFormulas(const KernelPoints& all)
    : attention_(tell_a_formula(attention_points(all, KernelKind::AttentionForward, Load::Burst))) {
  for (int i = 0; i < kNumDTypes; ++i) {
    products_[static_cast<std::size_t>(i)] =
        tell_a_formula(forward_bursts(all, static_cast<DType>(i)));
  }
}

}  // namespace orrery::calibrate
