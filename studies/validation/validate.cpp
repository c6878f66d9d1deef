// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "base/error.hpp"
#include "plan/simulation/interval.hpp"
#include "studies/rows/table_cells.hpp"
#include "studies/validation/predictions.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::studies {
namespace {

CsvTable table_of(const std::string& path) {
  CsvTable table = read_csv_file(path);
  if (!is_measurement_table(table) && !is_collective_table(table) && !is_kernel_table(table)) {
    bad_input(path, "the columns are not those of a table of measurements",
              "training runs have measured_metric; collectives have collective, bytes, time_us; "
              "kernels have gpu, dtype, time_us and m, n, k or heads, seqlen");
  }
  return table;
}

std::vector<RowResult> predict(const CsvTable& table, const std::string& source,
                               const ValidateOptions& options) {
  if (is_measurement_table(table)) {
    return predict_training(table, source, options);
  }
  return is_collective_table(table) ? predict_collectives(table, source, options.jobs)
                                    : predict_kernels(table, source, options.jobs);
}

}  // namespace

void set_interval(Seconds predicted, const costmodel::Spreads& spreads, plan::CostClass kind,
                  RowResult& result) {
  const plan::TimeInterval interval = plan::interval_of(spreads, kind, predicted);
  result.low = interval.low.value();
  result.high = interval.high.value();
}

Validation validate_files(const std::vector<std::string>& paths, const ValidateOptions& options) {
  std::vector<CsvTable> tables;  // all are read before any takes time
  std::vector<std::string> empty;
  for (const std::string& path : paths) {
    tables.push_back(table_of(path));
    if (tables.back().num_rows() == 0) {
      empty.push_back(path);
    }
  }
  if (!empty.empty() && empty.size() == paths.size()) {
    bad_input(empty.front(), "there are no rows below the names of the columns");
  }
  std::vector<RowResult> rows;
  for (std::size_t index = 0; index < paths.size(); ++index) {
    std::vector<RowResult> of_file = predict(tables[index], stem(paths[index]), options);
    std::move(of_file.begin(), of_file.end(), std::back_inserter(rows));
  }
  Validation validation = summarise(std::move(rows));
  validation.empty_files = std::move(empty);
  return validation;
}

}  // namespace orrery::studies
