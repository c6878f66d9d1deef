// SPDX-License-Identifier: Apache-2.0
// Linear programs that start where another one ended (search/per_block/linear_program.hpp).
#include "search/per_block/linear_program.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::search {
namespace {

// Least cost of quantities that cover every row.
struct Covering {
  std::vector<double> costs;
  std::vector<std::vector<double>> rows;  // what one of each variable covers
  std::vector<double> needed;
};

Covering random_covering() {
  Covering covering;
  const auto variables = *rc::gen::inRange<std::size_t>(1, 12);
  const auto rows = *rc::gen::inRange<std::size_t>(1, 12);
  covering.costs = *rc::gen::container<std::vector<double>>(
      variables, rc::gen::map(rc::gen::inRange(1, 50), [](int n) { return n / 7.0; }));
  for (std::size_t row = 0; row < rows; ++row) {
    covering.rows.push_back(*rc::gen::container<std::vector<double>>(
        variables, rc::gen::map(rc::gen::inRange(0, 9), [](int n) { return n / 3.0; })));
    covering.rows.back().front() += 1.0;  // all can be covered
    covering.needed.push_back(*rc::gen::inRange(0, 40));
  }
  return covering;
}

constexpr double kMost = 1e3;

struct Posed {
  LinearProgram program;
  std::vector<int> variables;

  void add_row(const std::vector<double>& covers, double needed) {
    std::vector<std::pair<int, double>> terms;
    for (std::size_t k = 0; k < variables.size(); ++k) {
      terms.emplace_back(variables[k], covers[k]);
    }
    program.add_row(terms, needed);
  }
};

Posed posed(const Covering& covering, bool idle, bool idle_rows) {
  Posed result;
  for (const double cost : covering.costs) {
    const bool is_first = result.variables.empty();
    result.variables.push_back(result.program.add_variable(kMost, cost, idle && !is_first));
  }
  result.program.begin_part(LinearProgram::Part::Ranges);
  result.program.add_idle_rows(idle_rows);
  for (std::size_t row = 0; row < covering.rows.size(); ++row) {
    result.add_row(covering.rows[row], covering.needed[row]);
  }
  result.program.add_idle_rows(false);
  return result;
}

// Of the next solution, which must be the optimum.
double optimum_of(const Covering& covering, Posed& problem) {
  const LinearProgram::Answer answer = problem.program.solve();
  RC_ASSERT(answer.solved);
  std::vector<double> values;
  double cost = 0;
  for (std::size_t k = 0; k < covering.costs.size(); ++k) {
    values.push_back(answer.values[static_cast<std::size_t>(problem.variables[k])]);
    cost += covering.costs[k] * values.back();
  }
  for (std::size_t row = 0; row < covering.rows.size(); ++row) {
    double covered = 0;
    for (std::size_t k = 0; k < covering.costs.size(); ++k) {
      covered += covering.rows[row][k] * values[k];
    }
    RC_ASSERT(covered >= covering.needed[row] - 1e-6);
  }
  // Feasible at this cost, and nothing is cheaper.
  RC_ASSERT(answer.bound <= cost + 1e-6);
  RC_ASSERT(answer.bound >= cost - 1e-6 * (1.0 + cost));
  return answer.bound;
}

// The basis of a program that is a little different, or of none.
TEST(LinearProgram, EndsAtTheSameOptimumFromAnyBasis) {
  EXPECT_TRUE(rc::check([] {
    const Covering first = random_covering();
    Posed before = posed(first, false, false);
    (void)optimum_of(first, before);
    LinearProgram::Basis basis = before.program.basis({});

    Covering second = first;
    for (double& cost : second.costs) {
      cost *= *rc::gen::inRange(5, 20) / 10.0;
    }
    for (double& needed : second.needed) {
      needed = *rc::gen::inRange(0, 40);
    }
    if (*rc::gen::arbitrary<bool>()) {  // names of no program
      const auto numbers =
          rc::gen::container<std::vector<std::uint32_t>>(rc::gen::arbitrary<std::uint32_t>());
      basis = {*numbers, *numbers};
      std::sort(basis.rows.begin(), basis.rows.end());
      std::sort(basis.variables.begin(), basis.variables.end());
    }
    const bool idle = *rc::gen::arbitrary<bool>();
    Posed cold = posed(second, idle, false);
    Posed warm = posed(second, idle, *rc::gen::arbitrary<bool>());
    warm.program.begin_with(basis);
    const double expected = optimum_of(second, cold);
    RC_ASSERT(std::abs(optimum_of(second, warm) - expected) <= 1e-6 * (1.0 + expected));
  }));
}

// Rows come after the start, too.
TEST(LinearProgram, GoesOnFromTheBasisOfAnother) {
  EXPECT_TRUE(rc::check([] {
    Covering covering = random_covering();
    Posed before = posed(covering, false, false);
    (void)optimum_of(covering, before);
    Posed warm = posed(covering, false, *rc::gen::arbitrary<bool>());
    warm.program.begin_with(before.program.basis({}));
    (void)optimum_of(covering, warm);
    covering.rows.emplace_back();
    for (std::size_t k = 0; k < covering.costs.size(); ++k) {
      covering.rows.back().push_back(*rc::gen::inRange(1, 9));
    }
    covering.needed.push_back(*rc::gen::inRange(0, 100));
    warm.add_row(covering.rows.back(), covering.needed.back());
    (void)optimum_of(covering, warm);
  }));
}

}  // namespace
}  // namespace orrery::search
