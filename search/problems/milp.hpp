// SPDX-License-Identifier: Apache-2.0
// Small mixed-integer linear programs for planners, solved exactly by GLPK's branch and bound as
// far as its work is limited. Deterministic: the limit counts nodes, not seconds; one program at a
// time in a thread.
#pragma once

#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::search {

class Milp {
 public:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  // A variable with bounds and its coefficient in the objective, which is minimised.
  int add_variable(double low, double high, double cost, bool integer);
  // low <= sum of coefficient x variable <= high.
  void add_row(std::vector<std::pair<int, double>> terms, double low, double high);

  struct Answer {
    double objective = 0;
    std::vector<double> values;  // integers are rounded exactly; empty when the limit came first
    bool proven = true;          // false when the limit ended the search
  };
  // None when nothing satisfies the rows. `share` is that of the usual limit on work, a few
  // seconds.
  std::optional<Answer> solve(double share = 1) const;

 private:
  struct Variable {
    double low;
    double high;
    double cost;
    bool integer;
  };
  struct Row {
    std::vector<std::pair<int, double>> terms;
    double low;
    double high;
  };
  double unit() const;
  double factor_of(const Row& row) const;

  std::vector<Variable> variables_;
  std::vector<Row> rows_;
};

}  // namespace orrery::search
