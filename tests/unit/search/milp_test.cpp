// SPDX-License-Identifier: Apache-2.0
// Branch and bound that ends by its count of nodes, never by a clock.
#include "search/problems/milp.hpp"

#include <gtest/gtest.h>

namespace orrery::search {
namespace {

// Which of the weights make up the sum exactly: relaxed there is always an answer.
Milp subset_sum(const std::vector<double>& weights, double sum) {
  Milp milp;
  std::vector<std::pair<int, double>> terms;
  for (const double weight : weights) {
    terms.emplace_back(milp.add_variable(0, 1, weight * weight, true), weight);
  }
  milp.add_row(std::move(terms), sum, sum);
  return milp;
}

TEST(Milp, ProvesTheLeast) {
  const auto answer = subset_sum({7, 5, 4, 3, 1}, 9).solve();
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->proven);
  EXPECT_EQ(answer->values, (std::vector<double>{0, 1, 0, 1, 1}));
  EXPECT_EQ(answer->objective, 35);
}

TEST(Milp, TellsNoneFromNoneFound) {
  EXPECT_FALSE(subset_sum({6, 4, 2}, 14).solve().has_value());
  // Without nodes beyond the first there is no whole answer, which proves nothing.
  const auto unknown =
      subset_sum({3001, 2903, 2801, 2707, 2609, 2503, 2411, 2309, 2207}, 12'345).solve(1e-9);
  ASSERT_TRUE(unknown.has_value());
  EXPECT_FALSE(unknown->proven);
  EXPECT_TRUE(unknown->values.empty());
}

// Rows of small numbers hold as exactly as others: times in seconds, shares of a memory.
TEST(Milp, SmallNumbersAreNotNothing) {
  for (const double scale : {1e-9, 1e-4, 1.0, 1e9}) {
    Milp program;
    const int a = program.add_variable(0, Milp::kInfinity, 1, false);
    const int b = program.add_variable(0, Milp::kInfinity, 1, false);
    program.add_row({{a, 1.0}}, 1.25 * scale, Milp::kInfinity);
    program.add_row({{a, 0.5}, {b, 0.75}}, 3 * scale, Milp::kInfinity);
    const auto answer = program.solve();
    ASSERT_TRUE(answer.has_value());
    const double least = (1.25 + (3 - 0.5 * 1.25) / 0.75) * scale;
    EXPECT_NEAR(answer->objective / least, 1, 1e-5) << scale;
  }
  // 0.5 and 0.5004 of a memory do not fit together.
  Milp choice;
  const int one = choice.add_variable(0, 1, -1, true);
  const int other = choice.add_variable(0, 1, -1, true);
  choice.add_row({{one, 0.5}, {other, 0.5004}}, -Milp::kInfinity, 1);
  const auto answer = choice.solve();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->objective, -1);
}

}  // namespace
}  // namespace orrery::search
