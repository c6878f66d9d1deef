// SPDX-License-Identifier: Apache-2.0
// Intervals by sampling: the statistics of the draws, known answers where one class is uncertain,
// and that a draw changes nothing but the interval.
#include "plan/simulation/interval.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>

#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using costmodel::Spreads;

Spreads only_gemm(double spread) { return {spread, 0, 0, 0, 0}; }

TEST(FactorTest, IsNearlyTheExponentialAndSymmetric) {
  for (double x = -1.0; x <= 1.0; x += 0.125) {
    EXPECT_NEAR(factor_of(x) / std::exp(x), 1.0, 2e-3) << x;
    EXPECT_NEAR(factor_of(x) * factor_of(-x), 1.0, 1e-12) << x;
  }
  EXPECT_EQ(factor_of(50), factor_of(2));
}

TEST(CostFactorsTest, DistinctPartsDependOnTheOperation) {
  CostFactors factors;
  factors.distinct.fill(0.1);
  factors.seed = 3;
  const Seconds a = factors.scaled(CostClass::Gemm, Seconds(1e-3));
  EXPECT_EQ(a, factors.scaled(CostClass::Gemm, Seconds(1e-3)));
  EXPECT_NE(a / Seconds(1e-3), factors.scaled(CostClass::Gemm, Seconds(2e-3)) / Seconds(2e-3));
  EXPECT_NE(a, factors.scaled(CostClass::Attention, Seconds(1e-3)));
  const CostFactors none;
  EXPECT_EQ(none.scaled(CostClass::Gemm, Seconds(1e-3)), Seconds(1e-3));
  EXPECT_EQ(none.scaled_host(Seconds(1e-3)), Seconds(1e-3));
}

constexpr costmodel::Spreads kSpreads = {0.1, 0.2, 0.3, 0.4, 0.5, 0.25, 0.6};

TEST(DrawTest, SharedPartsHaveTheStatedVariance) {
  const auto draws = draw_factors(kSpreads, 256, 7);
  ASSERT_EQ(draws.size(), 256U);
  const double spreads[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.25, 0.6};
  const double sites[] = {kSiteSpreadGemm, kSiteSpreadAttention, 0, 0, 0, kSiteSpreadGemm, 0};
  for (std::size_t kind = 0; kind < kNumCostClasses; ++kind) {
    const bool is_experts = kind == static_cast<std::size_t>(CostClass::GroupedGemm);
    const double share = kind == 0 || is_experts ? kSharedVarianceGemm : kSharedVarianceOther;
    double sum = 0;
    double squares = 0;
    for (const CostFactors& draw : draws) {
      sum += draw.shared[kind];
      squares += draw.shared[kind] * draw.shared[kind];
      EXPECT_NEAR(draw.distinct[kind] * draw.distinct[kind],
                  spreads[kind] * spreads[kind] * (1 - share), 1e-12);
    }
    EXPECT_NEAR(sum, 0.0, 1e-9);
    // Experts share their products' part, which is drawn by itself.
    EXPECT_NEAR(squares / 256, spreads[kind] * spreads[kind] * share + sites[kind] * sites[kind],
                is_experts ? 3e-3 : 1e-12);
    EXPECT_NEAR(deviation_of(kSpreads, static_cast<CostClass>(kind)),
                std::hypot(spreads[kind], sites[kind]), 1e-12);
  }
}

TEST(IntervalTest, OfOneOperationIsThatOfItsClass) {
  const TimeInterval exchange = interval_of(kSpreads, CostClass::AllToAll, Seconds(2));
  EXPECT_NEAR(exchange.high.value(), 2 * std::exp(1.28155 * 0.6), 1e-4);
  EXPECT_NEAR(exchange.low * exchange.high.value() / Seconds(1), 4, 1e-12);
  costmodel::Spreads unmeasured = kSpreads;
  unmeasured.all_to_all = 0;
  EXPECT_EQ(deviation_of(unmeasured, CostClass::AllToAll),
            deviation_of(unmeasured, CostClass::InterNode));
}

// A time that is one class alone: the interval is 1.28 standard deviations of the shared part down,
// and up by more, because runs are only ever slowed.
TEST(IntervalTest, OneClassGivesItsQuantiles) {
  const auto interval =
      *sampled_interval(only_gemm(0.1), Seconds(1), 512, [](const CostFactors& f) {
        return Seconds(factor_of(f.shared[static_cast<std::size_t>(CostClass::Gemm)]));
      });
  const double sigma = std::hypot(0.1 * std::sqrt(kSharedVarianceGemm), kSiteSpreadGemm);
  EXPECT_LT(interval.low.value(), 1.0);
  EXPECT_GT(interval.low.value(), std::exp(-1.28 * sigma) - 0.005);
  EXPECT_GT(interval.high.value(), std::exp(1.28 * sigma));
  EXPECT_LT(interval.high.value(), std::exp(1.28 * sigma) + 2 * kRunSpread);
}

TEST(IntervalTest, NothingUncertainLeavesTheRun) {
  const auto interval = *sampled_interval(only_gemm(0), Seconds(2), 128,
                                          [](const CostFactors&) { return Seconds(2); });
  EXPECT_EQ(interval.low, Seconds(2));
  EXPECT_NEAR(interval.high.value(), 2 * (1 + 1.645 * kRunSpread), 0.02);
}

costmodel::KernelAccuracy errors_of(const char* kernel, int points, double p90) {
  costmodel::KernelAccuracy row;
  row.kernel = kernel;
  row.points = points;
  row.p90 = p90;
  return row;
}

