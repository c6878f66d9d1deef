// SPDX-License-Identifier: Apache-2.0
#include "base/csv.hpp"

#include <gmock/gmock.h>

#include <array>
#include <filesystem>

#include "tests/folders.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

std::string csv_message(std::string_view text) {
  return message_of([&] { parse_csv(text, "t.csv"); });
}

TEST(CsvTest, ReadsPlainAndQuotedCells) {
  const CsvTable table = parse_csv(
      "name,note,n\r\n"
      "a,\"one, \"\"two\"\"\nthree\",1\r\n"
      "\r\n"
      " b ,,2",
      "t.csv");
  EXPECT_THAT(table.header(), ElementsAre("name", "note", "n"));
  ASSERT_EQ(table.num_rows(), 2U);
  EXPECT_EQ(table.cell(0, "note"), "one, \"two\"\nthree");
  EXPECT_EQ(table.cell(0, "n"), "1");
  EXPECT_EQ(table.cell(1, "name"), "b");
  EXPECT_EQ(table.cell(1, "note"), "");
  EXPECT_EQ(table.where(0, "n"), "t.csv:2: n");
  EXPECT_EQ(table.where(1, "n"), "t.csv:5: n");
  EXPECT_TRUE(table.has_column("n"));
  EXPECT_FALSE(table.has_column("m"));
}

TEST(CsvTest, HeaderOnlyAndEmptyQuotedCells) {
  EXPECT_EQ(parse_csv("a,b\n", "t").num_rows(), 0U);
  const CsvTable table = parse_csv("a,b\n\"\",\"\"\"\"\n", "t");
  EXPECT_EQ(table.cell(0, "a"), "");
  EXPECT_EQ(table.cell(0, "b"), "\"");
}

TEST(CsvTest, HeadersInCapitalsAndWithALastComma) {
  const CsvTable table = parse_csv("Name,M,m,\na,1,2,\nb,3,4\n", "t.csv");
  EXPECT_THAT(table.header(), ElementsAre("Name", "M", "m"));
  EXPECT_EQ(table.cell(0, "name"), "a");
  EXPECT_EQ(table.cell(0, "m"), "2");
  EXPECT_EQ(table.cell(1, "M"), "3");
  EXPECT_FALSE(table.has_column("NAME"));
  EXPECT_NO_THROW(table.expect_columns(std::to_array<std::string_view>({"name", "m", "M"})));
  EXPECT_EQ(csv_message("a,b,\n1,2,3\n"), "t.csv:2: 3 cells (the header has 2)");
}

TEST(CsvTest, UnknownColumnsSuggestTheNearest) {
  const CsvTable table = parse_csv("name,layers\na,1\n", "t.csv");
  EXPECT_EQ(message_of([&] { table.cell(0, "layer"); }),
            "t.csv: no column \"layer\" (did you mean \"layers\"?)");
}

TEST(CsvTest, OnlyExpectedColumns) {
  const CsvTable table = parse_csv("time,bytes\n1,2\n", "t.csv");
  EXPECT_NO_THROW(table.expect_columns(std::to_array<std::string_view>({"time", "bytes", "x"})));
  EXPECT_EQ(message_of([&] {
              table.expect_columns(std::to_array<std::string_view>({"time", "byte"}));
            }),
            "t.csv: unknown column \"bytes\" (did you mean \"byte\"?)");
}

TEST(CsvTest, BadTablesNameTheLine) {
  EXPECT_EQ(csv_message(""), "t.csv: empty table (the first line names the columns)");
  EXPECT_EQ(csv_message("a,b\n1,2\n1\n"), "t.csv:3: 1 cells (the header has 2)");
  EXPECT_EQ(csv_message("a,b\n1,2,3\n"), "t.csv:2: 3 cells (the header has 2)");
  EXPECT_EQ(csv_message("a,a\n"), "t.csv:1: two columns are named \"a\"");
  EXPECT_EQ(csv_message("a;b\n1;2\n"),
            "t.csv:1: columns are separated by ';' (separate them by commas)");
  EXPECT_THAT(csv_message("a\tb\n1\t2\n"), HasSubstr("separated by tabs"));
  EXPECT_THAT(csv_message("a,,b\n"), HasSubstr("t.csv:1: column without a name"));
  EXPECT_THAT(csv_message("a,b\n1,\"x\n"), HasSubstr("t.csv:2: quoted cell without an end"));
  EXPECT_THAT(csv_message("a,b\n1,\"x\"y\n"), HasSubstr("text after a closing quote"));
  EXPECT_THAT(csv_message("a,b\n1,x\"y\n"), HasSubstr("quote inside a cell"));
  EXPECT_THAT(csv_message(std::string_view("a\n\0\n", 4)), HasSubstr("NUL byte"));
  EXPECT_THAT(csv_message("a\n" + std::string(65'537, 'x')), HasSubstr("more than 65536 bytes"));
  EXPECT_THAT(csv_message(std::string(300, ',')), HasSubstr("more than 256 columns"));
}

TEST(CsvTest, FilesThatCannotBeReadAreErrors) {
  EXPECT_THAT(message_of([] { read_csv_file("/nonexistent.csv"); }), HasSubstr("No such file"));
  EXPECT_THAT(message_of([] { read_csv_file("/"); }), HasSubstr("Is a directory"));
}

TEST(CsvTest, ReadsTheSharedTables) {
  const std::filesystem::path shared = orrery::shared_folder() / "measurements";
  if (!std::filesystem::exists(shared)) {
    GTEST_SKIP() << "the shared measurements are not here";
  }
  for (const auto& entry : std::filesystem::directory_iterator(shared)) {
    if (entry.path().extension() == ".csv") {
      EXPECT_GT(read_csv_file(entry.path().string()).num_rows(), 0U) << entry.path();
    }
  }
}

}  // namespace
}  // namespace orrery
