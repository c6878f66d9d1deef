// SPDX-License-Identifier: Apache-2.0
// A linear program whose optimum is a certificate: GLPK finds the prices of the rows, and the bound
// is then computed from these prices alone (weak duality), so that neither tolerances nor an early
// end of the solver can make it too high:
//     min c x, x in [0, u], rows  >=  prices y b + sum_j min(0, c_j - y A_j) u_j  for every y >= 0
// That no solution exists is not taken from the solver either: rows may be missed at a price, and
// the bound says how much that costs at least.
// Variables may be idle: the solver gets them when the prices ask for them (column generation); the
// bound counts them always. So may rows: the solver gets them when its solution misses them. Rows
// may be added after a solution; the next one starts from it, and the first one from where a
// program with mostly the same rows and variables ended. One thread at a time; deterministic unless
// it is told to stop.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
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
  int add_variable(double most, double cost, bool idle = false, int group = -1);
  // The solver gets an idle one from the beginning.
  void begin_with(int variable);
  // Variables of a group sum up to no more than `most` in solutions of interest.
  int add_group(double most);
  // sum of coefficient x variable >= low. Returns the row.
  int add_row(std::vector<std::pair<int, double>> terms, double low);
  // Whether rows that are added from here on are idle.
  void add_idle_rows(bool idle) { adds_idle_ = idle; }
  // Rows that the last solution satisfies with something to spare; their numbers are not used
  // again.
  void drop_rows(const std::vector<int>& rows);

  // Rows and variables are known to other programs by their number within a part.
  enum class Part : std::uint8_t { Base, Ranges, Paths, Peaks, Rest };
  // Of the rows and variables that are added from here on.
  void begin_part(Part part) { part_ = part; }
  // Where a solution ended: rows that hold with nothing to spare, and variables that are not at a
  // bound; ascending.
  struct Basis {
    std::vector<std::uint32_t> rows;
    std::vector<std::uint32_t> variables;
  };
  // Rows of `paths` are known as the ones of that part from 0 on; other rows of it and of the rest
  // are not.
  Basis basis(const std::vector<int>& paths) const;
  // Before the first solution. What the basis names and this program lacks is left out.
  void begin_with(const Basis& basis);

  struct Answer {
    bool solved = true;  // false: no x satisfies the rows, or the solver gave up
    double bound = 0;    // never above the optimum; large where no x satisfies the rows
    std::vector<double> values;
  };
  Answer solve();
  // Before the first solution: all zero.
  Answer unsolved() const { return {false, 0.0, std::vector<double>(variables_.size(), 0.0)}; }

  // Asked now and then while the solver works; the bound is then what is known by then.
  void stop_when(std::function<bool()> stop) { stop_ = std::move(stop); }
  // No more columns are asked for where the bound is not below this.
  void stop_at(double bound) { enough_ = bound; }

 private:
  using Terms = std::vector<std::pair<int, double>>;
  struct Row {
    Terms terms;
    double low;
    int place;  // of the solver; 0: idle or dropped
    std::uint32_t name;
  };
  struct Variable {
    double most;
    double cost;
    int column;  // of the solver; 0: idle
    int group;
    Terms rows;  // (row, coefficient)
    std::uint32_t name;
  };
  struct Solver;
  bool optimise(bool after_rows);
  std::vector<double> values() const;  // of the variables at the solver's solution
  std::vector<double> prices() const;
  // Of the prices; `reduced` is what each variable costs at them.
  double bound_of(const std::vector<double>& prices, std::vector<double>& reduced) const;
  bool wake(const std::vector<double>& reduced);
  void wake(int variable);
  // Idle rows that the solver's solution misses; false if there are none.
  bool wake_rows();
  void place(int row);
  bool take_basis();

  std::vector<Variable> variables_;
  std::vector<Row> rows_;
  std::vector<int> placed_;  // rows in the order of the solver
  std::vector<double> groups_;
  int missing_;  // a variable that satisfies every row by itself, at a price
  std::function<bool()> stop_;
  double enough_ = std::numeric_limits<double>::infinity();
  std::unique_ptr<Solver> solver_;
  bool adds_idle_ = false;
  std::vector<int> idle_;  // rows
  Part part_ = Part::Base;
  std::array<std::uint32_t, 5> num_rows_{};  // by part
  std::array<std::uint32_t, 5> num_variables_{};
  Basis start_;
};

}  // namespace orrery::search
