// SPDX-License-Identifier: Apache-2.0
// A linear program whose optimum is a certificate: GLPK finds the prices of the rows, and the bound
// is then computed from these prices alone (weak duality), so that neither tolerances nor an early
// end of the solver can make it too high:
//     min c x, x in [0, u], rows  >=  prices y b + sum_j min(0, c_j - y A_j) u_j  for every y >= 0
// That no solution exists is not taken from the solver either: then rows may be missed at a price,
// and the bound says how much that costs at least.
// Rows may be added after a solution; the next one starts from it. One thread at a time.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace orrery::search {

class LinearProgram {
 public:
  LinearProgram();
  ~LinearProgram();
  LinearProgram(LinearProgram&&) noexcept;

  // Between 0 and `most`, which no solution of interest exceeds.
  int add_variable(double most, double cost);
  // sum of coefficient x variable >= low. Returns the row.
  int add_row(std::vector<std::pair<int, double>> terms, double low);

  void set_low(int row, double low);

  struct Answer {
    bool solved = true;  // false: no x satisfies the rows, or the solver gave up: no `values`
    double bound = 0;    // never above the optimum; large where no x satisfies the rows
    std::vector<double> values;
  };
  Answer solve();

 private:
  struct Row {
    std::vector<std::pair<int, double>> terms;
    double low;
  };
  struct Solver;
  double bound_of(const std::vector<double>& prices) const;
  void relax();

  std::vector<double> most_;
  std::vector<double> cost_;
  std::vector<Row> rows_;
  bool relaxed_ = false;
  std::unique_ptr<Solver> solver_;
};

}  // namespace orrery::search
