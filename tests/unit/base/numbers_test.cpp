// SPDX-License-Identifier: Apache-2.0
// Units, simulated time, random numbers and integer helpers.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/math.hpp"
#include "base/random.hpp"
#include "base/sim_time.hpp"
#include "base/units.hpp"

namespace orrery {
namespace {

using ::testing::ElementsAre;
using ::testing::ExitedWithCode;

TEST(UnitsTest, DivisionAndMultiplicationKeepDimensions) {
  static_assert(std::is_same_v<decltype(Bytes(1) / BytesPerSecond(1)), Seconds>);
  static_assert(std::is_same_v<decltype(FlopsPerSecond(1) * Seconds(1)), Flops>);
  static_assert(std::is_same_v<decltype(Bytes(1) / Bytes(1)), double>);
  static_assert(std::is_same_v<decltype(DollarsPerSecond(1) * Seconds(1)), Dollars>);
  EXPECT_EQ((Bytes(100) / BytesPerSecond(50)).value(), 2.0);
  EXPECT_EQ(Hertz(4) * Seconds(0.5), 2.0);
}

TEST(UnitsDeathTest, ByteCountsThatOverflowAreBugs) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((ByteCount(3) * 4 + ByteCount(1) - ByteCount(2)).value(), 11);
  EXPECT_EXIT(ByteCount(kMax) + ByteCount(1), ExitedWithCode(1), "byte count within int64");
  EXPECT_EXIT(ByteCount(-kMax) - ByteCount(2), ExitedWithCode(1), "byte count within int64");
  EXPECT_EXIT(ByteCount(kMax / 2) * 3, ExitedWithCode(1), "byte count within int64");
}

TEST(SimTimeTest, RoundsUpToPicoseconds) {
  EXPECT_EQ(to_sim_time(Seconds(0)).ps, 0);
  EXPECT_EQ(to_sim_time(Seconds(1e-12)).ps, 1);
  EXPECT_EQ(to_sim_time(Seconds(1.01e-12)).ps, 2);
  EXPECT_EQ(to_sim_time(Seconds(1e-30)).ps, 1);
  EXPECT_EQ(to_sim_time(Seconds(3.4e-6)).ps, 3'400'000);
  EXPECT_EQ(to_sim_time(Seconds(1)).ps, 1'000'000'000'000);
}

TEST(SimTimeTest, RejectsWhatCannotBeSimulated) {
  EXPECT_THROW(to_sim_time(Seconds(-1e-12)), Error);
  EXPECT_THROW(to_sim_time(Seconds(std::nan(""))), Error);
  EXPECT_THROW(to_sim_time(Seconds(std::numeric_limits<double>::infinity())), Error);
  EXPECT_THROW(to_sim_time(Seconds(9.3e6)), Error);
  EXPECT_NO_THROW(to_sim_time(Seconds(9.2e6)));
}

TEST(RandomTest, ValuesAreFixed) {
  // Reference: SplitMix64 seeding of xoshiro256**, evaluated independently in exact integers.
  Random random(42);
  EXPECT_EQ(random.next(), 0x15780b2e0c2ec716U);
  EXPECT_EQ(random.next(), 0x6104d9866d113a7eU);
  EXPECT_EQ(random.next(), 0xae17533239e499a1U);
  // The first outputs of SplitMix64 from seed 1234567.
  constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15U;
  EXPECT_EQ(mix64(1234567 + kGamma), 6457827717110365317U);
  EXPECT_EQ(mix64(1234567 + 2 * kGamma), 3203168211198807973U);
}

TEST(RandomTest, UniformAndNormalHaveTheirMoments) {
  constexpr int kCount = 200'000;
  Random random(7);
  double sum = 0.0;
  double normal_sum = 0.0;
  double normal_squares = 0.0;
  double normal_fourths = 0.0;
  for (int i = 0; i < kCount; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    const double n = random.normal();
    normal_sum += n;
    normal_squares += n * n;
    normal_fourths += n * n * n * n;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);
  EXPECT_NEAR(normal_sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(normal_squares / kCount, 1.0, 0.02);
  EXPECT_NEAR(normal_fourths / kCount, 3.0, 0.15);
}

TEST(RandomTest, BelowCoversItsRangeEvenly) {
  Random random(3);
  std::array<int, 6> counts{};
  for (int i = 0; i < 60'000; ++i) {
    ++counts.at(random.below(6));
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, 10'000, 400);
  }
  EXPECT_EQ(random.below(1), 0U);
}

TEST(RandomDeathTest, BelowZeroIsABug) {
  EXPECT_EXIT(Random(1).below(0), ExitedWithCode(1), "below zero");
}

TEST(MathTest, DivisorsAscend) {
  EXPECT_THAT(divisors(1), ElementsAre(1));
  EXPECT_THAT(divisors(12), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(divisors(49), ElementsAre(1, 7, 49));
  EXPECT_EXIT(divisors(0), ExitedWithCode(1), "divisors of 0");
}

TEST(MathTest, RoundingUp) {
  static_assert(ceil_div(7, 2) == 4 && ceil_div(8, 2) == 4 && ceil_div(0, 3) == 0);
  static_assert(round_up(7, 4) == 8 && round_up(8, 4) == 8);
}

}  // namespace
}  // namespace orrery
