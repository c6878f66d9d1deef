// SPDX-License-Identifier: Apache-2.0
#include "search/linear_program.hpp"

#include <glpk.h>

#include <algorithm>
#include <cmath>

namespace orrery::search {

namespace {

// Sums of a few thousand doubles are exact to far less than this.
constexpr double kRounding = 1e-11;
constexpr int kMostIterations = 20'000;
// What missing rows by their whole bound costs: rows that are missed by a hundred-thousandth of it
// raise the bound by one.
constexpr double kPriceOfMissing = 1e5;

}  // namespace

struct LinearProgram::Solver {
  Solver() : problem(glp_create_prob()) { glp_set_obj_dir(problem, GLP_MIN); }
  ~Solver() { glp_delete_prob(problem); }
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;
  glp_prob* problem;
  bool solved = false;
};

LinearProgram::LinearProgram() : solver_(std::make_unique<Solver>()) {}
LinearProgram::~LinearProgram() = default;
LinearProgram::LinearProgram(LinearProgram&&) noexcept = default;

int LinearProgram::add_variable(double most, double cost) {
  most_.push_back(most);
  cost_.push_back(cost);
  glp_prob* problem = solver_->problem;
  const int column = glp_add_cols(problem, 1);
  glp_set_col_bnds(problem, column, GLP_DB, 0.0, most);
  glp_set_obj_coef(problem, column, cost);
  return column - 1;
}

int LinearProgram::add_row(std::vector<std::pair<int, double>> terms, double low) {
  glp_prob* problem = solver_->problem;
  const int row = glp_add_rows(problem, 1);
  glp_set_row_bnds(problem, row, GLP_LO, low, 0.0);
  std::vector<int> columns(1, 0);  // GLPK counts from one
  std::vector<double> coefficients(1, 0.0);
  for (const auto& [variable, coefficient] : terms) {
    columns.push_back(variable + 1);
    coefficients.push_back(coefficient);
  }
  glp_set_mat_row(problem, row, static_cast<int>(terms.size()), columns.data(),
                  coefficients.data());
  rows_.push_back({std::move(terms), low});
  return row - 1;
}

void LinearProgram::set_low(int row, double low) {
  rows_[static_cast<std::size_t>(row)].low = low;
  glp_set_row_bnds(solver_->problem, row + 1, GLP_LO, low, 0.0);
}

double LinearProgram::bound_of(const std::vector<double>& prices) const {
  std::vector<double> reduced = cost_;
  double bound = 0;
  double size = 0;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const double price = std::max(0.0, prices[row]);
    if (price == 0.0) {
      continue;
    }
    bound += price * rows_[row].low;
    size += std::abs(price * rows_[row].low);
    for (const auto& [variable, coefficient] : rows_[row].terms) {
      reduced[static_cast<std::size_t>(variable)] -= price * coefficient;
    }
  }
  for (std::size_t variable = 0; variable < most_.size(); ++variable) {
    const double gain = std::min(0.0, reduced[variable]) * most_[variable];
    bound += gain;
    size += std::abs(gain);
  }
  return bound - size * kRounding;
}

// A variable that satisfies every row by itself, at a price. Solutions stay solutions, so a bound
// stays a bound.
void LinearProgram::relax() {
  const int variable = add_variable(1.0, kPriceOfMissing);
  std::vector<int> rows(1, 0);  // GLPK counts from one
  std::vector<double> coefficients(1, 0.0);
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    rows.push_back(static_cast<int>(row) + 1);
    coefficients.push_back(std::max(1.0, rows_[row].low));
    rows_[row].terms.push_back({variable, coefficients.back()});
  }
  glp_set_mat_col(solver_->problem, variable + 1, static_cast<int>(rows_.size()), rows.data(),
                  coefficients.data());
  solver_->solved = false;
  relaxed_ = true;
}

LinearProgram::Answer LinearProgram::solve() {
  glp_prob* problem = solver_->problem;
  glp_term_out(GLP_OFF);
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.it_lim = kMostIterations;
  if (!solver_->solved) {
    glp_adv_basis(problem, 0);
  } else {
    parameters.meth = GLP_DUALP;  // new rows leave the prices of the old ones feasible
  }
  const int code = glp_simplex(problem, &parameters);
  solver_->solved = code == 0;
  const int status = glp_get_status(problem);
  if (code == 0 && status == GLP_NOFEAS && !relaxed_) {
    relax();
    return solve();
  }
  std::vector<double> prices(rows_.size(), 0.0);
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    prices[row] = glp_get_row_dual(problem, static_cast<int>(row) + 1);
  }
  Answer answer;
  answer.bound = bound_of(prices);
  answer.solved = code == 0 && status == GLP_OPT && !relaxed_;
  for (std::size_t variable = 0; variable < most_.size(); ++variable) {
    answer.values.push_back(glp_get_col_prim(problem, static_cast<int>(variable) + 1));
  }
  return answer;
}

}  // namespace orrery::search
