// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/anchors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/quantile.hpp"
#include "base/text.hpp"
#include "calibrate/fit/surface_points.hpp"
#include "calibrate/statistics.hpp"
#include "costmodel/site_spread.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::KernelKind;
using costmodel::KernelSizes;
using costmodel::Load;
using costmodel::ResidualKey;
using costmodel::ResidualSet;

// The same 1,200 shapes on three software stacks, A100 and H100: the scatter of the shapes about
// the shift of their stack (docs/fidelity.md). Attention has no such table.
constexpr double kScatterOfStacks = 0.057;
// Choices: one site in ten is taken to be unlike all that were measured, by a factor of 1.6 or less
// in two cases of three. No table shifts by more than 0.11. What other values do: docs/fidelity.md.
constexpr double kShareOfOtherSites = 0.1;
constexpr double kShiftOfOtherSites = 0.5;

bool is_product(const ResidualKey& key) {
  return key.kind == KernelKind::Gemm || key.kind == KernelKind::GroupedGemm;
}

KernelPoints alone(const KernelPoints& points, const ResidualKey& key) {
  return select(points, [&](const auto& point) { return point.key == key && !point.both_passes; });
}

// The rate of experts, and that of backward passes, is one number for all their sets.
bool is_measured(const ResidualKey& key, const KernelPoints& points) {
  const bool rated =
      key.kind == KernelKind::GroupedGemm || key.kind == KernelKind::AttentionBackward;
  return std::any_of(points.begin(), points.end(), [&](const auto* point) {
    return point->key == key ||
           (rated && point->key.kind == key.kind && share_formula(point->key, key));
  });
}

constexpr double squared(double x) { return x * x; }

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

std::vector<double> deviations_from(double centre, std::vector<double> values) {
  for (double& value : values) {
    value = std::abs(value - centre);
  }
  return values;
}

// A normal density, but for the factor that all have.
double density(double x, double variance) {
  return std::exp(-x * x / (2 * variance)) / std::sqrt(variance);
}

// The mean of a shift of which `median` with a variance of `noise` was seen: a mixture of those of
// usual sites, which spread by `site_spread`, and those of others.
double expected_shift(double median, double noise, double site_spread) {
  const double of_usual = squared(site_spread);
  const double of_others = squared(kShiftOfOtherSites);
  const double usual = (1 - kShareOfOtherSites) * density(median, of_usual + noise);
  const double others = kShareOfOtherSites * density(median, of_others + noise);
  return median *
         (usual * of_usual / (of_usual + noise) + others * of_others / (of_others + noise)) /
         (usual + others);
}

int in_permille(double log_factor) {
  const double limit = std::log(costmodel::KernelResiduals::kMaxFactor);
  return static_cast<int>(std::lround(1000 * std::clamp(log_factor, -limit, limit)));
}

}  // namespace

bool share_formula(const ResidualKey& a, const ResidualKey& b) {
  if (!is_product(a) || !is_product(b)) {
    return is_product(a) == is_product(b);
  }
  return a.dtype == b.dtype || (has_16_bits(a.dtype) && has_16_bits(b.dtype));
}

Anchors::Anchors(const topologies::Gpu& gpu, const costmodel::Profile& base,
                 const KernelPoints& points)
    : gpu_(gpu), base_(base) {
  if (base.kernels.residuals.sms() != std::max(1, gpu.sm_count)) {
    return;
  }
  for (const ResidualSet& set : base.kernels.residuals.sets()) {
    const ResidualKey& key = set.key;
    const bool has_formula =
        (key.kind == KernelKind::Gemm || key.kind == KernelKind::AttentionForward) &&
        key.layout == costmodel::GemmLayout::TN && key.load == Load::Burst;
    const bool is_near = std::any_of(points.begin(), points.end(), [&](const auto* point) {
      return share_formula(point->key, key);
    });
    if (has_formula && is_near && set.points.size() >= kPointsOfDenseSet &&
        alone(points, key).size() < kPointsOfDenseSet) {
      dense_.push_back(key);
    }
  }
}

bool Anchors::hold(const ResidualKey& key) const {
  return std::any_of(dense_.begin(), dense_.end(),
                     [&](const ResidualKey& dense) { return share_formula(dense, key); });
}

bool Anchors::is_dense(const ResidualKey& key) const {
  return std::find(dense_.begin(), dense_.end(), key) != dense_.end();
}

