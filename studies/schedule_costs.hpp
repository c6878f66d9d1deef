// SPDX-License-Identifier: Apache-2.0
// Measured or estimated pass times for `orrery schedule --costs FILE`, as JSON or CSV
// (docs/cli.md): a row per device share (a chunk takes its part) or per virtual stage, and rows
// for single micro-batches that differ. O(virtual stages x micro-batches) when some do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/sim_time.hpp"
#include "base/units.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/schedule.hpp"

namespace orrery::studies {

struct CostTable {
  struct Row {
    SimTime forward;
    SimTime input_grad;
    SimTime weight_grad;
    SimTime send;          // to the next stage, when it is on another device
    ByteCount activation;  // of one micro-batch
    // The part of it that only the weight gradient frees; none: all of it.
    std::optional<ByteCount> weight_grad_activation{};
    SimTime prediction{};  // of the parameters, where the schedule predicts them
    SimTime reduce{};      // all-reduce of the gradients, where the stage is on several devices
  };
  struct UnitRow {
    int stage = 0;
    int micro_batch = 0;
    Row row;  // `send` and the activations are those of the stage
  };
  std::string where;
  std::vector<Row> stages;
  std::vector<UnitRow> units;
  // Whether some stage states what the weight gradient frees.
  bool splits_activations() const;
};

// By the file's ending: .csv, else JSON.
CostTable read_cost_table(const std::string& path);

// Error when the table has neither a row per device nor one per virtual stage of the order; of
// replicated stages one per stage.
sim::ShareCosts table_costs(const sim::PipelineOrder& order, const CostTable& table);

// What a schedule that plans with times is given: per virtual stage of `order` its times on the
// device it has there, and the part of its activations that only the weight gradient frees; all
// keep as much.
void plan_with_table(const sim::PipelineOrder& order, const CostTable& table,
                     sim::ScheduleParams& params);

}  // namespace orrery::studies
