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

// The standard deviation of normal errors that has such a quantile: the 90th percentile, or the
// median of few, of which the 90th percentile is one outlier.
constexpr std::size_t kFewestPoints = 20;
double deviation_of(const std::vector<double>& errors) {
  return errors.size() < kFewestPoints ? kDeviationOfMedian * nearest_of(errors, 0.5)
                                       : costmodel::deviation_of_p90(nearest_of(errors, 0.9));
}

// A spread holds what another software stack would change, too; as it was where nothing is known.
void set_spread(double deviation, double& spread) {
  spread = deviation >= 0 ? rounded(costmodel::spread_of(deviation), 1e4) : spread;
}

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
  constexpr double kNothing = -1;
  double products = kNothing;
  double attention = kNothing;
  std::vector<double> experts;  // of all layouts, which a step runs alike
  for (const auto& [name, of] : by_class_) {
    const double p90 = nearest_of(of.all, 0.9);
    profile.kernels.accuracy.push_back({.kernel = name,
                                        .points = static_cast<int>(of.all.size()),
                                        .median = rounded(nearest_of(of.all, 0.5), 1e4),
                                        .p90 = rounded(p90, 1e4),
                                        .large_median = rounded(nearest_of(of.large, 0.5), 1e4),
                                        .measured = measured_range(of.points)});
    if (name.starts_with("gemm bf16") || name.starts_with("gemm fp16")) {
      products = std::max(products, deviation_of(of.all));
    } else if (name.starts_with("attention-forward")) {
      attention = std::max(attention, costmodel::deviation_of_p90(p90));
    } else if (name.starts_with("grouped-gemm")) {
      experts.insert(experts.end(), of.all.begin(), of.all.end());
    }
  }
  set_spread(products, profile.spread.gemm);
  set_spread(attention, profile.spread.attention);
  set_spread(experts.empty() ? kNothing : deviation_of(experts), profile.spread.grouped_gemm);
}

}  // namespace orrery::calibrate
