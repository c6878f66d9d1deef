// SPDX-License-Identifier: Apache-2.0
#include "base/quantile.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace orrery {
namespace {

TEST(Quantile, IsLinearBetweenOrderStatistics) {
  const std::vector<double> values = {1, 2, 4, 8, 16};
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 0.5), 4);
  EXPECT_EQ(quantile(values, 1), 16);
  EXPECT_EQ(quantile(values, 0.875), 12);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

TEST(Quantile, NearestIsOneOfTheValues) {
  const std::vector<double> values = {1, 2, 4, 8, 16};
  EXPECT_EQ(nearest_quantile(values, 0), 1);
  EXPECT_EQ(nearest_quantile(values, 0.6), 4);
  EXPECT_EQ(nearest_quantile(values, 0.625), 8);
  EXPECT_EQ(nearest_quantile(values, 1), 16);
  EXPECT_EQ(nearest_quantile({}, 1), 0);
}

}  // namespace
}  // namespace orrery
