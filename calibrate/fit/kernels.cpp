// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "calibrate/fit/both_passes.hpp"
#include "calibrate/fit/casts.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/kernel_errors.hpp"
#include "calibrate/fit/kernel_points.hpp"
#include "calibrate/fit/memory.hpp"
#include "calibrate/fit/robust_fit.hpp"
#include "calibrate/fit/surface_points.hpp"
#include "calibrate/fit/unmeasured.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {

namespace {

using costmodel::DeviceModel;
using costmodel::GemmLayout;
using costmodel::GemmParameters;
using costmodel::KernelKind;
using costmodel::Load;
using costmodel::Profile;
using costmodel::ResidualKey;
using costmodel::ResidualSet;

constexpr std::size_t kMinPoints = 24;

using Points = std::vector<const KernelPointOf*>;

Points select(const Points& points, const std::function<bool(const KernelPointOf&)>& wanted) {
  Points selected;
  std::copy_if(points.begin(), points.end(), std::back_inserter(selected),
               [&](const KernelPointOf* point) { return wanted(*point); });
  return selected;
}

std::vector<double> log_errors(const topologies::Gpu& gpu, const Profile& profile,
                               const Points& points) {
  const DeviceModel burst(gpu, profile);
  const DeviceModel sustained(gpu, profile, Load::Sustained);
  std::vector<double> errors;
  errors.reserve(points.size());
  for (const KernelPointOf* point : points) {
    errors.push_back(std::log(predicted_time(*point, burst, sustained) / point->seconds));
  }
  return errors;
}

class Fitter {
 public:
  Fitter(const topologies::Gpu& gpu, const Profile& base, const std::string& source)
      : gpu_(gpu), base_(base), source_(source) {}

  const Profile& base() const { return base_; }

  Profile fit(const Points& stated) const {
    Profile profile = base_;
    profile.kernels = {};
    for (int i = 0; i < kNumDTypes; ++i) {
      fit_gemm(static_cast<DType>(i), stated, profile);
    }
    fit_attention(stated, profile);
    fit_backward(stated, profile);
    const Profile formula = profile;
    std::vector<ResidualSet> sets;
    add_sets(select(stated, [](const auto& point) { return !is_of_plans(point); }), profile, sets);
    // Figures are bursts: plans take them as much slower as sustained products are.
    const std::vector<KernelPointOf> apart =
        passes_apart(gpu_, formula, stated, slower_when_sustained(sets));
    const Points points = each_pass(stated, apart);
    add_sets(select(points, is_of_plans), profile, sets);
    return profile;
  }

 private:
  // Attention as training calls it, whose sets come last.
  static bool is_of_plans(const KernelPointOf& point) {
    return point.key.load == Load::Sustained &&
           std::holds_alternative<costmodel::AttentionShape>(point.shape);
  }

  void add_sets(const Points& points, Profile& profile, std::vector<ResidualSet>& sets) const {
    for (const ResidualKey& key : keys_in_order(points)) {
      const Points members = select(points, [&](const auto& point) { return point.key == key; });
      if (!knows_burst(sets, key)) {
        fit_experts(key, members, profile);
      }
      sets.push_back({key, {}});  // known, so that the model leaves out what it stands in for
      profile.kernels.residuals = residuals_of(sets);
      sets.back() = residuals(key, members, profile);
      profile.kernels.residuals = residuals_of(sets);
    }
  }

  costmodel::KernelResiduals residuals_of(const std::vector<ResidualSet>& sets) const {
    return {"", std::max(1, gpu_.sm_count), source_, sets};
  }

  static Points points_of(const Points& points, const ResidualKey& key) {
    return select(
        points, [&](const KernelPointOf& point) { return point.key == key && !point.both_passes; });
  }

  static Points forward_bursts(const Points& points, DType dtype) {
    return points_of(points, {KernelKind::Gemm, dtype, GemmLayout::TN, Load::Burst});
  }

  // One pass of attention, timed by itself, in the format that most points have.
  static Points attention_points(const Points& points, KernelKind pass, Load load) {
    Points most;
    for (int i = 0; i < kNumDTypes; ++i) {
      Points of = points_of(points, {pass, static_cast<DType>(i), GemmLayout::TN, load});
      most = of.size() > most.size() ? std::move(of) : most;
    }
    return most;
  }

