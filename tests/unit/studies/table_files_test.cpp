// SPDX-License-Identifier: Apache-2.0
// Files of measurements as a whole: columns that may be missing and headers without rows.
#include <gmock/gmock.h>

#include <fstream>

#include "base/text.hpp"
#include "studies/validation/validation.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using ::testing::Contains;
using testing::csv_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

// The table of one row without a column.
std::string without_column(const std::string& name, testing::Changes changes = {}) {
  changes[name] = "";
  const std::string text = csv_of(changes);
  std::string header = text.substr(0, text.find('\n'));
  const std::string row = text.substr(text.find('\n') + 1);
  std::vector<std::string_view> names = split(header, ',');
  std::vector<std::string_view> cells = split(std::string_view(row).substr(0, row.size() - 1), ',');
  std::string kept_names;
  std::string kept_cells;
  for (std::size_t at = 0; at < names.size(); ++at) {
    if (names[at] != name) {
      kept_names.append(kept_names.empty() ? "" : ",").append(names[at]);
      kept_cells.append(kept_cells.empty() ? "" : ",").append(cells[at]);
    }
  }
  return kept_names + "\n" + kept_cells + "\n";
}

Measurement row_without(const std::string& column, const testing::Changes& changes = {}) {
  return read_measurements(parse_csv(without_column(column, changes), "t.csv"), "t").front();
}

TEST(TableFiles, ColumnsThatMayBeMissing) {
  EXPECT_EQ(row_without("config_id").config_id, "r1");
  EXPECT_THAT(row_without("confidence").remarks, Contains(HasSubstr("confidence not stated")));
  EXPECT_EQ(row_without("model_family").model_family, "");
  EXPECT_EQ(predict_training_row(row_without("model_family", {{"model_name", "gpt3-1.3b"}}), 0)
                .skipped_because,
            "");
  EXPECT_THAT(message_of([] { row_without("gpus"); }), HasSubstr("no column gpus"));
}

// A network of the zoo needs no column of its own, and what nobody states none either.
TEST(TableFiles, ANamedNetworkAndItsPlanAreARow) {
  const CsvTable table = parse_csv(
      "id,model_name,gpu,gpus,tp,pp,micro_batch,global_batch,measured_metric,measured_value\n"
      "r1,llama3-8b,h100-sxm5-80gb,8,2,1,1,32,iteration_s,5.2\n",
      "t.csv");
  const Measurement row = read_measurements(table, "t").front();
  const RowResult result = predict_training_row(row, 0);
  EXPECT_EQ(result.skipped_because, "");
  EXPECT_GT(result.predicted, 0);
}

TEST(TableFiles, HeadersWithoutRows) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = (folder.path() / name).string();
    std::ofstream(path) << text;
    return path;
  };
  const std::string text = csv_of();
  const std::string rows = write("rows.csv", text);
  const std::string header = write("header.csv", text.substr(0, text.find('\n') + 1));
  const ValidateOptions quick = {.interval_draws = 0};
  const Validation both = validate_files({header, rows}, quick);
  EXPECT_EQ(both.rows.size(), 1U);
  EXPECT_THAT(both.empty_files, ElementsAre(header));
  EXPECT_THAT(message_of([&] { validate_files({header}, quick); }), HasSubstr("there are no rows"));
  const std::string ragged = write("ragged.csv", text + "r2,c2\n");
  EXPECT_THAT(message_of([&] {
                validate_files({rows, ragged}, quick);
              }),
              HasSubstr("ragged.csv:3: 2 cells"));
}

}  // namespace
}  // namespace orrery::studies
