// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/kernel_fitter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quantile.hpp"
#include "calibrate/fit/both_passes.hpp"
#include "calibrate/fit/robust_fit.hpp"
#include "calibrate/fit/surface_points.hpp"

namespace orrery::calibrate {

namespace {

using costmodel::DeviceModel;
using costmodel::GemmParameters;
using costmodel::KernelKind;
using costmodel::Load;
using costmodel::Profile;
using costmodel::ResidualKey;
using costmodel::ResidualSet;

// What a fold leaves of the points that told a formula must still be twice its parameters.
constexpr std::size_t kFewestInAFold = 10;

std::vector<double> log_errors(const topologies::Gpu& gpu, const Profile& profile,
                               const KernelPoints& points) {
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
  Fitter(const topologies::Gpu& gpu, const Profile& base, const std::string& source,
         const ToldFormulas& told)
      : gpu_(gpu), base_(base), source_(source), told_(told) {}

  // `remarks`, if any, take what is odd about the parameters.
  Profile fit(const KernelPoints& stated, const Anchors& anchors,
              std::vector<std::string>* remarks = nullptr) const {
    Profile profile = base_;
    profile.kernels = {};
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (!anchors.hold({KernelKind::Gemm, dtype, costmodel::GemmLayout::TN, Load::Burst})) {
        fit_gemm(dtype, stated, profile, remarks);
      }
    }
    if (!anchors.hold(
            {KernelKind::AttentionForward, DType::Bf16, costmodel::GemmLayout::TN, Load::Burst})) {
      fit_attention(stated, profile, remarks);
    }
    fit_backward(stated, profile);
    const Profile formula = profile;
    std::vector<ResidualSet> sets = anchors.sets(stated);
    if (!sets.empty()) {
      profile.kernels.residuals = residuals_of(sets);
    }
    add_sets(select(stated, [](const auto& point) { return !is_of_plans(point); }), profile, sets);
    // Figures are bursts: plans take them as much slower as sustained products are.
    const std::vector<KernelPointOf> apart =
        passes_apart(gpu_, formula, stated, slower_when_sustained(sets));
    const KernelPoints points = each_pass(stated, apart);
    add_sets(select(points, is_of_plans), profile, sets);
    return profile;
  }

  Profile fit_products(const KernelPoints& points, std::vector<std::string>* remarks) const {
    Profile profile = base_;
    for (int i = 0; i < kNumDTypes; ++i) {
      fit_gemm(static_cast<DType>(i), points, profile, remarks);
    }
    return profile;
  }

  Profile fit_forward_attention(const KernelPoints& points,
                                std::vector<std::string>* remarks) const {
    Profile profile = base_;
    fit_attention(points, profile, remarks);
    return profile;
  }

 private:
  // Attention as training calls it, whose sets come last.
  static bool is_of_plans(const KernelPointOf& point) {
    return point.key.load == Load::Sustained &&
           std::holds_alternative<costmodel::AttentionShape>(point.shape);
  }

  void add_sets(const KernelPoints& points, Profile& profile,
                std::vector<ResidualSet>& sets) const {
    for (const ResidualKey& key : keys_in_order(points)) {
      if (std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return set.key == key; })) {
        continue;  // an anchor holds them
      }
      const KernelPoints members =
          select(points, [&](const auto& point) { return point.key == key; });
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

