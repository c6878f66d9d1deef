// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/linear_program.hpp"

#include <glpk.h>

#include <algorithm>
#include <cmath>

#include "search/problems/glpk_thread.hpp"

namespace orrery::search {

namespace {

// Sums of a few thousand doubles are exact to far less than this.
constexpr double kRowRounding = 1e-11;
constexpr int kIterationsAtOnce = 200;  // between two looks whether to stop
constexpr int kMostIterations = 4'000;
// What missing rows by their whole bound costs: rows that are missed by a ten-thousandth of it
// raise the bound by one.
constexpr double kPriceOfMissing = 1e4;
constexpr double kMissed = 1e-7;
constexpr int kMostWakings = 600;
constexpr std::size_t kWokenAtOnce = 200;
constexpr double kGain = 1e-8;       // of a variable that is worth waking
constexpr double kPrecision = 1e-5;  // of the bound, where idle variables are left

constexpr std::uint32_t kMostNamed = 1U << 24;  // of a part

std::uint32_t name_of(LinearProgram::Part part, std::uint32_t number) {
  return static_cast<std::uint32_t>(part) * kMostNamed + number;
}

}  // namespace

struct LinearProgram::Solver {
  Solver() {
    free_glpk_with_thread();
    problem = glp_create_prob();
    glp_set_obj_dir(problem, GLP_MIN);
  }
  ~Solver() { glp_delete_prob(problem); }
  // Begins anew with the same program, and leaves the old one, which GLPK has broken, to the
  // thread.
  void replace() {
    glp_prob* const broken = problem;
    problem = glp_create_prob();
    glp_copy_prob(problem, broken, GLP_OFF);
  }
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;
  glp_prob* problem = nullptr;
  bool solved = false;
};

LinearProgram::LinearProgram() : solver_(std::make_unique<Solver>()) {
  missing_ = add_variable(1.0, kPriceOfMissing);
}
LinearProgram::~LinearProgram() = default;
LinearProgram::LinearProgram(LinearProgram&&) noexcept = default;

int LinearProgram::add_variable(double most, double cost, bool idle, int group) {
  const std::uint32_t name = name_of(part_, num_variables_[static_cast<std::size_t>(part_)]++);
  variables_.push_back({most, cost, 0, group, {}, name});
  const int variable = static_cast<int>(variables_.size()) - 1;
  if (!idle) {
    wake(variable);
  }
  return variable;
}

int LinearProgram::add_group(double most) {
  groups_.push_back(most);
  return static_cast<int>(groups_.size()) - 1;
}

void LinearProgram::begin_with(int variable) {
  if (variables_[static_cast<std::size_t>(variable)].column == 0) {
    wake(variable);
  }
}

void LinearProgram::wake(int index) {
  Variable& variable = variables_[static_cast<std::size_t>(index)];
  glp_prob* problem = solver_->problem;
  variable.column = glp_add_cols(problem, 1);
  glp_set_col_bnds(problem, variable.column, GLP_DB, 0.0, variable.most);
  glp_set_obj_coef(problem, variable.column, variable.cost);
  std::vector<int> rows(1, 0);  // GLPK counts from one
  std::vector<double> coefficients(1, 0.0);
  for (const auto& [row, coefficient] : variable.rows) {
    const int place = rows_[static_cast<std::size_t>(row)].place;
    if (place > 0) {
      rows.push_back(place);
      coefficients.push_back(coefficient);
    }
  }
  glp_set_mat_col(problem, variable.column, static_cast<int>(rows.size()) - 1, rows.data(),
                  coefficients.data());
}

int LinearProgram::add_row(Terms terms, double low) {
  terms.push_back({missing_, std::max(1.0, low)});
  const int row = static_cast<int>(rows_.size());
  for (const auto& [index, coefficient] : terms) {
    variables_[static_cast<std::size_t>(index)].rows.push_back({row, coefficient});
  }
  const std::uint32_t name = name_of(part_, num_rows_[static_cast<std::size_t>(part_)]++);
  rows_.push_back({std::move(terms), low, 0, name});
  if (adds_idle_) {
    idle_.push_back(row);
  } else {
    place(row);
  }
  return row;
}

void LinearProgram::place(int index) {
  Row& row = rows_[static_cast<std::size_t>(index)];
  glp_prob* problem = solver_->problem;
  row.place = glp_add_rows(problem, 1);
  glp_set_row_bnds(problem, row.place, GLP_LO, row.low, 0.0);
  std::vector<int> columns(1, 0);  // GLPK counts from one
  std::vector<double> coefficients(1, 0.0);
  for (const auto& [variable, coefficient] : row.terms) {
    const int column = variables_[static_cast<std::size_t>(variable)].column;
    if (column > 0) {
      columns.push_back(column);
      coefficients.push_back(coefficient);
    }
  }
  glp_set_mat_row(problem, row.place, static_cast<int>(columns.size()) - 1, columns.data(),
                  coefficients.data());
  placed_.push_back(index);
}

std::vector<double> LinearProgram::values() const {
  std::vector<double> values;
  values.reserve(variables_.size());
  for (const Variable& variable : variables_) {
    const int column = variable.column;
    values.push_back(column > 0 ? glp_get_col_prim(solver_->problem, column) : 0.0);
  }
  return values;
}

bool LinearProgram::wake_rows() {
  const std::vector<double> here = values();
  const auto is_met = [&](int index) {
    const Row& row = rows_[static_cast<std::size_t>(index)];
    double value = 0;
    for (const auto& [variable, coefficient] : row.terms) {
      value += coefficient * here[static_cast<std::size_t>(variable)];
    }
    return value >= row.low - kMissed;
  };
  const auto missed = std::stable_partition(idle_.begin(), idle_.end(), is_met);
  const bool found = missed != idle_.end();
  std::for_each(missed, idle_.end(), [&](int row) { place(row); });
  idle_.erase(missed, idle_.end());
  return found;
}

// What the solver knows of the others stays as it is: a row with something to spare is in its
// basis.
void LinearProgram::drop_rows(const std::vector<int>& rows) {
  std::vector<int> places(1, 0);
  for (const int row : rows) {
    Row& dropped = rows_[static_cast<std::size_t>(row)];
    if (dropped.place > 0 && glp_get_row_stat(solver_->problem, dropped.place) == GLP_BS) {
      places.push_back(dropped.place);
      dropped.place = 0;
      for (const auto& [variable, coefficient] : dropped.terms) {
        std::erase_if(variables_[static_cast<std::size_t>(variable)].rows,
                      [&](const auto& term) { return term.first == row; });
      }
      dropped.terms.clear();
    }
  }
  if (places.size() == 1) {
    return;
  }
  glp_del_rows(solver_->problem, static_cast<int>(places.size()) - 1, places.data());
  std::erase_if(placed_, [&](int row) { return rows_[static_cast<std::size_t>(row)].place == 0; });
  for (std::size_t place = 0; place < placed_.size(); ++place) {
    rows_[static_cast<std::size_t>(placed_[place])].place = static_cast<int>(place) + 1;
  }
}

double LinearProgram::bound_of(const std::vector<double>& prices,
                               std::vector<double>& reduced) const {
  reduced.clear();
  for (const Variable& variable : variables_) {
    reduced.push_back(variable.cost);
  }
  double bound = 0;
  double size = 0;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const double price = prices[row];
    if (price == 0.0) {
      continue;
    }
    bound += price * rows_[row].low;
    size += std::abs(price * rows_[row].low);
    for (const auto& [variable, coefficient] : rows_[row].terms) {
      reduced[static_cast<std::size_t>(variable)] -= price * coefficient;
    }
  }
  std::vector<double> least(groups_.size(), 0.0);
  std::vector<double> sums(groups_.size(), 0.0);  // where that is less
  for (std::size_t index = 0; index < variables_.size(); ++index) {
    const Variable& variable = variables_[index];
    const double gain = std::min(0.0, reduced[index]) * variable.most;
    if (variable.group >= 0) {
      const auto group = static_cast<std::size_t>(variable.group);
      least[group] = std::min(least[group], reduced[index] * groups_[group]);
      sums[group] += gain;
    } else {
      bound += gain;
      size += std::abs(gain);
    }
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const double gain = std::max(least[group], sums[group]);
    bound += gain;
    size += std::abs(gain);
  }
  return bound - size * kRowRounding;
}