  void fit_gemm(DType dtype, const Points& points, Profile& profile) const {
    const Points members = forward_bursts(points, dtype);
    if (members.size() < kMinPoints) {
      return;
    }
    const auto index = static_cast<std::size_t>(dtype);
    const bool casts = std::get<costmodel::GemmShape>(members.front()->shape).casts_activations;
    const auto apply = [&](const std::vector<double>& x, Profile& to) {
      GemmParameters& p = to.gemm[index];
      p.compute_fraction = x[0];
      p.memory_fraction = x[1];
      p.launch = Seconds(x[2] / 1e6);
      p.exponent = x[3];
      if (casts) {
        p.cast_fraction = x[4];
      }
    };
    std::vector<FitParameter> start = {{0.75, 0.05, 1}, {0.85, 0.05, 1}, {3, 0.1, 100}, {2, 1, 20}};
    if (casts) {
      start.push_back({0.7, 0.05, 4});
    }
    const std::vector<double> best = fitted(start, members, profile, apply);
    apply(rounded(best), profile);
    // The 16-bit formats run alike, and tf32 reaches the same share of its peak.
    for (const DType other : {DType::Bf16, DType::Fp16, DType::Tf32}) {
      const bool sixteen_bits = dtype == DType::Bf16 || dtype == DType::Fp16;
      if (sixteen_bits && other != dtype && forward_bursts(points, other).size() < kMinPoints) {
        GemmParameters& to = profile.gemm[static_cast<std::size_t>(other)];
        const double grouped = to.grouped_fraction;
        to = profile.gemm[index];
        to.grouped_fraction = grouped;
      }
    }
  }

  void fit_attention(const Points& points, Profile& profile) const {
    const Points members = attention_points(points, KernelKind::AttentionForward, Load::Burst);
    if (members.size() < kMinPoints) {
      return;
    }
    const auto apply = [](const std::vector<double>& x, Profile& to) {
      to.attention.forward_fraction = x[0];
      to.attention.head_dim_exponent = x[1];
      to.attention.row_overhead = x[2];
      to.attention.idle_waves = x[3];
      to.attention.launch = Seconds(x[4] / 1e6);
    };
    std::vector<FitParameter> start = {
        {0.55, 0.05, 1}, {0.3, 0.01, 1}, {150, 1, 5000}, {1, 0.01, 20}, {5, 0.1, 100}};
    const auto same_size = [&](const KernelPointOf* point) {
      return point->sizes[0] == members.front()->sizes[0];
    };
    if (std::all_of(members.begin(), members.end(), same_size)) {
      const double known = base_.attention.head_dim_exponent;  // one head size says nothing of it
      start[1] = {known, known, known};
    }
    apply(rounded(fitted(start, members, profile, apply)), profile);
  }

  template <class Apply>
  std::vector<double> fitted(const std::vector<FitParameter>& start, const Points& members,
                             const Profile& profile, const Apply& apply) const {
    return robust_fit(start, [&](const std::vector<double>& x) {
      Profile tried = profile;
      apply(x, tried);
      return log_errors(gpu_, tried, members);
    });
  }

  // Four digits: as written, and what the residuals were taken against.
  static std::vector<double> rounded(std::vector<double> values) {
    for (double& value : values) {
      value = std::stod(fmt::format("{:.4g}", value));
    }
    return values;
  }

  static std::vector<ResidualKey> keys_in_order(const Points& points) {
    std::vector<ResidualKey> keys;
    for (const KernelPointOf* point : points) {  // points are sorted by load, kind, dtype, layout
      if (keys.empty() || keys.back() != point->key) {
        keys.push_back(point->key);
      }
    }
    return keys;
  }