  void fit_gemm(DType dtype, const KernelPoints& points, Profile& profile,
                std::vector<std::string>* remarks) const {
    const KernelPoints members = forward_bursts(points, dtype);
    if (!told_.product(dtype) || members.size() < kFewestInAFold) {
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
    std::vector<NamedParameter> start = {{"compute_fraction", {0.75, 0.05, 1}},
                                         {"memory_fraction", {0.85, 0.05, 1}},
                                         {"launch", {3, 0.1, 100}},
                                         {"exponent", {2, 1, 20}}};
    if (casts) {
      start.push_back({"cast_fraction", {0.7, 0.05, 4}});
    }
    apply(fitted(start, members, profile, apply, remarks), profile);
    for (const DType other : followers(dtype, base_.gemm)) {
      if (!told_.product(other)) {
        GemmParameters& to = profile.gemm[static_cast<std::size_t>(other)];
        const double grouped = to.grouped_fraction;
        to = profile.gemm[index];
        to.grouped_fraction = grouped;
      }
    }
  }

  void fit_attention(const KernelPoints& points, Profile& profile,
                     std::vector<std::string>* remarks) const {
    const KernelPoints members =
        attention_points(points, KernelKind::AttentionForward, Load::Burst);
    if (!told_.attention() || members.size() < kFewestInAFold) {
      return;
    }
    const auto apply = [](const std::vector<double>& x, Profile& to) {
      to.attention.forward_fraction = x[0];
      to.attention.head_dim_exponent = x[1];
      to.attention.row_overhead = x[2];
      to.attention.idle_waves = x[3];
      to.attention.launch = Seconds(x[4] / 1e6);
    };
    std::vector<NamedParameter> start = {{"forward_fraction", {0.55, 0.05, 1}},
                                         {"head_dim_exponent", {0.3, 0.01, 1}},
                                         {"row_overhead", {150, 1, 5000}},
                                         {"idle_waves", {1, 0.01, 20}},
                                         {"launch", {5, 0.1, 100}}};
    const auto same_size = [&](const KernelPointOf* point) {
      return point->sizes[0] == members.front()->sizes[0];
    };
    if (std::all_of(members.begin(), members.end(), same_size)) {
      const double known = base_.attention.head_dim_exponent;  // one head size says nothing of it
      start[1].bounds = {known, known, known};
    }
    apply(fitted(start, members, profile, apply, remarks), profile);
  }

  struct NamedParameter {
    const char* name;
    FitParameter bounds;
  };

  template <class Apply>
  std::vector<double> fitted(const std::vector<NamedParameter>& start, const KernelPoints& members,
                             const Profile& profile, const Apply& apply,
                             std::vector<std::string>* remarks) const {
    std::vector<FitParameter> bounds;
    for (const NamedParameter& parameter : start) {
      bounds.push_back(parameter.bounds);
    }
    const std::vector<double> best = rounded(robust_fit(bounds, [&](const std::vector<double>& x) {
      Profile tried = profile;
      apply(x, tried);
      return log_errors(gpu_, tried, members);
    }));
    for (std::size_t i = 0; remarks != nullptr && i < start.size(); ++i) {
      const auto& [value, low, high] = bounds[i];
      if (low < high && (best[i] <= low || best[i] >= high)) {
        remarks->push_back(fmt::format("{}: {} ends at its bound, {:g}: the samples do not tell it",
                                       class_name(*members.front()), start[i].name, best[i]));
      }
    }
    return best;
  }

  // Four digits: as written, and what the residuals were taken against.
  static std::vector<double> rounded(std::vector<double> values) {
    for (double& value : values) {
      value = std::stod(fmt::format("{:.4g}", value));
    }
    return values;
  }

  static std::vector<ResidualKey> keys_in_order(const KernelPoints& points) {
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
  void fit_backward(const KernelPoints& points, Profile& profile) const {
    const KernelKind pass = KernelKind::AttentionBackward;
    const KernelPoints bursts = attention_points(points, pass, Load::Burst);
    fit_rate(bursts.size() < 2 ? attention_points(points, pass, Load::Sustained) : bursts,
             profile.attention.backward_rate_fraction, profile);
  }

  void fit_experts(const ResidualKey& key, const KernelPoints& members, Profile& profile) const {
    if (key.kind != KernelKind::GroupedGemm || key.layout != costmodel::GemmLayout::TN) {
      return;
    }
    double& fraction = profile.gemm[static_cast<std::size_t>(key.dtype)].grouped_fraction;
    if (fit_rate(members, fraction, profile) && key.dtype == DType::Bf16) {
      // Experts in formats without a table lose as much beside plain products.
      for (const DType other : {DType::Fp16, DType::Tf32, DType::Fp8, DType::Nvfp4}) {
        profile.gemm[static_cast<std::size_t>(other)].grouped_fraction = fraction;
      }
    }
  }

  // One number where there are too few points for a formula: `fraction`, a field of `profile`, is
  // what the kernels reach of the rate of others. False, and as it was, of fewer than two points.
  bool fit_rate(const KernelPoints& members, double& fraction, const Profile& profile) const {
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

  ResidualSet residuals(const ResidualKey& key, const KernelPoints& members,
                        const Profile& profile) const {
    const DeviceModel burst(gpu_, profile);
    const DeviceModel sustained(gpu_, profile, Load::Sustained);
    const DeviceModel fed = fed_model(gpu_, profile);
    const double limit = std::log(costmodel::KernelResiduals::kMaxFactor);
    std::vector<SurfacePoint> points;
    for (const KernelPointOf* point : members) {
      const double bare = predicted_time(*point, burst, sustained, false);
      const double cast = predicted_time(*point, burst, sustained) - bare;
      const double kernel = kernel_seconds(*point, burst, sustained);
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
  const ToldFormulas& told_;
};

}  // namespace

std::vector<DType> followers(DType dtype, const costmodel::GemmOfDType& known) {
  switch (dtype) {
    case DType::Bf16:
      return {DType::Fp16, DType::Tf32};
    case DType::Fp16:
      return {DType::Bf16, DType::Tf32};
    case DType::Fp8:
      return nvfp4_as_fp8(known) ? std::vector{DType::Nvfp4} : std::vector<DType>();
    default:
      return {};
  }
}

Profile KernelFitter::fit(const KernelPoints& points, const Anchors& anchors,
                          std::vector<std::string>* remarks) const {
  return Fitter(gpu_, base_, source_, told_).fit(points, anchors, remarks);
}

Profile KernelFitter::fit_products(const KernelPoints& points,
                                   std::vector<std::string>* remarks) const {
  return Fitter(gpu_, base_, source_, told_).fit_products(points, remarks);
}

Profile KernelFitter::fit_forward_attention(const KernelPoints& points,
                                            std::vector<std::string>* remarks) const {
  return Fitter(gpu_, base_, source_, told_).fit_forward_attention(points, remarks);
}

}  // namespace orrery::calibrate
