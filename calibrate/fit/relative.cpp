// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/relative.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/memory.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::Profile;

KernelPoints fitted_points(const RelativeSection& section, const std::vector<KernelPointOf>& all,
                           KernelFit& fit) {
  KernelPoints points;
  for (const KernelPointOf& point : all) {
    if (section.is_fitted(point)) {
      points.push_back(&point);
    }
  }
  if (points.size() < all.size()) {
    fit.remarks.push_back(fmt::format(
        "{} left out: {} in bursts are fitted alone",
        counted(static_cast<std::int64_t>(all.size() - points.size()), "sample"), section.fitted));
  }
  return points;
}

void fit_formula(const RelativeSection& section, const topologies::Gpu& gpu,
                 std::span<const Sample> samples, const std::string& source, std::uint64_t seed,
                 KernelFit& fit) {
  const Profile base = fit.profile;
  const std::vector<KernelPointOf> all = kernel_points(samples, gpu, base, seed, fit.remarks);
  KernelPoints points = fitted_points(section, all, fit);
  const KernelFitter fitter(gpu, base, source, points);
  const Profile own = (fitter.*section.fit)(points, &fit.remarks);
  points = select(points, [&](const auto& point) { return section.is_moved(point, base, own); });
  if (points.empty()) {
    return;
  }
  std::set<std::string> names;
  for (const KernelPointOf* point : points) {
    names.insert(class_name(*point));
  }
  fit.sampled.insert(names.begin(), names.end());
  section.take(own, fit.profile);
  std::erase_if(fit.profile.kernels.accuracy,
                [&](const auto& row) { return names.contains(row.kernel); });
  const auto fit_to = [&](const KernelPoints& kept) -> Predict {
    return [model = DeviceModel(gpu, (fitter.*section.fit)(kept, nullptr))](const auto& point) {
      return predicted_time(point, model, model);
    };
  };
  test_in_folds(points, fit_to, fit);
  fit.profile.spread = base.spread;  // nothing is known of training's and of hot kernels here
}

void tell_source(const RelativeSection& section, const Profile& base, const std::string& source,
                 Profile& profile) {
  const auto known = std::find_if(base.sources.begin(), base.sources.end(),
                                  [&](const auto& of) { return of.section == section.name; });
  if (known != base.sources.end() && known->text.find(source) == std::string::npos) {
    set_source(profile, std::string(section.name),
               fmt::format("{}; {} {}", source, section.kept, known->text));
  }
}

}  // namespace

void fit_relative(const RelativeSection& section, const topologies::Gpu& gpu,
                  std::span<const Sample> samples, const std::string& source, std::uint64_t seed,
                  KernelFit& fit) {
  const Profile base = fit.profile;
  fit_formula(section, gpu, samples, source, seed, fit);
  if (section.fit_rest != nullptr) {
    section.fit_rest(samples, seed, fit);
  }
  if (section.is_own(base, fit.profile)) {
    tell_source(section, base, source, fit.profile);
  }
}

}  // namespace orrery::calibrate