  // Sustained residuals are taken on top of bursts, with the rate that those were fitted with.
  static bool knows_burst(const std::vector<ResidualSet>& sets, ResidualKey key) {
    key.load = Load::Burst;
    return std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return set.key == key; });
  }

  // Residuals of sustained points stand on the rate of bursts where those give one.
  void fit_backward(const Points& points, Profile& profile) const {
    const KernelKind pass = KernelKind::AttentionBackward;
    const Points bursts = attention_points(points, pass, Load::Burst);
    fit_rate(bursts.size() < 2 ? attention_points(points, pass, Load::Sustained) : bursts,
             profile.attention.backward_rate_fraction, profile);
  }

  void fit_experts(const ResidualKey& key, const Points& members, Profile& profile) const {
    if (key.kind != KernelKind::GroupedGemm || key.layout != GemmLayout::TN) {
      return;
    }
    double& fraction = profile.gemm[static_cast<std::size_t>(key.dtype)].grouped_fraction;
    if (fit_rate(members, fraction, profile) && key.dtype == DType::Bf16) {
      profile.gemm[static_cast<std::size_t>(DType::Fp16)].grouped_fraction = fraction;
    }
  }

  // One number where there are too few points for a formula: `fraction`, a field of `profile`, is
  // what the kernels reach of the rate of others. False, and as it was, of fewer than two points.
  bool fit_rate(const Points& members, double& fraction, const Profile& profile) const {
    if (members.size() < 2) {
      return false;
    }
    fraction = 0.86;
    std::vector<double> errors = log_errors(gpu_, profile, members);
    std::sort(errors.begin(), errors.end());
    const double slower = quantile(errors, 0.5);
    fraction = rounded({std::clamp(fraction * std::exp(slower), 0.05, 1.0)})[0];
    return true;
  }

  ResidualSet residuals(const ResidualKey& key, const Points& members,
                        const Profile& profile) const {
    const DeviceModel burst(gpu_, profile);
    const DeviceModel sustained(gpu_, profile, Load::Sustained);
    const DeviceModel fed = fed_model(gpu_, profile);
    const double limit = std::log(costmodel::KernelResiduals::kMaxFactor);
    std::vector<SurfacePoint> points;
    for (const KernelPointOf* point : members) {
      const double bare = predicted_time(*point, burst, sustained, false);
      const double cast = predicted_time(*point, burst, sustained) - bare;
      // What the casts took is not known apart: the GEMM is at least a quarter of it all.
      const double kernel = std::max(point->seconds - cast, 0.25 * point->seconds);
      // What is over before the power limit acts does not say how far it can be exceeded.
      const double fastest = point->short_loop ? predicted_time(*point, burst, fed, false) : 0;
      const double factor = std::clamp(std::log(std::max(kernel, fastest) / bare), -limit, limit);
      const int permille = static_cast<int>(std::lround(1000 * factor));
      points.push_back({{point->sizes, permille}, bare, cast, point->seconds});
    }
    return {key, consistent_points(key, points, std::max(1, gpu_.sm_count))};
  }

  const topologies::Gpu& gpu_;
  const Profile& base_;
  const std::string& source_;
};

Points all_of(const std::vector<KernelPointOf>& points) {
  Points all;
  for (const KernelPointOf& point : points) {
    all.push_back(&point);
  }
  return all;
}

// Short loops of training tables ran in bursts or at a clock that was still low: the bursts of
// other tables tell which.
LoadOf load_told_by(const Fitter& fitter, const topologies::Gpu& gpu,
                    std::span<const Sample> samples, std::uint64_t seed) {
  std::vector<std::string> remarks;
  std::vector<KernelPointOf> points = kernel_points(samples, gpu, fitter.base(), seed, remarks);
  std::erase_if(points, [](const KernelPointOf& point) { return point.of_training; });
  const Profile profile = points.empty() ? fitter.base() : fitter.fit(all_of(points));
  return [burst = DeviceModel(gpu, profile),
          hot = DeviceModel(gpu, profile, Load::Sustained)](const KernelPointOf& point) {
    const auto& shape = std::get<costmodel::GemmShape>(point.shape);
    return costmodel::load_of_timing(Seconds(point.seconds), costmodel::kSimumaxGemmLaunches,
                                     burst.gemm(shape), hot.gemm(shape));
  };
}

}  // namespace

KernelFit fit_kernels(const topologies::Gpu& gpu, const Profile& base,
                      std::span<const Sample> samples, const std::string& source,
                      std::uint64_t seed) {
  KernelFit result;
  const Fitter fitter(gpu, base, source);
  const LoadOf load_of = power_limited(base) ? load_told_by(fitter, gpu, samples, seed) : LoadOf();
  const std::vector<KernelPointOf> points =
      kernel_points(samples, gpu, base, seed, result.remarks, load_of);
  const Points all = all_of(points);
  result.profile = all.empty() ? base : fitter.fit(all);
  if (!all.empty()) {
    keep_unmeasured(base, points, result);
  }
  KernelErrors errors;
  for (std::size_t fold = 0; fold < kFolds && !all.empty(); ++fold) {
    const Points kept = select(all, [&](const auto& point) { return point.fold != fold; });
    const Points left = select(all, [&](const auto& point) { return point.fold == fold; });
    if (kept.empty() || left.empty()) {
      continue;
    }
    const Profile without = fitter.fit(kept);
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
  fit_memory(gpu, samples, result);
  fit_casts(gpu, samples, seed, result);
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
