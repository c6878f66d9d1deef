// SPDX-License-Identifier: Apache-2.0
// Collectives collected from many nccl-tests logs into one table (file,gpu,nodes,gpus_per_node,
// ranks,collective,dtype,bytes,time_us,time_inplace_us and, if there, busbw_GBps). A table
// index.csv in the same folder with the columns file, interconnect, nccl_version, launch and, if
// there, note adds what the rows do not say.
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/collective_log.hpp"
#include "calibrate/collective_row.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

std::map<std::string, SampleHeader> read_index(const std::string& path) {
  std::map<std::string, SampleHeader> headers;
  const std::filesystem::path index = std::filesystem::path(path).parent_path() / "index.csv";
  if (!std::filesystem::is_regular_file(index)) {
    return headers;
  }
  const CsvTable table = read_csv_file(index.string());
  for (const char* column : {"file", "interconnect", "nccl_version", "launch"}) {
    if (!table.has_column(column)) {
      return headers;
    }
  }
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    SampleHeader& header = headers[table.cell(row, "file")];
    header.fabric = printable(table.cell(row, "interconnect"));
    if (table.has_column("note")) {
      header.notes.push_back(printable(table.cell(row, "note")));
    }
    add_run_facts(header, table.cell(row, "nccl_version"), table.cell(row, "launch"));
  }
  return headers;
}

void read_row(const CsvTable& table, std::size_t index, ReadingBuilder& builder,
              const std::map<std::string, SampleHeader>& headers) {
  const TableRow row(table, index, builder);
  CollectiveSample sample{.kind = foreign_collective(row.text("collective")),
                          .bytes = row.count("bytes"),
                          .ranks = row.count("ranks"),
                          .ranks_per_node = row.count("gpus_per_node"),
                          .nodes = row.count("nodes")};
  if (sample.kind == sim::CommKind::None) {
    row.left_out("collective \"" + row.text("collective") + "\"");
    return;
  }
  if (sample.ranks != sample.ranks_per_node * sample.nodes) {
    builder.fault(table.where(index, "ranks"), "the ranks are not nodes x gpus_per_node");
    return;
  }
  const std::string file = row.has("file") ? row.text("file") : "";
  const auto known = headers.find(file);
  SampleHeader header = known == headers.end() ? SampleHeader{} : known->second;
  header.device = row.device();
  header.gpu = gpu_of(header.device);
  header.node = node_of(header.gpu, header.fabric);
  for (const char* column : {"time_us", "time_inplace_us"}) {
    if (!row.has(column) || row.text(column).empty()) {
      continue;
    }
    const double seconds = row.number(column) * 1e-6;
    // The bandwidth is that of the first time of the row.
    if (column == std::string_view("time_us") || row.text("time_us").empty()) {
      check_busbw(table, index, {.kind = sample.kind, .ranks = sample.ranks, .bytes = sample.bytes},
                  column);
    }
    sample.in_place = column == std::string_view("time_inplace_us");
    if (check_time(builder, table.where(index, column), seconds)) {
      builder.add(header, {.shape = sample,
                           .time = single_timing(Seconds(seconds)),
                           .implementation = row.has("dtype") ? row.text("dtype") : "",
                           .source = file.empty() ? builder.source(table.line(index)) : file,
                           .flags = {}});
    }
  }
}

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  const CsvTable table = parse_table(builder);
  const std::map<std::string, SampleHeader> headers = read_index(path);
  read_rows(table, builder, [&](std::size_t index) { read_row(table, index, builder, headers); });
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_nccl_rows = {
    .name = "nccl-rows",
    .what = "collective times (CSV)",
    .columns = "gpu,nodes,gpus_per_node,ranks,collective,bytes,time_us",
    .read = read,
};

}  // namespace orrery::calibrate
