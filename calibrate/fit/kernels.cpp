// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/fit/anchors.hpp"
#include "calibrate/fit/casts.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/fp8_attention.hpp"
#include "calibrate/fit/host.hpp"
#include "calibrate/fit/kernel_fitter.hpp"
#include "calibrate/fit/kernel_points.hpp"
#include "calibrate/fit/memory.hpp"
#include "calibrate/fit/released_anchors.hpp"
#include "calibrate/fit/unmeasured.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {

namespace {

using costmodel::DeviceModel;
using costmodel::GemmOfDType;
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
LoadOf load_told_by(const topologies::Gpu& gpu, const Profile& base,
                    std::span<const Sample> samples, const std::string& source,
                    std::uint64_t seed) {
  std::vector<std::string> remarks;
  std::vector<KernelPointOf> points = kernel_points(samples, gpu, base, seed, remarks);
  std::erase_if(points, [](const KernelPointOf& point) { return point.of_training; });
  const KernelPoints all = all_of(points);
  const Profile profile =
      points.empty() ? base : KernelFitter(gpu, base, source, all).fit(all, {gpu, base, all});
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

// Left-out points are of the shapes that were measured. A formula that was not fitted to them, or a
// table moved by a few, is no better known elsewhere than before.
void keep_wider_spreads(const costmodel::Spreads& before, const ToldFormulas& told,
                        const Anchors& anchors, costmodel::Spreads& spreads) {
  const auto products_fitted = [&](DType dtype) {
    return told.product(dtype) && !anchors.hold({.dtype = dtype});
  };
  if (!products_fitted(DType::Bf16) && !products_fitted(DType::Fp16)) {
    spreads.gemm = std::max(spreads.gemm, before.gemm);
    spreads.grouped_gemm = std::max(spreads.grouped_gemm, before.grouped_gemm);
  }
  if (!told.attention() || anchors.hold({.kind = costmodel::KernelKind::AttentionForward})) {
    spreads.attention = std::max(spreads.attention, before.attention);
  }
}

}  // namespace

KernelFit fit_kernels(const topologies::Gpu& gpu, const Profile& base,
                      std::span<const Sample> samples, const std::string& source,
                      std::uint64_t seed) {
  KernelFit result;
  const LoadOf load_of =
      power_limited(base) ? load_told_by(gpu, base, samples, source, seed) : LoadOf();
  const std::vector<KernelPointOf> points =
      kernel_points(samples, gpu, base, seed, result.remarks, load_of);
  const KernelPoints all = all_of(points);
  const KernelFitter fitter(gpu, base, source, all);
  Anchors anchors(gpu, base, all);
  release_anchors(fitter, all, anchors, result.remarks);
  const KernelPoints tested = testable(all, anchors, base, result);
  result.profile = base;
  if (!tested.empty()) {
    result.profile = fitter.fit(tested, anchors, &result.remarks);
    keep_unmeasured(base, tested, anchors, result);
    for (const std::string& line : anchors.remarks(tested)) {
      result.remarks.push_back(line);
    }
    tell_sections(tested, anchors, base, result);
    test_in_folds(tested, fits_of(fitter, anchors), result);
    keep_wider_spreads(base.spread, fitter.told(), anchors, result.profile.spread);
  }
  fit_memory(gpu, samples, result);
  fit_casts(gpu, samples, seed, result);
  fit_launch(samples, result);
  fit_host_copies(gpu, samples, result);
  fit_fp8_attention(samples, seed, result);
  return result;
}

namespace {

std::string forward_class(DType dtype) {
  return class_name(costmodel::ResidualKey{costmodel::KernelKind::Gemm, dtype,
                                           costmodel::GemmLayout::TN, Load::Burst});
}

// Formats whose products were timed on the GPU itself, under the sets of `from`
// (relative_gemm.hpp), and those that follow them.
std::vector<DType> own_formats(const Profile& from, const Profile& to) {
  const costmodel::KernelResiduals& sets = to.kernels.residuals;
  const bool by_name = !sets.name().empty() && sets.name() == from.kernels.residuals.name();
  if (sets.empty() || !(by_name || sets == from.kernels.residuals)) {
    return {};
  }
  const auto is_timed = [&](DType dtype) {
    const auto& rows = to.kernels.accuracy;
    return std::any_of(rows.begin(), rows.end(),
                       [&](const auto& row) { return row.kernel == forward_class(dtype); });
  };
  std::vector<DType> own;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!is_timed(dtype)) {
      continue;
    }
    own.push_back(dtype);
    for (const DType other : followers(dtype, from.gemm)) {
      if (!is_timed(other)) {
        own.push_back(other);
      }
    }
  }
  return own;
}

// What layouts and experts lose stays the relative's.
void take_formula(const costmodel::GemmParameters& from, costmodel::GemmParameters& to) {
  const double grouped = to.grouped_fraction;
  const double accumulating = to.accumulate_fraction;
  to = from;
  to.grouped_fraction = grouped;
  to.accumulate_fraction = accumulating;
}

}  // namespace

void transfer_kernels(const Profile& from, Profile& to) {
  const std::vector<DType> own = own_formats(from, to);
  const GemmOfDType products = to.gemm;
  to.gemm = from.gemm;
  for (const DType dtype : own) {
    take_formula(products[static_cast<std::size_t>(dtype)],
                 to.gemm[static_cast<std::size_t>(dtype)]);
  }
  to.attention = from.attention;
  auto rows = std::move(to.kernels.accuracy);
  to.kernels = from.kernels;
  // Of the kernels that are taken over nothing was measured on this GPU.
  std::erase_if(rows, [&](const auto& row) {
    return !row.kernel.starts_with(kCastClass) &&
           std::none_of(own.begin(), own.end(),
                        [&](DType dtype) { return row.kernel == forward_class(dtype); });
  });
  const bool casts_are_own = std::any_of(
      rows.begin(), rows.end(), [](const auto& row) { return row.kernel.starts_with(kCastClass); });
  to.kernels.accuracy = std::move(rows);
  if (!casts_are_own && from.casts[0].cache_fraction > 0) {
    to.casts = from.casts;
    set_source(to, "casts", fmt::format("transferred from {}", from.name));
  }
  to.spread.gemm = rounded(from.spread.gemm * costmodel::kSpreadWidening, 1e4);
  to.spread.grouped_gemm = rounded(from.spread.grouped_gemm * costmodel::kSpreadWidening, 1e4);
  to.spread.attention = rounded(from.spread.attention * costmodel::kSpreadWidening, 1e4);
  const std::string text = fmt::format("transferred from {}", from.name);
  for (const auto& section : {"gemm", "attention", "kernels"}) {
    const auto found = std::find_if(from.sources.begin(), from.sources.end(),
                                    [&](const auto& source) { return source.section == section; });
    const bool is_own = std::string_view(section) == "gemm" && !own.empty();
    if (found != from.sources.end() && !is_own) {
      set_source(to, section, fmt::format("{}: {}", text, found->text));
    }
  }
}

}  // namespace orrery::calibrate
