// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/fit/anchors.hpp"
#include "calibrate/fit/both_passes.hpp"
#include "calibrate/fit/casts.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/fp8_attention.hpp"
#include "calibrate/fit/kernel_errors.hpp"
#include "calibrate/fit/kernel_fitter.hpp"
#include "calibrate/fit/kernel_points.hpp"
#include "calibrate/fit/memory.hpp"
#include "calibrate/fit/unmeasured.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {

namespace {

using costmodel::DeviceModel;
using costmodel::Load;
using costmodel::Profile;

KernelPoints all_of(const std::vector<KernelPointOf>& points) {
  KernelPoints all;
  for (const KernelPointOf& point : points) {
    all.push_back(&point);
  }
  return all;
}

// Short loops of training tables ran in bursts or at a clock that was still low: the bursts of
// other tables tell which.
LoadOf load_told_by(const KernelFitter& fitter, const topologies::Gpu& gpu,
                    std::span<const Sample> samples, std::uint64_t seed) {
  std::vector<std::string> remarks;
  std::vector<KernelPointOf> points = kernel_points(samples, gpu, fitter.base(), seed, remarks);
  std::erase_if(points, [](const KernelPointOf& point) { return point.of_training; });
  const KernelPoints all = all_of(points);
  const Profile profile =
      points.empty() ? fitter.base() : fitter.fit(all, {gpu, fitter.base(), all});
  return [burst = DeviceModel(gpu, profile),
          hot = DeviceModel(gpu, profile, Load::Sustained)](const KernelPointOf& point) {
    const auto& shape = std::get<costmodel::GemmShape>(point.shape);
    return costmodel::load_of_timing(Seconds(point.seconds), costmodel::kSimumaxGemmLaunches,
                                     burst.gemm(shape), hot.gemm(shape));
  };
}

// Classes whose points all lie in one fold cannot be tested: they stay as in the base, unless it
// knows nothing of them, or other classes move the formula under them.
KernelPoints testable(const KernelPoints& points, const Anchors& anchors, const Profile& base,
                      KernelFit& result) {
  std::map<std::string, std::set<std::size_t>> folds;
  for (const KernelPointOf* point : points) {
    folds[class_name(*point)].insert(point->fold);
  }
  const auto is_tested = [&](const KernelPointOf& point) {
    return folds.at(class_name(point)).size() > 1;
  };
  const auto stays = [&](const KernelPointOf& point) {
    const std::vector<costmodel::ResidualSet>& known = base.kernels.residuals.sets();
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const auto& set) {
      return share_formula(set.key, point.key);
    });
    const bool is_moved = std::any_of(points.begin(), points.end(), [&](const auto* other) {
      return is_tested(*other) && share_formula(other->key, point.key);
    });
    return is_known && (!is_moved || anchors.hold(point.key));
  };
  std::map<std::string, std::int64_t> too_few;
  std::set<std::string> staying;
  KernelPoints kept;
  for (const KernelPointOf* point : points) {
    const std::string name = class_name(*point);
    result.sampled.insert(name);
    too_few[name] += is_tested(*point) ? 0 : 1;
    if (!is_tested(*point) && stays(*point)) {
      staying.insert(name);
    } else {
      kept.push_back(point);
    }
  }
  for (const auto& [name, count] : too_few) {
    if (count > 0) {
      result.remarks.push_back(fmt::format("{} of {}: too few to test{}", counted(count, "sample"),
                                           name,
                                           staying.contains(name) ? ", as in " + base.name : ""));
    }
  }
  return kept;
}

void tell_sections(const KernelPoints& tested, const Anchors& anchors, const Profile& base,
                   KernelFit& result) {
  const auto tells = [&](bool attention) {
    return std::any_of(tested.begin(), tested.end(), [&](const auto* point) {
      return !anchors.hold(point->key) &&
             std::holds_alternative<costmodel::AttentionShape>(point->shape) == attention;
    });
  };
  result.sections = {"kernels"};
  if (tells(false) || result.profile.gemm != base.gemm) {
    result.sections.insert("gemm");
  }
  if (tells(true) || !(result.profile.attention == base.attention)) {
    result.sections.insert("attention");
  }
}

void test_in_folds(const topologies::Gpu& gpu, const KernelFitter& fitter,
                   const KernelPoints& points, const Anchors& anchors, KernelFit& result) {
  KernelErrors errors;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    const KernelPoints kept = select(points, [&](const auto& point) { return point.fold != fold; });
    const KernelPoints left = select(points, [&](const auto& point) { return point.fold == fold; });
    if (kept.empty() || left.empty()) {
      continue;
    }
    const Profile without = fitter.fit(kept, anchors);
    const DeviceModel burst(gpu, without);
    const DeviceModel sustained(gpu, without, Load::Sustained);
    const double slower = slower_when_sustained(without.kernels.residuals.sets());
    for (const KernelPointOf* point : left) {
      const double predicted =
          predicted_time(*point, burst, sustained) / (point->both_passes ? slower : 1.0);
      errors.add(*point, predicted);
      result.left_out.push_back({class_name(*point), point->seconds, predicted});
    }
  }
  errors.tell(result.profile);
}

}  // namespace

KernelFit fit_kernels(const topologies::Gpu& gpu, const Profile& base,
                      std::span<const Sample> samples, const std::string& source,
                      std::uint64_t seed) {
  KernelFit result;
  const KernelFitter fitter(gpu, base, source);
  const LoadOf load_of = power_limited(base) ? load_told_by(fitter, gpu, samples, seed) : LoadOf();
  const std::vector<KernelPointOf> points =
      kernel_points(samples, gpu, base, seed, result.remarks, load_of);
  const Anchors anchors(gpu, base, all_of(points));
  const KernelPoints tested = testable(all_of(points), anchors, base, result);
  result.profile = base;
  if (!tested.empty()) {
    result.profile = fitter.fit(tested, anchors, &result.remarks);
    keep_unmeasured(base, tested, anchors, result);
    for (const std::string& line : anchors.remarks(tested)) {
      result.remarks.push_back(line);
    }
    tell_sections(tested, anchors, base, result);
    test_in_folds(gpu, fitter, tested, anchors, result);
  }
  fit_memory(gpu, samples, result);
  fit_casts(gpu, samples, seed, result);
  fit_fp8_attention(samples, seed, result);
  return result;
}

void transfer_kernels(const Profile& from, Profile& to) {
  to.gemm = from.gemm;
  to.attention = from.attention;
  auto own = std::move(to.kernels.accuracy);
  to.kernels = from.kernels;
  // Of the kernels that are taken over nothing was measured on this GPU.
  std::erase_if(own, [](const auto& row) { return !row.kernel.starts_with(kCastClass); });
  to.kernels.accuracy = std::move(own);
  if (to.kernels.accuracy.empty() && from.casts[0].cache_fraction > 0) {
    to.casts = from.casts;
    set_source(to, "casts", fmt::format("transferred from {}", from.name));
  }
  to.spread.gemm = rounded(from.spread.gemm * costmodel::kSpreadWidening, 1e4);
  to.spread.attention = rounded(from.spread.attention * costmodel::kSpreadWidening, 1e4);
  const std::string text = fmt::format("transferred from {}", from.name);
  for (const auto& section : {"gemm", "attention", "kernels"}) {
    const auto found = std::find_if(from.sources.begin(), from.sources.end(),
                                    [&](const auto& source) { return source.section == section; });
    if (found != from.sources.end()) {
      set_source(to, section, fmt::format("{}: {}", text, found->text));
    }
  }
}

}  // namespace orrery::calibrate
