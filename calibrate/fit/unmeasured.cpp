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

// GEMMs whose formulas are fitted together, or attention.
int family_of(const ResidualKey& key) {
  if (key.kind == KernelKind::AttentionForward || key.kind == KernelKind::AttentionBackward) {
    return -1;
  }
  const bool runs_alike =
      key.dtype == DType::Bf16 || key.dtype == DType::Fp16 || key.dtype == DType::Tf32;
  return static_cast<int>(runs_alike ? DType::Bf16 : key.dtype);
}

}  // namespace

void keep_unmeasured(const costmodel::Profile& base, const std::vector<KernelPointOf>& points,
                     KernelFit& fit) {
  const costmodel::KernelResiduals& known = base.kernels.residuals;
  costmodel::KernelResiduals& now = fit.profile.kernels.residuals;
  std::vector<ResidualSet> sets = now.sets();
  std::vector<std::string> kept;
  std::set<std::string> dropped;  // measured again, or left out
  for (const KernelPointOf& point : points) {
    dropped.insert(class_name(point));
  }
  const bool attention = std::any_of(points.begin(), points.end(), [](const auto& point) {
    return std::holds_alternative<costmodel::AttentionShape>(point.shape);
  });
  for (const ResidualSet& set : known.sets()) {
    const bool measured = std::any_of(points.begin(), points.end(), [&](const auto& point) {
      return family_of(point.key) == family_of(set.key);
    });
    if (measured) {
      dropped.insert(class_name(set.key));
    } else {
      sets.push_back(set);
      kept.push_back(class_name(set.key));
    }
  }
  if (!kept.empty() && known.sms() != now.sms()) {
    fit.remarks.push_back(fmt::format("left out: residuals of {} that were measured on {} SMs",
                                      fmt::join(kept, ", "), known.sms()));
    dropped.insert(kept.begin(), kept.end());
  } else if (!kept.empty()) {
    const std::string source =
        fmt::format("{}; {}: {}", now.source(), fmt::join(kept, ", "), known.source());
    now = {"", now.sms(), source, std::move(sets)};
  }
  std::copy_if(base.kernels.accuracy.begin(), base.kernels.accuracy.end(),
               std::back_inserter(fit.profile.kernels.accuracy), [&](const auto& row) {
                 return !dropped.contains(row.kernel) &&
                        !(attention && row.kernel.starts_with("attention-"));
               });
}

}  // namespace orrery::calibrate