costmodel::Profile profile_with(std::vector<costmodel::KernelAccuracy> rows) {
  costmodel::Profile profile;
  profile.spread = {.gemm = 0.08, .grouped_gemm = 0.2};
  profile.kernels.accuracy = std::move(rows);
  return profile;
}

// Left-out errors of products of 16 bits are in the profile's spread; other formats have their own.
TEST(SpreadsTest, ProductsAreAsWideAsTheirFormat) {
  const costmodel::Profile profile = profile_with(
      {errors_of("gemm bf16 tn burst", 100, 0.11), errors_of("gemm fp8 tn burst", 100, 0.19),
       errors_of("gemm fp8 nt burst", 9, 0.9), errors_of("gemm fp32 tn burst", 100, 0.02)});
  EXPECT_EQ(spreads_of(profile, DType::Bf16).gemm, 0.08);
  EXPECT_EQ(spreads_of(profile, DType::Fp16).gemm, 0.08);
  EXPECT_NEAR(spreads_of(profile, DType::Fp8).gemm, std::hypot(0.19 / 1.645, 0.04), 1e-12);
  EXPECT_EQ(spreads_of(profile, DType::Fp32).gemm, 0.08);
  EXPECT_EQ(spreads_of(profile, DType::Tf32).gemm, 0.08 * costmodel::kSpreadWidening);
  EXPECT_EQ(spreads_of(profile_with({}), DType::Fp8).gemm, 0.08);
}

TEST(SpreadsTest, ExpertsAreNoBetterKnownThanProducts) {
  costmodel::Profile profile = profile_with({errors_of("gemm fp8 tn burst", 100, 0.5)});
  EXPECT_EQ(spreads_of(profile, DType::Bf16).grouped_gemm, 0.2);
  const Spreads wide = spreads_of(profile, DType::Fp8);
  EXPECT_EQ(wide.grouped_gemm, wide.gemm);
  profile.spread.grouped_gemm = 0;  // not measured
  EXPECT_EQ(spreads_of(profile, DType::Bf16).grouped_gemm, 0.08 * costmodel::kSpreadWidening);
}

TEST(IntervalTest, StoppedDrawsGiveNone) {
  int asked = 0;
  const auto after_five = [&] { return ++asked > 5; };
  const auto one = [](const CostFactors&) { return Seconds(1); };
  EXPECT_FALSE(sampled_interval(only_gemm(0.1), Seconds(1), 128, one, after_five).has_value());
  EXPECT_EQ(asked, 6);
  const std::vector<Draw> draws = draw_errors(only_gemm(0.1), 128, 7);
  asked = 0;
  EXPECT_EQ(sampled_times(draws, one, after_five).size(), 5u);
  const Simulation cut =
      simulate(small_plan(), {.interval_draws = 64, .stop_draws = [] { return true; }});
  EXPECT_FALSE(cut.has_interval());
  EXPECT_EQ(cut.interval_high, cut.iteration_time);
}

TEST(IntervalTest, SimulationIsTheSameWithAndWithoutDraws) {
  const Plan plan = small_plan();
  const Simulation alone = simulate(plan);
  const Simulation drawn = simulate(plan, {.record_spans = false, .interval_draws = 64});
  EXPECT_EQ(alone.iteration_time, drawn.iteration_time);
  EXPECT_LT(drawn.interval_low, drawn.iteration_time);
  EXPECT_GT(drawn.interval_high, drawn.iteration_time);
  EXPECT_LT(drawn.interval_high / drawn.iteration_time, 2.0);
  const Simulation again = simulate(plan, {.record_spans = false, .interval_draws = 64});
  EXPECT_EQ(drawn.interval_low, again.interval_low);
  EXPECT_EQ(drawn.interval_high, again.interval_high);
}

TEST(IntervalTest, ThreadsDrawTheSame) {
  for (const std::string schedule : {"1f1b", "zb-h1", "zb-v"}) {
    const Plan plan = in_pipeline(small_plan(), schedule, {.chunks = schedule == "zb-v" ? 2 : 1});
    const Simulation alone = simulate(plan, {.interval_draws = 32});
    ASSERT_TRUE(alone.has_interval());
    for (const int jobs : {2, 3, 64}) {
      const Simulation together = simulate(plan, {.interval_draws = 32, .jobs = jobs});
      EXPECT_EQ(together.interval_low, alone.interval_low) << schedule << jobs;
      EXPECT_EQ(together.interval_high, alone.interval_high) << schedule << jobs;
    }
  }
}

// Each has a timer of its own; a draw beyond simulated time ends the draws of all, and those before
// it count.
TEST(IntervalTest, ThreadsEndTogether) {
  const std::vector<Draw> draws = draw_errors(only_gemm(0.1), 128, 7);
  std::atomic<int> timers = 0;
  const auto own = [&]() -> TimeUnder {
    ++timers;
    return [&](const CostFactors& factors) {
      return &factors == &draws[40].factors ? to_seconds(to_sim_time(Seconds(1e9))) : Seconds(1);
    };
  };
  EXPECT_EQ(sampled_times(draws, {own, 3}).size(), 40U);
  EXPECT_EQ(timers, 3);
}

TEST(IntervalTest, WiderSpreadsGiveWiderIntervals) {
  Plan plan = small_plan();
  const auto width = [&] {
    const Simulation run = simulate(plan, {.record_spans = false, .interval_draws = 128});
    return run.interval_high - run.interval_low;
  };
  const Seconds narrow = width();
  costmodel::Spreads& spread = plan.profile.spread;
  for (double* each : {&spread.gemm, &spread.attention, &spread.memory_bound,
                       &spread.intra_node_collective, &spread.inter_node_collective}) {
    *each *= 2;
  }
  EXPECT_GT(width(), narrow * 1.5);
}

}  // namespace
}  // namespace orrery::plan