void Anchors::release(const ResidualKey& key) {
  std::erase_if(dense_, [&](const ResidualKey& dense) { return share_formula(dense, key); });
}

std::vector<ResidualSet> Anchors::sets(const KernelPoints& points) const {
  const std::vector<ResidualSet>& known = base_.kernels.residuals.sets();
  std::vector<ResidualSet> sets;
  for (const ResidualSet& set : known) {
    if (is_dense(set.key)) {
      // The formats of 16 bits stand for each other, until one has a set of its own.
      ResidualKey other = set.key;
      other.dtype = costmodel::stand_in(set.key.dtype);
      const bool is_known = std::any_of(known.begin(), known.end(),
                                        [&](const ResidualSet& of) { return of.key == other; });
      if (has_16_bits(set.key.dtype) && !is_known && !alone(points, other).empty()) {
        sets.push_back(moved(set, other, alone(points, other)));
      }
      sets.push_back(moved(set, set.key, alone(points, set.key)));
    } else if (hold(set.key) && !is_measured(set.key, points)) {
      sets.push_back(set);
    }
  }
  return sets;
}

std::vector<std::string> Anchors::remarks(const KernelPoints& points) const {
  std::vector<std::string> lines;
  for (const ResidualSet& set : base_.kernels.residuals.sets()) {
    const KernelPoints own = alone(points, set.key);
    if (is_dense(set.key) && !own.empty()) {
      lines.push_back(
          fmt::format("{} of {} beside the {} of {}, whose times are multiplied by {:.3f}",
                      counted(static_cast<std::int64_t>(own.size()), "shape"), class_name(set.key),
                      set.points.size(), base_.name, std::exp(shift(own))));
    }
  }
  return lines;
}

std::vector<double> Anchors::log_errors(const KernelPoints& points) const {
  const DeviceModel burst(gpu_, base_);
  std::vector<double> errors;
  for (const KernelPointOf* point : points) {
    errors.push_back(std::log(point->seconds / predicted_time(*point, burst, burst)));
  }
  return errors;
}

// What the points take beyond the base, in the logarithm, as far as so few can tell.
double Anchors::shift(const KernelPoints& points) const {
  if (points.empty()) {
    return 0;
  }
  const std::vector<double> errors = log_errors(points);
  const double median = median_of(errors);
  // Points scatter about the shift of their stack as stacks do, and as far as the base misses
  // shapes between its own, or as they are seen to; a median has pi / 2 times the variance of a
  // mean.
  const bool products = is_product(points.front()->key);
  const double spread = products ? base_.spread.gemm : base_.spread.attention;
  const double between = std::max(0.0, squared(spread) - squared(costmodel::kSoftwareSpread));
  const double seen = kDeviationOfMedian * median_of(deviations_from(median, errors));
  const double scatter = std::max(squared(kScatterOfStacks) + between, squared(seen));
  return expected_shift(median, std::numbers::pi / 2 * scatter / static_cast<double>(points.size()),
                        products ? costmodel::kSiteSpreadGemm : costmodel::kSiteSpreadAttention);
}

// `set` for `key`, whose points, all in bursts, replace what it holds of their shapes, but for
// those that it contradicts.
ResidualSet Anchors::moved(const ResidualSet& set, const ResidualKey& key,
                           const KernelPoints& points) const {
  costmodel::Profile plain = base_;
  plain.kernels = {};
  const DeviceModel formula(gpu_, plain);
  const double shifted = shift(points);
  const std::vector<double> errors = log_errors(points);
  const std::vector<double> apart = deviations_from(median_of(errors), errors);
  const double limit = contradiction_of_few(apart);
  std::map<KernelSizes, int> values;
  for (const costmodel::KernelPoint& point : set.points) {
    values[point.sizes] = in_permille(point.permille / 1000.0 + shifted);
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    const KernelPointOf& point = *points[i];
    if (apart[i] <= limit || points.size() < kFewestToContradict) {
      const double bare = predicted_time(point, formula, formula, false);
      values[point.sizes] = in_permille(std::log(kernel_seconds(point, formula, formula) / bare));
    }
  }
  ResidualSet result{key, {}};
  for (const auto& [sizes, permille] : values) {
    result.points.push_back({sizes, permille});
  }
  return result;
}

}  // namespace orrery::calibrate
