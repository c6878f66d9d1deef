// SPDX-License-Identifier: Apache-2.0
// The linear program of per_block_bound.hpp for one mesh and pipeline. Times in parts of `until`,
// bytes in parts of a device's memory.
#pragma once

#include <utility>
#include <vector>

#include "plan/layout_bounds.hpp"
#include "plan/live_counts.hpp"
#include "plan/plan_schedule.hpp"
#include "plan/transfers.hpp"
#include "search/critical_path.hpp"
#include "search/linear_program.hpp"
#include "search/per_block_costs.hpp"

namespace orrery::search {

// Fractions of blocks: of virtual stage s, kind b, the c-th choice.
struct Shares {
  std::vector<std::vector<std::vector<double>>> blocks;
};

// Bytes that states and activations of a device may take, at most.
double device_memory(const plan::Plan& plan, const MeshCosts& costs);

class PipelineProgram {
 public:
  // `plan` has the mesh and the pipeline.
  PipelineProgram(const plan::Plan& plan, const Pipeline& pipeline,
                  const plan::ScheduleTraits& traits, const MeshCosts& costs, double until,
                  plan::TransferTimes& transfers);

  // Memory at the peaks of known lists.
  void add_memory(const std::vector<plan::LiveCounts>& live);
  // Memory of whatever lists.
  void add_memory_of_any_order();
  // The longest path of the lists where the last answer puts the passes.
  void add_path(const sim::PipelineOrder& order, const LinearProgram::Answer& answer);

  LinearProgram::Answer solve() { return program_.solve(); }
  Shares shares(const LinearProgram::Answer& answer) const;
  // All blocks on the fastest choice, as the plan is cut.
  Shares even_shares() const;
  std::size_t num_columns() const { return num_columns_; }

 private:
  using Terms = std::vector<std::pair<int, double>>;
  struct Column {
    std::size_t block = 0;
    std::size_t choice = 0;
    int variable = 0;
  };

  void add_columns();
  void add_passes();
  void add_device_paths();
  void at_least(int variable, std::size_t stage, double BlockChoice::* part);
  const BlockChoice& choice(const Column& column) const {
    return costs_.choices[column.block][column.choice];
  }
  bool may_hold(std::size_t stage, std::size_t block) const;

  const plan::Plan& plan_;
  const Pipeline& pipeline_;
  const plan::ScheduleTraits traits_;
  const MeshCosts& costs_;
  double until_;
  double room_;
  std::size_t stages_;
  std::size_t num_columns_ = 0;
  LinearProgram program_;
  int time_ = 0;
  std::vector<std::vector<Column>> columns_;  // by virtual stage
  std::vector<int> forward_;
  std::vector<int> backward_;
  std::vector<int> input_grad_;   // where backwards are cut
  std::vector<int> weight_grad_;
  std::vector<SimTime> sends_;
};

}  // namespace orrery::search
