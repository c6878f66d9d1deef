// SPDX-License-Identifier: Apache-2.0
#include "base/quantile.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace orrery {
namespace {

const std::vector<double> kValues = {1, 2, 4, 8, 16};

TEST(Quantile, EndsAndMiddleAreValues) {
  for (const auto of : {quantile, nearest_quantile}) {
    EXPECT_EQ(of(kValues, 0), 1);
    EXPECT_EQ(of(kValues, 0.5), 4);
    EXPECT_EQ(of(kValues, 1), 16);
    EXPECT_EQ(of({}, 0.5), 0);
  }
}

TEST(Quantile, IsLinearBetweenOrderStatistics) { EXPECT_EQ(quantile(kValues, 0.875), 12); }

TEST(Quantile, NearestIsOneOfTheValues) {
  EXPECT_EQ(nearest_quantile(kValues, 0.6), 4);
  EXPECT_EQ(nearest_quantile(kValues, 0.625), 8);
}

}  // namespace
}  // namespace orrery
