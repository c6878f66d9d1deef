// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/interval.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/random.hpp"
#include "base/sim_time.hpp"

namespace orrery::plan {

namespace {

constexpr double kTail = 0.1;

// Standard normal draws whose mean is 0 and whose variance is 1 exactly, so that few of them do.
std::vector<double> balanced_normals(int draws, Random& random) {
  const auto half = static_cast<std::size_t>(draws / 2);
  std::vector<double> values(2 * half);
  double squares = 0;
  for (std::size_t i = 0; i < half; ++i) {
    values[i] = random.normal();
    squares += values[i] * values[i];
  }
  const double scale = std::sqrt(static_cast<double>(half) / squares);
  for (std::size_t i = 0; i < half; ++i) {
    values[i] *= scale;
    values[half + i] = -values[i];
  }
  return values;
}

double shared_variance(CostClass kind) {
  return kind == CostClass::Gemm ? kSharedVarianceGemm : kSharedVarianceOther;
}

double site_spread(CostClass kind) {
  switch (kind) {
    case CostClass::Gemm:
      return kSiteSpreadGemm;
    case CostClass::Attention:
      return kSiteSpreadAttention;
    default:
      return 0;
  }
}

// The standard deviation that the 90th percentile of its left-out errors implies; 0: none is known.
double spread_of_nvfp4(const std::vector<costmodel::KernelAccuracy>& rows) {
  const auto found = std::find_if(rows.begin(), rows.end(), [](const auto& row) {
    return row.kernel.starts_with("gemm nvfp4 ");
  });
  return found != rows.end() ? found->p90 / 1.645 : 0;
}

}  // namespace

costmodel::Spreads spreads_of(const costmodel::Profile& profile, DType precision) {
  costmodel::Spreads spreads = profile.spread;
  if (precision == DType::Nvfp4 && costmodel::nvfp4_as_fp8(profile.gemm)) {
    spreads.gemm *= costmodel::kSpreadWidening;
  } else if (precision == DType::Nvfp4) {
    spreads.gemm = std::max(spreads.gemm, spread_of_nvfp4(profile.kernels.accuracy));
  }
  return spreads;
}

std::vector<CostFactors> draw_factors(const costmodel::Spreads& spreads, int draws,
                                      std::uint64_t seed) {
  ORRERY_CHECK(draws >= 2 && draws % 2 == 0, "an even number of draws");
  const std::array<double, kNumCostClasses> spread = {
      spreads.gemm, spreads.attention, spreads.memory_bound, spreads.intra_node_collective,
      spreads.inter_node_collective};
  Random random(seed);
  std::vector<CostFactors> factors(static_cast<std::size_t>(draws));
  for (std::size_t kind = 0; kind < kNumCostClasses; ++kind) {
    const double share = shared_variance(static_cast<CostClass>(kind));
    const double shared =
        std::hypot(spread[kind] * std::sqrt(share), site_spread(static_cast<CostClass>(kind)));
    const std::vector<double> normals = balanced_normals(draws, random);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i].shared[kind] = normals[i] * shared;
      factors[i].distinct[kind] = spread[kind] * std::sqrt(1.0 - share);
    }
  }
  const std::vector<double> hosts = balanced_normals(draws, random);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i].host = hosts[i] * kHostSpread;
    factors[i].seed = random.next();
  }
  return factors;
}

std::vector<Draw> draw_errors(const costmodel::Spreads& spreads, int draws, std::uint64_t seed) {
  std::vector<Draw> errors;
  errors.reserve(static_cast<std::size_t>(draws));
  for (const CostFactors& factors : draw_factors(spreads, draws, seed)) {
    errors.push_back({factors, 1});
  }
  Random random(seed + 1);
  const std::vector<double> slowdowns = balanced_normals(draws, random);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    errors[i].slowdown += kRunSpread * std::abs(slowdowns[i]);
  }
  return errors;
}

std::vector<Seconds> sampled_times(std::span<const Draw> draws,
                                   const std::function<Seconds(const CostFactors&)>& evaluate,
                                   const std::function<bool()>& stop) {
  std::vector<Seconds> times;
  for (const Draw& draw : draws) {
    if (stop && stop()) {
      break;
    }
    try {
      times.push_back(evaluate(draw.factors) * draw.slowdown);
    } catch (const BeyondSimulatedTime&) {
      break;  // the plan itself is just short enough
    }
  }
  return times;
}

std::optional<TimeInterval> sampled_interval(
    const costmodel::Spreads& spreads, Seconds nominal, int draws,
    const std::function<Seconds(const CostFactors&)>& evaluate, const std::function<bool()>& stop) {
  const std::vector<Draw> errors = draw_errors(spreads, draws, kIntervalSeed);
  std::vector<double> times;
  for (const Seconds time : sampled_times(errors, evaluate, stop)) {
    times.push_back(time.value());
  }
  if (times.size() < errors.size()) {
    return std::nullopt;
  }
  std::sort(times.begin(), times.end());
  return TimeInterval{std::min(nominal, Seconds(quantile(times, kTail))),
                      std::max(nominal, Seconds(quantile(times, 1.0 - kTail)))};
}

}  // namespace orrery::plan
