// SPDX-License-Identifier: Apache-2.0
// Generated workloads: lengths and packing, expert routing, embedding lookups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"
#include "models/lengths.hpp"
#include "models/lookups.hpp"
#include "models/routing.hpp"

namespace orrery::models {
namespace {

TEST(Lengths, FollowTheirModel) {
  const LengthModel model{.median = 700, .spread = 0.8, .longest = 100'000};
  auto lengths = draw_lengths(model, 20'000, 7);
  EXPECT_EQ(lengths, draw_lengths(model, 20'000, 7));
  EXPECT_NE(lengths, draw_lengths(model, 20'000, 8));
  std::sort(lengths.begin(), lengths.end());
  EXPECT_NEAR(static_cast<double>(lengths[10'000]), 700, 25);
  const double sigma = std::log(static_cast<double>(lengths[16'827])) - std::log(700.0);  // + 1 s
  EXPECT_NEAR(sigma, 0.8, 0.04);
}

TEST(Lengths, ATailIsPareto) {
  const LengthModel model{.median = 500,
                          .spread = 0.1,
                          .tail = 0.1,
                          .tail_from = 10'000,
                          .tail_index = 1.5,
                          .longest = 1'000'000'000};
  const auto lengths = draw_lengths(model, 50'000, 3);
  const auto above = [&lengths](std::int64_t least) {
    return static_cast<double>(std::count_if(lengths.begin(), lengths.end(),
                                             [least](std::int64_t l) { return l > least; }));
  };
  EXPECT_NEAR(above(9'999), 5'000, 200);
  EXPECT_NEAR(above(40'000) / above(9'999), std::pow(4.0, -1.5), 0.015);
}

TEST(Lengths, QuantilesAreThoseOfTheTable) {
  auto lengths = draw_lengths({{0, 100}, {0.5, 400}, {0.9, 3000}, {1, 60000}}, 40'000, 5);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_NEAR(static_cast<double>(lengths[20'000]), 400, 12);
  EXPECT_NEAR(static_cast<double>(lengths[36'000]), 3000, 150);
  EXPECT_THROW(draw_lengths({{0, 100}, {0.5, 400}}, 1, 1), Error);
}

std::int64_t tokens_of(const std::vector<int>& row, const std::vector<std::int64_t>& lengths) {
  return std::accumulate(row.begin(), row.end(), std::int64_t{0}, [&](std::int64_t sum, int index) {
    return sum + lengths[static_cast<std::size_t>(index)];
  });
}

TEST(Packing, PutsEverySequenceIntoOneRow) {
  const auto lengths = draw_lengths({.median = 900, .longest = 4096}, 3000, 11);
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const auto least = static_cast<std::size_t>((tokens + 4095) / 4096);
  for (const Packing packing : {Packing::InOrder, Packing::FirstFit, Packing::FirstFitDecreasing,
                                Packing::BestFitDecreasing}) {
    const auto rows = pack(lengths, 4096, packing);
    std::vector<int> seen;
    for (const std::vector<int>& row : rows) {
      EXPECT_LE(tokens_of(row, lengths), 4096);
      seen.insert(seen.end(), row.begin(), row.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int> all(lengths.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all);
    if (packing == Packing::FirstFitDecreasing || packing == Packing::BestFitDecreasing) {
      EXPECT_LE(rows.size(), 11 * least / 9 + 1);
    }
  }
}

TEST(Packing, DiffersAsWorkedByHand) {
  const std::vector<std::int64_t> lengths = {4, 8, 1, 4, 2, 1};
  EXPECT_EQ(pack(lengths, 10, Packing::InOrder),
            (std::vector<std::vector<int>>{{0}, {1, 2}, {3, 4, 5}}));
  EXPECT_EQ(pack(lengths, 10, Packing::FirstFit),
            (std::vector<std::vector<int>>{{0, 2, 3, 5}, {1, 4}}));
  EXPECT_EQ(pack(lengths, 10, Packing::FirstFitDecreasing),
            (std::vector<std::vector<int>>{{1, 4}, {0, 3, 2, 5}}));
  EXPECT_EQ(pack({6, 5, 4, 5}, 10, Packing::BestFitDecreasing).size(), 2u);
  EXPECT_THROW(pack(lengths, 7, Packing::FirstFit), Error);
}

TEST(Routing, TokensAreConserved) {
  RoutingGenerator generator(
      {.experts = 16, .top_k = 4, .ranks = 8, .tokens_per_rank = 10'000, .popularity = 1.5}, 9);
  for (int step = 0; step < 5; ++step) {
    for (const auto& row : generator.next()) {
      EXPECT_EQ(std::accumulate(row.begin(), row.end(), std::int64_t{0}), 10'000);
      EXPECT_LE(*std::max_element(row.begin(), row.end()), 2'700);  // a quarter, and noise
    }
  }
}

TEST(Routing, NoExpertGetsATokenTwice) {
  RoutingGenerator all({.experts = 8, .top_k = 8, .ranks = 2, .tokens_per_rank = 65'536}, 1);
  for (const auto& row : all.next()) {
    EXPECT_EQ(row, std::vector<std::int64_t>(8, 8'192));
  }
  RoutingGenerator popular(
      {.experts = 4, .top_k = 2, .ranks = 1, .tokens_per_rank = 1'000, .popularity = 5}, 1);
  for (int step = 0; step < 20; ++step) {
    const std::vector<std::int64_t> row = popular.next().front();
    EXPECT_LE(*std::max_element(row.begin(), row.end()), 500);
    EXPECT_EQ(std::accumulate(row.begin(), row.end(), std::int64_t{0}), 1'000);
  }
}

TEST(Routing, UniformWithoutSpread) {
  RoutingGenerator generator({.tokens_per_rank = 1'000'000, .popularity = 0, .fluctuation = 0}, 1);
  const RoutedTokens tokens = generator.next();
  for (const std::int64_t count : tokens.front()) {
    EXPECT_NEAR(static_cast<double>(count), 125'000, 5 * std::sqrt(125'000.0));
  }
}

TEST(Routing, SharesAreCappedInProportion) {
  const std::vector<double> shares = capped_shares({6, 2, 1, 1}, 0.5);
  EXPECT_NEAR(shares[0], 0.5, 1e-12);
  EXPECT_NEAR(shares[1], 0.25, 1e-12);
  EXPECT_NEAR(shares[2], 0.125, 1e-12);
}

// The balance that static expert parallelism showed on 32 A100 (LAER-MoE's artifact): 16 experts,
// top 4, groups of 4 ranks; maximum over mean 1.73, variation 0.466, autocorrelation 0.26.
TEST(Routing, ShowsThePublishedBalance) {
  BalanceStatistics mean{0, 0, 0};
  constexpr int kLayers = 24;
  for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
    RoutingGenerator generator({.experts = 16,
                                .top_k = 4,
                                .ranks = 32,
                                .domain = 4,
                                .tokens_per_rank = 65'536,
                                .popularity = 1.8,
                                .fluctuation = 0.25,
                                .fluctuation_persistence = 0.3},
                               mix64(1 + layer));
    std::vector<std::vector<double>> loads;
    for (int step = 0; step < 50; ++step) {
      const RoutedTokens tokens = generator.next();
      std::vector<double> load(32);
      for (std::size_t rank = 0; rank < 32; ++rank) {
        for (std::size_t expert = 0; expert < 16; ++expert) {
          load[rank / 4 * 4 + expert / 4] += static_cast<double>(tokens[rank][expert]);
        }
      }
      loads.push_back(std::move(load));
    }
    const BalanceStatistics one = balance_statistics(loads);
    mean.max_over_mean += one.max_over_mean / kLayers;
    mean.variation += one.variation / kLayers;
    mean.autocorrelation += one.autocorrelation / kLayers;
  }
  EXPECT_NEAR(mean.max_over_mean, 1.73, 0.173);
  EXPECT_NEAR(mean.variation, 0.466, 0.0466);
  EXPECT_NEAR(mean.autocorrelation, 0.26, 0.05);
}

// Also one that rounding keeps from being the mean of its steps.
TEST(Routing, AConstantLoadHasNoAutocorrelation) {
  for (const double load : {524'288.0, 0.1, 1.0 / 3}) {
    const BalanceStatistics balance =
        balance_statistics(std::vector<std::vector<double>>(20, {load, load}));
    EXPECT_EQ(balance.autocorrelation, 0) << load;
    EXPECT_EQ(balance.max_over_mean, 1) << load;
    EXPECT_EQ(balance.variation, 0) << load;
  }
}

TEST(Routing, BinomialsHaveTheirMeanAndVariance) {
  Random random(4);
  using Case = std::pair<std::int64_t, double>;
  for (const auto& [n, p] : {Case{20, 0.1}, Case{1000, 0.7}, Case{100000, 0.3}}) {
    double sum = 0;
    double squares = 0;
    constexpr int kDraws = 4000;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double value = static_cast<double>(draw_binomial(n, p, random));
      sum += value;
      squares += value * value;
    }
    const double mean = sum / kDraws;
    const double expected = static_cast<double>(n) * p;
    EXPECT_NEAR(mean, expected, 5 * std::sqrt(expected * (1 - p) / kDraws));
    EXPECT_NEAR((squares / kDraws - mean * mean) / (expected * (1 - p)), 1, 0.12);
  }
}

TEST(Lookups, UniqueRowsAreAsExpected) {
  const ZipfRows table(54'542, 0.82);  // Amazon Beauty's items
  const auto drawn = table.draw(51'200, 3);
  EXPECT_EQ(drawn, table.draw(51'200, 3));
  EXPECT_NEAR(static_cast<double>(count_unique(drawn)), table.expected_unique(51'200),
              0.01 * table.expected_unique(51'200));
  double sum = 0;
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    sum += table.probability(row);
  }
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(Lookups, SlopeZeroIsUniform) {
  const ZipfRows table(1000, 0);
  EXPECT_NEAR(table.share_of_top(0.1), 0.1, 1e-12);
  EXPECT_NEAR(table.expected_unique(1000), 1000 * (1 - std::pow(0.999, 1000)), 1e-6);
  EXPECT_NEAR(table.expected_unique(1), 1, 1e-9);
}

}  // namespace
}  // namespace orrery::models
