// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/both_passes.hpp"

#include <algorithm>
#include <cmath>

#include "base/dtype.hpp"
#include "base/quantile.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::KernelKind;

// 16-bit kernels run alike, and points of one format are one set: that of the passes timed apart.
DType format_of_set(const KernelPointOf& both, const std::vector<const KernelPointOf*>& points) {
  for (const KernelPointOf* point : points) {
    const bool attention = std::holds_alternative<costmodel::AttentionShape>(point->shape);
    if (attention && !point->both_passes && point->key.load == both.key.load &&
        costmodel::stand_in(point->key.dtype) == both.key.dtype) {
      return point->key.dtype;
    }
  }
  return both.key.dtype;
}

}  // namespace

std::vector<KernelPointOf> passes_apart(const topologies::Gpu& gpu,
                                        const costmodel::Profile& formula,
                                        const std::vector<const KernelPointOf*>& points,
                                        double slower) {
  const costmodel::DeviceModel burst(gpu, formula);
  const costmodel::DeviceModel sustained(gpu, formula, costmodel::Load::Sustained);
  std::vector<KernelPointOf> apart;
  for (const KernelPointOf* both : points) {
    if (!both->both_passes) {
      continue;
    }
    const double factor = slower * both->seconds / predicted_time(*both, burst, sustained);
    for (const KernelKind kind : {KernelKind::AttentionForward, KernelKind::AttentionBackward}) {
      KernelPointOf pass = *both;
      pass.both_passes = false;
      pass.key.kind = kind;
      pass.key.dtype = format_of_set(*both, points);
      pass.seconds = factor * predicted_time(pass, burst, sustained);
      apart.push_back(pass);
    }
  }
  return apart;
}

double slower_when_sustained(const std::vector<costmodel::ResidualSet>& sets) {
  for (const costmodel::ResidualSet& set : sets) {
    const bool sixteen_bits = has_16_bits(set.key.dtype);
    if (set.key.kind != KernelKind::Gemm || set.key.layout != costmodel::GemmLayout::TN ||
        set.key.load != costmodel::Load::Sustained || !sixteen_bits || set.points.empty()) {
      continue;
    }
    std::vector<double> permille;
    for (const auto& point : set.points) {
      permille.push_back(point.permille);
    }
    std::sort(permille.begin(), permille.end());
    return std::exp(quantile(permille, 0.5) / 1000);
  }
  return 1.0;
}

std::vector<const KernelPointOf*> each_pass(const std::vector<const KernelPointOf*>& points,
                                            const std::vector<KernelPointOf>& apart) {
  const auto before = [](const KernelPointOf* a, const KernelPointOf* b) {
    return comes_before(*a, *b);
  };
  std::vector<const KernelPointOf*> single = points;
  std::erase_if(single, [](const KernelPointOf* point) { return point->both_passes; });
  std::vector<const KernelPointOf*> all = single;
  for (const KernelPointOf& point : apart) {
    all.push_back(&point);
  }
  // Of equal ones the first: those timed by themselves, then the first format.
  std::stable_sort(all.begin(), all.end(), before);
  all.erase(std::unique(all.begin(), all.end(),
                        [&](const auto* a, const auto* b) { return !before(a, b); }),
            all.end());
  return all;
}

}  // namespace orrery::calibrate
