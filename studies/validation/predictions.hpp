// SPDX-License-Identifier: Apache-2.0
// Predictions for the three kinds of measurement tables. Each function returns one result a row, in
// order, on `jobs` threads.
#pragma once

#include <string>
#include <vector>

#include "base/csv.hpp"
#include "base/units.hpp"
#include "costmodel/profile.hpp"
#include "plan/block/kernels.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::studies {

// The 80 % interval of a kernel or collective, as the intervals of iterations draw its errors.
void set_interval(Seconds predicted, const costmodel::Spreads& spreads, plan::CostClass kind,
                  RowResult& result);

// One row on the calling thread; what cannot be simulated says why in `skipped_because`.
RowResult predict_training_row(const Measurement& row, int interval_draws);
std::vector<RowResult> predict_training(const CsvTable& table, const std::string& source,
                                        const ValidateOptions& options);

// Columns file, gpu, nodes, gpus_per_node, ranks, collective, bytes, time_us.
bool is_collective_table(const CsvTable& table);
std::vector<RowResult> predict_collectives(const CsvTable& table, const std::string& source,
                                           int jobs);

// Tables of kernels (kernel_tables.hpp).
bool is_kernel_table(const CsvTable& table);
std::vector<RowResult> predict_kernels(const CsvTable& table, const std::string& source, int jobs);

}  // namespace orrery::studies
