// SPDX-License-Identifier: Apache-2.0
#include "search/problems/milp.hpp"

#include <glpk.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "search/problems/glpk_thread.hpp"

namespace orrery::search {

namespace {

// GLPK's kind of a pair of bounds.
int bounds_kind(double low, double high) {
  const bool below = std::isfinite(low);
  const bool above = std::isfinite(high);
  if (below && above) {
    return low == high ? GLP_FX : GLP_DB;
  }
  return below ? GLP_LO : above ? GLP_UP : GLP_FR;
}

constexpr double kMaxNodes = 20'000;
constexpr double kMaxWork = 2e8;  // nodes x variables x rows: a node solves a linear program again

struct Nodes {
  std::int64_t left = 0;
  bool ended = false;
};

void count_node(glp_tree* tree, void* info) {
  Nodes& nodes = *static_cast<Nodes*>(info);
  if (glp_ios_reason(tree) == GLP_ISELECT && nodes.left-- <= 0) {
    nodes.ended = true;
    glp_ios_terminate(tree);
  }
}

double finite_or_zero(double value) { return std::isfinite(value) ? value : 0.0; }

// GLPK's presolver takes a row or column that misses its bound b by 1e-3 + 1e-6 |b| for one that
// keeps it (npp3.c), so what is of the order of one or less must be written larger.
constexpr double kLarge = 1e6;

bool is_whole(double value) { return value == std::round(value); }

double larger(double most) { return most > 0 ? std::max(1.0, kLarge / most) : 1.0; }

}  // namespace

int Milp::add_variable(double low, double high, double cost, bool integer) {
  variables_.push_back({low, high, cost, integer});
  return static_cast<int>(variables_.size()) - 1;
}

void Milp::add_row(std::vector<std::pair<int, double>> terms, double low, double high) {
  rows_.push_back({std::move(terms), low, high});
}

// Without integers all bounds, and with them the answer, may be taken larger at once.
double Milp::unit() const {
  double most = 0;
  for (const Variable& variable : variables_) {
    if (variable.integer) {
      return 1;
    }
    most = std::max(
        {most, std::abs(finite_or_zero(variable.low)), std::abs(finite_or_zero(variable.high))});
  }
  for (const Row& row : rows_) {
    most = std::max({most, std::abs(finite_or_zero(row.low)), std::abs(finite_or_zero(row.high))});
  }
  return larger(most);
}

// Rows among integers may each be taken larger; those of whole numbers are exact as they are.
double Milp::factor_of(const Row& row) const {
  double most = std::max(std::abs(finite_or_zero(row.low)), std::abs(finite_or_zero(row.high)));
  bool whole = is_whole(row.low) && is_whole(row.high);
  bool integers = false;
  for (const auto& [variable, coefficient] : row.terms) {
    most = std::max(most, std::abs(coefficient));
    whole = whole && is_whole(coefficient);
    integers = integers || variables_[static_cast<std::size_t>(variable)].integer;
  }
  return integers && !whole ? larger(most) : 1.0;
}

std::optional<Milp::Answer> Milp::solve(double share) const {
  free_glpk_with_thread();
  const double unit = this->unit();
  std::unique_ptr<glp_prob, void (*)(glp_prob*)> problem(glp_create_prob(), glp_delete_prob);
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(problem.get(), GLP_MIN);
  glp_add_cols(problem.get(), static_cast<int>(variables_.size()));
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Variable& variable = variables_[i];
    const int column = static_cast<int>(i) + 1;
    glp_set_col_bnds(problem.get(), column, bounds_kind(variable.low, variable.high),
                     unit * finite_or_zero(variable.low), unit * finite_or_zero(variable.high));
    glp_set_obj_coef(problem.get(), column, variable.cost);
    glp_set_col_kind(problem.get(), column, variable.integer ? GLP_IV : GLP_CV);
  }
  if (!rows_.empty()) {
    glp_add_rows(problem.get(), static_cast<int>(rows_.size()));
  }
  std::vector<int> columns;
  std::vector<double> coefficients;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    columns.assign(1, 0);  // GLPK counts from one
    coefficients.assign(1, 0.0);
    const double factor = factor_of(rows_[i]);
    for (const auto& [variable, coefficient] : rows_[i].terms) {
      columns.push_back(variable + 1);
      coefficients.push_back(factor * coefficient);
    }
    const int row = static_cast<int>(i) + 1;
    glp_set_row_bnds(problem.get(), row, bounds_kind(rows_[i].low, rows_[i].high),
                     unit * factor * finite_or_zero(rows_[i].low),
                     unit * factor * finite_or_zero(rows_[i].high));
    glp_set_mat_row(problem.get(), row, static_cast<int>(columns.size()) - 1, columns.data(),
                    coefficients.data());
  }
  glp_iocp parameters;
  glp_init_iocp(&parameters);
  parameters.presolve = GLP_ON;
  parameters.msg_lev = GLP_MSG_OFF;
  const auto size = static_cast<double>(variables_.size() * std::max<std::size_t>(1, rows_.size()));
  Nodes nodes{static_cast<std::int64_t>(
      std::clamp(share * std::min(kMaxNodes, kMaxWork / std::max(1.0, size)), 1.0, kMaxNodes))};
  parameters.cb_func = count_node;
  parameters.cb_info = &nodes;
  if (!survives_glpk([&] { glp_intopt(problem.get(), &parameters); })) {
    (void)problem.release();  // the thread frees it
    return Answer{0, {}, false};
  }
  const int found = glp_mip_status(problem.get());
  if (found != GLP_OPT && found != GLP_FEAS) {
    return nodes.ended ? std::optional(Answer{0, {}, false}) : std::nullopt;
  }
  Answer answer{glp_mip_obj_val(problem.get()) / unit, {}, found == GLP_OPT};
  answer.values.reserve(variables_.size());
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const double value = glp_mip_col_val(problem.get(), static_cast<int>(i) + 1) / unit;
    answer.values.push_back(variables_[i].integer ? std::round(value) : value);
  }
  return answer;
}

}  // namespace orrery::search
