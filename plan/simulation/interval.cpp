// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/interval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/crew.hpp"
#include "base/error.hpp"
#include "base/index_loop.hpp"
#include "base/parallel.hpp"
#include "base/quantile.hpp"
#include "base/random.hpp"
#include "base/sim_time.hpp"

namespace orrery::plan {

namespace {

constexpr double kTail = 0.1;
constexpr int kFewestOfFormat = 20;  // the 90th percentile of fewer is one outlier

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
    case CostClass::GroupedGemm:
      return kSiteSpreadGemm;
    case CostClass::Attention:
      return kSiteSpreadAttention;
    default:
      return 0;
  }
}

// The largest spread that the left-out errors of products in a format imply; 0: none is known.
double spread_of_products(const costmodel::Profile& profile, DType dtype) {
  const std::string prefix = fmt::format("gemm {} ", to_text(dtype));
  double spread = 0;
  for (const costmodel::KernelAccuracy& row : profile.kernels.accuracy) {
    if (row.points >= kFewestOfFormat && row.kernel.starts_with(prefix)) {
      spread = std::max(spread, costmodel::spread_of(costmodel::deviation_of_p90(row.p90)));
    }
  }
  return spread;
}

bool knows_products(const costmodel::Profile& profile) {
  const auto& rows = profile.kernels.accuracy;
  return std::any_of(rows.begin(), rows.end(),
                     [](const auto& row) { return row.kernel.starts_with("gemm "); });
}

// The profile's spread is that of products of 16 bits.
double spread_of_gemm(const costmodel::Profile& profile, DType precision) {
  if (precision == DType::Nvfp4 && costmodel::nvfp4_as_fp8(profile.gemm)) {
    return spread_of_gemm(profile, DType::Fp8) * costmodel::kSpreadWidening;
  }
  if (has_16_bits(precision)) {
    return profile.spread.gemm;
  }
  const double own = spread_of_products(profile, precision);
  const bool unknown = own == 0 && knows_products(profile);
  return std::max(own, profile.spread.gemm * (unknown ? costmodel::kSpreadWidening : 1));
}

std::array<double, kNumCostClasses> class_spreads(const costmodel::Spreads& spreads) {
  return {spreads.gemm,
          spreads.attention,
          spreads.memory_bound,
          spreads.intra_node_collective,
          spreads.inter_node_collective,
          std::max(spreads.gemm, spreads.grouped_gemm),
          spreads.all_to_all > 0 ? spreads.all_to_all : spreads.inter_node_collective};
}

void draw_class(CostClass kind, const costmodel::Spreads& spreads, Random& random,
                std::vector<CostFactors>& factors) {
  const auto index = static_cast<std::size_t>(kind);
  const double spread = class_spreads(spreads)[index];
  const double share = shared_variance(kind);
  const double shared = std::hypot(spread * std::sqrt(share), site_spread(kind));
  const std::vector<double> normals = balanced_normals(static_cast<int>(factors.size()), random);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i].shared[index] = normals[i] * shared;
    factors[i].distinct[index] = spread * std::sqrt(1.0 - share);
  }
}

// Experts' kernels are products and share what all of these are off by.
void draw_experts(const costmodel::Spreads& spreads, Random& random,
                  std::vector<CostFactors>& factors) {
  constexpr auto kGemm = static_cast<std::size_t>(CostClass::Gemm);
  constexpr auto kExperts = static_cast<std::size_t>(CostClass::GroupedGemm);
  const double spread = class_spreads(spreads)[kExperts];
  const double share = shared_variance(CostClass::Gemm);
  const double own = std::sqrt(share * (spread * spread - spreads.gemm * spreads.gemm));
  const std::vector<double> normals = balanced_normals(static_cast<int>(factors.size()), random);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i].shared[kExperts] = factors[i].shared[kGemm] + normals[i] * own;
    factors[i].distinct[kExperts] = spread * std::sqrt(1.0 - share);
  }
}

}  // namespace

costmodel::Spreads spreads_of(const costmodel::Profile& profile, DType precision) {
  costmodel::Spreads spreads = profile.spread;
  spreads.gemm = spread_of_gemm(profile, precision);
  spreads.grouped_gemm = spreads.grouped_gemm > 0 ? std::max(spreads.gemm, spreads.grouped_gemm)
                                                  : spreads.gemm * costmodel::kSpreadWidening;
  return spreads;
}

double deviation_of(const costmodel::Spreads& spreads, CostClass kind) {
  return std::hypot(class_spreads(spreads)[static_cast<std::size_t>(kind)], site_spread(kind));
}

TimeInterval interval_of(const costmodel::Spreads& spreads, CostClass kind, Seconds nominal) {
  const double factor = std::exp(costmodel::kIn80Percent * deviation_of(spreads, kind));
  return {nominal / factor, nominal * factor};
}

std::vector<CostFactors> draw_factors(const costmodel::Spreads& spreads, int draws,
                                      std::uint64_t seed) {
  ORRERY_CHECK(draws >= 2 && draws % 2 == 0, "an even number of draws");
  Random random(seed);
  std::vector<CostFactors> factors(static_cast<std::size_t>(draws));
  for (const CostClass kind : {CostClass::Gemm, CostClass::Attention, CostClass::MemoryBound,
                               CostClass::IntraNode, CostClass::InterNode}) {
    draw_class(kind, spreads, random, factors);
  }
  const std::vector<double> hosts = balanced_normals(draws, random);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i].host = hosts[i] * kHostSpread;
    factors[i].seed = random.next();
  }
  draw_experts(spreads, random, factors);
  draw_class(CostClass::AllToAll, spreads, random, factors);
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

std::vector<Seconds> sampled_times(std::span<const Draw> draws, const Timer& timer,
                                   const std::function<bool()>& stop) {
  std::vector<std::optional<Seconds>> known(draws.size());
  IndexLoop loop(draws.size());
  const int threads = std::min(thread_count(timer.jobs), static_cast<int>(draws.size()));
  Crew(std::max(1, threads)).run([&](int) {
    const TimeUnder evaluate = timer.own();
    loop.work([&](std::size_t index) {
      if (stop && stop()) {
        loop.end();
        return;
      }
      try {
        known[index] = evaluate(draws[index].factors) * draws[index].slowdown;
      } catch (const BeyondSimulatedTime&) {
        loop.end();  // the plan itself is just short enough
      }
    });
  });
  loop.rethrow();
  std::vector<Seconds> times;
  for (std::size_t index = 0; index < known.size() && known[index]; ++index) {
    times.push_back(*known[index]);
  }
  return times;
}

std::optional<TimeInterval> sampled_interval(const costmodel::Spreads& spreads, Seconds nominal,
                                             int draws, const Timer& timer,
                                             const std::function<bool()>& stop) {
  const std::vector<Draw> errors = draw_errors(spreads, draws, kIntervalSeed);
  std::vector<double> times;
  for (const Seconds time : sampled_times(errors, timer, stop)) {
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
