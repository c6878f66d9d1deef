// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/unmeasured.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace orrery::calibrate {
namespace {

using costmodel::KernelKind;
using costmodel::ResidualKey;
using costmodel::ResidualSet;

// Whether points of one set move the formula under another: tf32 takes that of 16 bits.
bool moves_formula(const ResidualKey& measured, const ResidualKey& other) {
  ResidualKey as_16_bits = other;
  as_16_bits.dtype = other.dtype == DType::Tf32 ? DType::Bf16 : other.dtype;
  return share_formula(measured, other) || share_formula(measured, as_16_bits);
}

}  // namespace

void keep_unmeasured(const costmodel::Profile& base, const KernelPoints& points,
                     const Anchors& anchors, KernelFit& fit) {
  const costmodel::KernelResiduals& known = base.kernels.residuals;
  costmodel::KernelResiduals& now = fit.profile.kernels.residuals;
  std::vector<ResidualSet> sets = now.sets();
  std::vector<std::string> kept;
  std::vector<std::string> below;  // what was measured
  std::set<std::string> dropped;   // measured again, or left out
  for (const KernelPointOf* point : points) {
    dropped.insert(class_name(*point));
  }
  for (const ResidualSet& set : known.sets()) {
    const std::string name = class_name(set.key);
    const bool is_there = std::any_of(sets.begin(), sets.end(),
                                      [&](const ResidualSet& of) { return of.key == set.key; });
    const bool is_moved = std::any_of(points.begin(), points.end(), [&](const auto* point) {
      return moves_formula(point->key, set.key);
    });
    if (is_there && !dropped.contains(name)) {
      kept.push_back(name);
    } else if (anchors.is_dense(set.key)) {
      below.push_back(name);
    } else if (is_moved) {
      dropped.insert(name);
    } else {
      sets.push_back(set);
      kept.push_back(name);
    }
  }
  if (!kept.empty() && known.sms() != now.sms()) {
    fit.remarks.push_back(fmt::format("left out: residuals of {} that were measured on {} SMs",
                                      fmt::join(kept, ", "), known.sms()));
    dropped.insert(kept.begin(), kept.end());
  } else if (!kept.empty() || !below.empty()) {
    below.insert(below.end(), kept.begin(), kept.end());
    const std::string source =
        fmt::format("{}; {}: {}", now.source(), fmt::join(below, ", "), known.source());
    now = {"", now.sms(), source, std::move(sets)};
  }
  const bool attention = std::any_of(points.begin(), points.end(), [](const auto* point) {
    return std::holds_alternative<costmodel::AttentionShape>(point->shape);
  });
  std::copy_if(base.kernels.accuracy.begin(), base.kernels.accuracy.end(),
               std::back_inserter(fit.profile.kernels.accuracy), [&](const auto& row) {
                 const bool stays = std::find(kept.begin(), kept.end(), row.kernel) != kept.end();
                 return !dropped.contains(row.kernel) &&
                        (stays || !attention || !row.kernel.starts_with("attention-"));
               });
}

}  // namespace orrery::calibrate
