// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "base/error.hpp"
#include "studies/rows/table_cells.hpp"
#include "studies/validation/predictions.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::studies {
namespace {

std::vector<RowResult> predict_file(const std::string& path, const ValidateOptions& options) {
  const CsvTable table = read_csv_file(path);
  if (table.num_rows() == 0) {
    bad_input(path, "there are no rows below the names of the columns");
  }
  const std::string source = stem(path);
  if (is_measurement_table(table)) {
    return predict_training(table, source, options);
  }
  if (is_collective_table(table)) {
    return predict_collectives(table, source, options.jobs);
  }
  if (is_kernel_table(table)) {
    return predict_kernels(table, source, options.jobs);
  }
  bad_input(path, "the columns are not those of a table of measurements",
            "training runs have measured_metric; collectives have collective, bytes, time_us; "
            "kernels have gpu, dtype, time_us and m, n, k or heads, seqlen");
}

}  // namespace

Validation validate_files(const std::vector<std::string>& paths, const ValidateOptions& options) {
  std::vector<RowResult> rows;
  for (const std::string& path : paths) {
    std::vector<RowResult> of_file = predict_file(path, options);
    std::move(of_file.begin(), of_file.end(), std::back_inserter(rows));
  }
  return summarise(std::move(rows));
}

}  // namespace orrery::studies
