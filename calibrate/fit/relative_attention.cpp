// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/relative_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "base/text.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/fp8_attention.hpp"
#include "calibrate/fit/kernel_errors.hpp"
#include "calibrate/fit/kernel_fitter.hpp"
#include "calibrate/fit/memory.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::Profile;

bool is_forward_burst(const KernelPointOf& point) {
  return point.key.kind == costmodel::KernelKind::AttentionForward &&
         point.key.load == costmodel::Load::Burst && !point.both_passes;
}

// What each fifth takes by a fit to the others.
KernelErrors test_in_folds(const topologies::Gpu& gpu, const KernelFitter& fitter,
                           const KernelPoints& points, KernelFit& fit) {
  KernelErrors errors;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    const Profile without = fitter.fit_forward_attention(
        select(points, [&](const auto& point) { return point.fold != fold; }));
    const DeviceModel model(gpu, without);
    for (const KernelPointOf* point : points) {
      if (point->fold == fold) {
        const double predicted = predicted_time(*point, model, model);
        errors.add(*point, predicted);
        fit.left_out.push_back({class_name(*point), point->seconds, predicted});
      }
    }
  }
  return errors;
}

}  // namespace

void fit_relative_attention(const topologies::Gpu& gpu, std::span<const Sample> samples,
                            const std::string& source, std::uint64_t seed, KernelFit& fit) {
  const Profile base = fit.profile;
  const std::vector<KernelPointOf> all = kernel_points(samples, gpu, base, seed, fit.remarks);
  KernelPoints points;
  for (const KernelPointOf& point : all) {
    if (is_forward_burst(point)) {
      points.push_back(&point);
    }
  }
  if (points.size() < all.size()) {
    fit.remarks.push_back(
        fmt::format("{} left out: of attention on a relative's kernels forward calls in bursts are "
                    "fitted alone",
                    counted(static_cast<std::int64_t>(all.size() - points.size()), "sample")));
  }
  const KernelFitter fitter(gpu, base, source);
  const Profile own = fitter.fit_forward_attention(points, &fit.remarks);
  if (!(own.attention == base.attention)) {
    fit.profile.attention = own.attention;
    test_in_folds(gpu, fitter, points, fit).tell(fit.profile);
    // Nothing is known of training's kernels and of the backward pass here.
    fit.profile.spread = base.spread;
    for (const KernelPointOf* point : points) {
      fit.sampled.insert(class_name(*point));
    }
  }
  fit_fp8_attention(samples, seed, fit);
  const auto known = std::find_if(base.sources.begin(), base.sources.end(),
                                  [](const auto& of) { return of.section == "attention"; });
  if (!(fit.profile.attention == base.attention) && known != base.sources.end()) {
    set_source(fit.profile, "attention",
               fmt::format("{}; backward over forward and residuals {}", source, known->text));
  }
}

}  // namespace orrery::calibrate