std::vector<double> LinearProgram::prices() const {
  std::vector<double> prices(rows_.size(), 0.0);
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const int place = rows_[row].place;
    prices[row] = place > 0 ? std::max(0.0, glp_get_row_dual(solver_->problem, place)) : 0.0;
  }
  return prices;
}

LinearProgram::Basis LinearProgram::basis(const std::vector<int>& paths) const {
  glp_prob* problem = solver_->problem;
  Basis basis;
  const auto binds = [&](int row) {
    const int place = rows_[static_cast<std::size_t>(row)].place;
    return place > 0 && glp_get_row_stat(problem, place) != GLP_BS;
  };
  for (const int row : placed_) {
    const std::uint32_t name = rows_[static_cast<std::size_t>(row)].name;
    const bool is_path = name / kMostNamed == static_cast<std::uint32_t>(Part::Paths);
    if (!is_path && name < name_of(Part::Rest, 0) && binds(row)) {
      basis.rows.push_back(name);
    }
  }
  for (std::size_t path = 0; path < paths.size(); ++path) {
    if (binds(paths[path])) {
      basis.rows.push_back(name_of(Part::Paths, static_cast<std::uint32_t>(path)));
    }
  }
  for (const Variable& variable : variables_) {
    if (variable.column > 0 && glp_get_col_stat(problem, variable.column) == GLP_BS) {
      basis.variables.push_back(variable.name);
    }
  }
  std::sort(basis.rows.begin(), basis.rows.end());
  std::sort(basis.variables.begin(), basis.variables.end());
  return basis;
}

