// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/casts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/words.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/kernel_errors.hpp"
#include "calibrate/fit/memory.hpp"
#include "calibrate/fit/robust_fit.hpp"
#include "calibrate/statistics.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CastParameters;
using costmodel::CastScale;
using costmodel::DeviceModel;
using costmodel::Profile;

constexpr std::size_t kMinCastPoints = 24;
constexpr std::array<std::string_view, costmodel::kNumCastScales> kOperations = {"cast-fp8",
                                                                                 "amax-cast-fp8"};
constexpr std::array<std::string_view, costmodel::kNumCastScales> kScales = {"known scale",
                                                                             "found scale"};

struct Cast {
  double elements = 0;
  double seconds = 0;
  std::size_t fold = 0;
};
using Casts = std::vector<Cast>;

Casts casts_of(std::string_view operation, std::span<const Sample> samples, std::uint64_t seed) {
  Casts casts;
  for (const Sample& sample : samples) {
    const auto* memory = std::get_if<MemorySample>(&sample.shape);
    if (memory != nullptr && is_warm_cast(sample) && memory->operation == operation &&
        !sample.flags.throttled && !sample.flags.above_ceiling) {
      const auto width = static_cast<std::uint64_t>(memory->columns);
      casts.push_back({static_cast<double>(memory->bytes_written), sample.time.median.value(),
                       mix64(mix64(seed) ^ width) % kFolds});
    }
  }
  return casts;
}

CastParameters parameters_of(const std::vector<double>& x) {
  return {.launch = Seconds(rounded(x[0] * 1e6, 1e3) / 1e6),
          .cache_fraction = rounded(x[1], 1e3),
          .memory_fraction = rounded(x[2], 1e3),
          .cached = rounded(x[3], 1e3),
          .missed = rounded(x[3] * x[4], 1e3)};
}

double time_of(const topologies::Gpu& gpu, Profile& profile, CastScale scale,
               const CastParameters& parameters, double elements) {
  profile.casts[static_cast<std::size_t>(scale)] = parameters;
  return DeviceModel(gpu, profile).cast(elements, scale).value();
}

CastParameters fitted(const topologies::Gpu& gpu, const Casts& casts, CastScale scale) {
  Profile scratch;
  const auto exact = [](const std::vector<double>& x) {
    return CastParameters{Seconds(x[0]), x[1], x[2], x[3], x[3] * x[4]};
  };
  const double least =
      std::min_element(casts.begin(), casts.end(), [](const Cast& a, const Cast& b) {
        return a.seconds < b.seconds;
      })->seconds;
  const std::vector<FitParameter> starts = {{least, least / 10, least * 3},
                                            {1.2, 0.1, 20},
                                            {0.8, 0.05, 1},
                                            {0.8, 0.1, 4},
                                            {1.3, 1.05, 10}};
  return parameters_of(robust_fit(starts, [&](const std::vector<double>& x) {
    scratch.casts[static_cast<std::size_t>(scale)] = exact(x);
    const DeviceModel model(gpu, scratch);
    std::vector<double> errors;
    errors.reserve(casts.size());
    for (const Cast& cast : casts) {
      errors.push_back(std::log(model.cast(cast.elements, scale).value() / cast.seconds));
    }
    return errors;
  }));
}

void cross_validate(const topologies::Gpu& gpu, const Casts& casts, CastScale scale,
                    KernelFit& fit) {
  const std::string name =
      fmt::format("{} {}", kCastClass, kScales[static_cast<std::size_t>(scale)]);
  Profile scratch;
  std::vector<double> errors;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    Casts kept;
    Casts left;
    for (const Cast& cast : casts) {
      (cast.fold == fold ? left : kept).push_back(cast);
    }
    if (kept.empty()) {
      continue;
    }
    const CastParameters without = fitted(gpu, kept, scale);
    for (const Cast& cast : left) {
      const double time = time_of(gpu, scratch, scale, without, cast.elements);
      errors.push_back(std::abs(time / cast.seconds - 1));
      fit.left_out.push_back({name, cast.seconds, time});
    }
  }
  const auto [least, most] =
      std::minmax_element(casts.begin(), casts.end(),
                          [](const Cast& a, const Cast& b) { return a.elements < b.elements; });
  fit.profile.kernels.accuracy.push_back(
      {.kernel = name,
       .points = static_cast<int>(errors.size()),
       .median = rounded_quantile(errors, 0.5),
       .p90 = rounded_quantile(errors, 0.9),
       .measured = fmt::format("{:.0f} to {:.0f} elements", least->elements, most->elements)});
}

}  // namespace

bool is_warm_cast(const Sample& sample) {
  const auto* memory = std::get_if<MemorySample>(&sample.shape);
  return memory != nullptr && memory->kernel == costmodel::MemoryKernel::Cast &&
         !sample.flags.cold_l2 && is_among(memory->operation, kOperations);
}

void fit_casts(const topologies::Gpu& gpu, std::span<const Sample> samples, std::uint64_t seed,
               KernelFit& fit) {
  std::array<Casts, costmodel::kNumCastScales> casts;
  for (std::size_t i = 0; i < casts.size(); ++i) {
    casts[i] = casts_of(kOperations[i], samples, seed);
    if (casts[i].size() < kMinCastPoints) {
      return;  // both or none: a section holds both
    }
  }
  std::set<std::string> implementations;
  for (const Sample& sample : samples) {
    if (is_warm_cast(sample)) {
      implementations.insert(sample.implementation);
    }
  }
  std::erase_if(fit.profile.kernels.accuracy,
                [](const auto& row) { return row.kernel.starts_with(kCastClass); });
  for (std::size_t i = 0; i < casts.size(); ++i) {
    const auto scale = static_cast<CastScale>(i);
    cross_validate(gpu, casts[i], scale, fit);
    fit.profile.casts[i] = fitted(gpu, casts[i], scale);
  }
  set_source(fit.profile, "casts",
             fmt::format("{} casts to fp8 timed in graphs on warm operands ({})",
                         casts[0].size() + casts[1].size(), fmt::join(implementations, ", ")));
}

}  // namespace orrery::calibrate
