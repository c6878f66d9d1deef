// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/kernel_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/quantile.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::KernelKind;

// "m 16 to 32768, n 128 to 65536, k 128 to 65536"
std::string measured_range(const std::vector<const KernelPointOf*>& points) {
  const KernelKind kind = points.front()->key.kind;
  std::vector<std::pair<std::string, std::size_t>> names;
  if (kind == KernelKind::Gemm) {
    names = {{"m", 2}, {"n", 1}, {"k", 0}};
  } else if (kind == KernelKind::GroupedGemm) {
    names = {{"groups", 2}, {"m", 3}, {"n", 1}, {"k", 0}};
  } else {
    names = {{"batch", 5}, {"heads", 3}, {"sequence", 7}, {"head size", 0}};
  }
  std::string text;
  for (const auto& [name, index] : names) {
    std::int64_t low = points.front()->sizes[index];
    std::int64_t high = low;
    for (const KernelPointOf* point : points) {
      low = std::min(low, point->sizes[index]);
      high = std::max(high, point->sizes[index]);
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, low);
    text += low == high ? "" : fmt::format(" to {}", high);
  }
  return text;
}

double nearest_of(std::vector<double> errors, double share) {
  std::sort(errors.begin(), errors.end());
  return nearest_quantile(errors, share);
}

// A spread is the standard deviation that the 90th percentile of the left-out errors implies, plus
// what another software stack would change.
// The 90th percentile of fewer products, of which the other layouts have more, is one outlier.
constexpr std::size_t kFewestPoints = 20;
double spread_of(double p90) { return rounded(std::hypot(p90 / 1.645, kSoftwareSpread), 1e4); }

}  // namespace

double rounded_quantile(std::vector<double> values, double share) {
  return rounded(nearest_of(std::move(values), share), 1e4);
}

void KernelErrors::add(const KernelPointOf& point, double predicted) {
  const double error = std::abs(predicted / point.seconds - 1);
  Errors& of = by_class_[class_name(point)];
  of.points.push_back(&point);
  of.all.push_back(error);
  if (is_large(point)) {
    of.large.push_back(error);
  }
}

void KernelErrors::tell(costmodel::Profile& profile) const {
  double gemm_p90 = 0;
  double attention_p90 = 0;
  for (const auto& [name, of] : by_class_) {
    const double p90 = nearest_of(of.all, 0.9);
    profile.kernels.accuracy.push_back({.kernel = name,
                                        .points = static_cast<int>(of.all.size()),
                                        .median = rounded(nearest_of(of.all, 0.5), 1e4),
                                        .p90 = rounded(p90, 1e4),
                                        .large_median = rounded(nearest_of(of.large, 0.5), 1e4),
                                        .measured = measured_range(of.points)});
    const bool bf16 = of.all.size() >= kFewestPoints &&
                      (name.starts_with("gemm bf16") || name.starts_with("gemm fp16"));
    gemm_p90 = bf16 ? std::max(gemm_p90, p90) : gemm_p90;
    const bool forward = name.starts_with("attention-forward");
    attention_p90 = forward ? std::max(attention_p90, p90) : attention_p90;
  }
  costmodel::Spreads& spread = profile.spread;
  spread.gemm = gemm_p90 > 0 ? spread_of(gemm_p90) : spread.gemm;
  spread.attention = attention_p90 > 0 ? spread_of(attention_p90) : spread.attention;
}

}  // namespace orrery::calibrate