void LinearProgram::begin_with(const Basis& basis) { start_ = basis; }

// There are as many variables in a basis as rows that bind. Of rows that bind and are not here, as
// paths through a peak, others take the place, new ones first; or else variables leave. False:
// there is nothing to begin with.
bool LinearProgram::take_basis() {
  if (start_.variables.empty()) {
    return false;
  }
  glp_prob* problem = solver_->problem;
  const auto holds = [](const std::vector<std::uint32_t>& names, std::uint32_t name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  for (std::size_t index = 0; index < variables_.size(); ++index) {
    if (holds(start_.variables, variables_[index].name)) {
      begin_with(static_cast<int>(index));
    }
  }
  std::erase_if(idle_, [&](int row) {
    const bool is_named = holds(start_.rows, rows_[static_cast<std::size_t>(row)].name);
    if (is_named) {
      place(row);
    }
    return is_named;
  });
  int spare = 0;  // variables without a row
  for (const Variable& variable : variables_) {
    if (variable.column > 0) {
      const bool is_named = holds(start_.variables, variable.name);
      glp_set_col_stat(problem, variable.column, is_named ? GLP_BS : GLP_NL);
      spare += is_named ? 1 : 0;
    }
  }
  for (const int row : placed_) {
    const bool is_named = holds(start_.rows, rows_[static_cast<std::size_t>(row)].name);
    const bool binds = is_named && spare > 0;
    glp_set_row_stat(problem, rows_[static_cast<std::size_t>(row)].place, binds ? GLP_NL : GLP_BS);
    spare -= binds ? 1 : 0;
  }
  for (auto row = placed_.rbegin(); row != placed_.rend() && spare > 0; ++row) {
    const Row& last = rows_[static_cast<std::size_t>(*row)];
    if (glp_get_row_stat(problem, last.place) == GLP_BS) {
      glp_set_row_stat(problem, last.place, GLP_NL);
      --spare;
    }
  }
  start_ = {};
  return true;
}

// Whether the solver says that it is at the optimum of what it was given.
bool LinearProgram::optimise(bool after_rows) {
  glp_prob* problem = solver_->problem;
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.it_lim = kIterationsAtOnce;
  // New rows leave the prices of the old ones feasible.
  parameters.meth = after_rows ? GLP_DUALP : GLP_PRIMAL;
  for (int done = 0; done < kMostIterations; done += kIterationsAtOnce) {
    int code = 0;
    if (!survives_glpk([&] { code = glp_simplex(problem, &parameters); })) {
      solver_->replace();
      return false;
    }
    if (code != GLP_EITLIM) {
      return code == 0 && glp_get_status(problem) == GLP_OPT;
    }
    if (stop_ && stop_()) {
      return false;
    }
  }
  return false;
}

// Those with most to gain; false if there are none.
bool LinearProgram::wake(const std::vector<double>& reduced) {
  std::vector<std::pair<double, int>> gains;
  for (std::size_t variable = 0; variable < variables_.size(); ++variable) {
    const double gain = reduced[variable];
    if (variables_[variable].column == 0 && gain < -kGain) {
      gains.push_back({gain, static_cast<int>(variable)});
    }
  }
  const std::size_t count = std::min(gains.size(), kWokenAtOnce);
  std::partial_sort(gains.begin(), gains.begin() + static_cast<std::ptrdiff_t>(count), gains.end());
  for (std::size_t index = 0; index < count; ++index) {
    wake(gains[index].second);
  }
  return count > 0;
}

LinearProgram::Answer LinearProgram::solve() {
  glp_term_out(GLP_OFF);
  bool after_rows = solver_->solved;
  if (!solver_->solved) {
    after_rows = take_basis();
    glp_scale_prob(solver_->problem, GLP_SF_AUTO);
    if (!after_rows) {
      glp_adv_basis(solver_->problem, 0);
    }
  }
  Answer answer;
  answer.bound = -1e300;
  std::vector<double> reduced;
  for (int waking = 0;; ++waking) {
    solver_->solved = optimise(after_rows);
    if (!solver_->solved && !(stop_ && stop_())) {  // in circles from there: from the beginning
      glp_adv_basis(solver_->problem, 0);
      solver_->solved = optimise(false);
    }
    answer.bound = std::max(answer.bound, bound_of(prices(), reduced));
    if (!solver_->solved || waking == kMostWakings || (stop_ && stop_()) ||
        answer.bound >= enough_) {
      break;
    }
    after_rows = wake_rows();
    if (after_rows) {
      continue;
    }
    const double left = glp_get_obj_val(solver_->problem) - answer.bound;
    if (left <= kPrecision * std::abs(answer.bound) || !wake(reduced)) {
      break;
    }
  }
  answer.values = values();
  const double missed = answer.values[static_cast<std::size_t>(missing_)];
  answer.solved = solver_->solved && missed <= kMissed;
  return answer;
}

}  // namespace orrery::search
