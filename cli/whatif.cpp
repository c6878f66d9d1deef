// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/named_files.hpp"
#include "cli/command/output_paths.hpp"
#include "cli/report/cost.hpp"
#include "cli/report/report.hpp"
#include "search/tree/mpi_ranks.hpp"
#include "studies/sweeps/sweep.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kWhatifExamples = R"(
SWEEP.json, for example:
  {"schema": "orrery-sweep", "version": 1, "name": "memory and links",
   "network": "llama3-70b", "cluster": "hgx-h100:8", "batch": 512,
   "axes": [{"field": "gpu.memory", "from": "64 GB", "to": "256 GB", "count": 4},
            {"field": "node.scale_out.nic_bandwidth", "values": ["25 GB/s", "50 GB/s", "100 GB/s"]}]}
Fields: network, cluster, batch, sequence, precision, profile, memory_reserve, every path of --set,
and what --fix takes ("fix.tp"). "random": {"points": 50, "seed": 1} samples instead of a grid.

Examples:
  orrery whatif sweep.json
  orrery whatif sweep.json --output study/memory      study/memory.{json,csv,svg}
  orrery whatif sweep.json                            again: goes on where it ended)";

constexpr std::size_t kRowsPrinted = 40;
constexpr std::chrono::seconds kBetweenTables{1};

struct WhatifOptions {
  std::string path;
  std::string output_path;
  std::string jobs = "0";
  OutputOptions output;
};

constexpr std::array<const char*, 3> kSuffixes = {".json", ".csv", ".svg"};

// "sweep.json" gives "sweep-result", beside which nothing else is called so; in a folder that is
// stated. A suffix that one of the files will have anyway may be stated.
std::string stem_of(const WhatifOptions& options) {
  std::filesystem::path path = options.output_path;
  std::error_code error;
  const bool is_device =
      std::filesystem::exists(path, error) && std::filesystem::is_other(path, error);
  if (path == "-" || is_device) {
    bad_input("--output", fmt::format("{} takes one file, and a sweep writes three", path.string()),
              "a name without suffix: --output results");
  }
  const bool folder =
      options.output_path.ends_with('/') || std::filesystem::is_directory(path, error);
  if (!path.empty() && !folder) {
    const bool is_one =
        std::find(kSuffixes.begin(), kSuffixes.end(), path.extension().string()) != kSuffixes.end();
    return is_one ? path.replace_extension().string() : path.string();
  }
  const std::filesystem::path stem = std::filesystem::path(options.path).stem();
  const std::string name =
      (stem.empty() || stem == "-" ? std::string("sweep") : stem.string()) + "-result";
  return (path / name).string();
}

void write_tables(const studies::Sweep& sweep, const std::vector<studies::SweepPoint>& points,
                  const std::string& stem) {
  write_file_atomically(stem + ".json", studies::sweep_json(sweep, points).dump() + "\n");
  write_file_atomically(stem + ".csv", studies::sweep_csv(sweep, points));
}

// Numbers the messages of failed points, each once.
class Failures {
 public:
  std::size_t number(const std::string& message) {
    const auto found = std::find(messages_.begin(), messages_.end(), message);
    const auto index = static_cast<std::size_t>(found - messages_.begin());
    if (found == messages_.end()) {
      messages_.push_back(message);
    }
    return index + 1;
  }
  // A line each.
  std::string text() const {
    std::string lines;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      lines += fmt::format("({}) {}\n", i + 1, messages_[i]);
    }
    return lines.empty() ? lines : "\n" + lines;
  }

 private:
  std::vector<std::string> messages_;
};

std::string point_text(const studies::SweepPoint& point, Failures& failures) {
  switch (point.state) {
    case studies::PointState::Found:
      return point.layout;
    case studies::PointState::Infeasible:
      return "nothing fits";
    case studies::PointState::Failed:
      return fmt::format("failed ({})", failures.number(point.message));
    case studies::PointState::Pending:
      break;
  }
  return "not searched";
}

double dollars_per_trillion_tokens(const studies::SweepPoint& point) {
  return point.usd_per_hour / kHour.value() / point.tokens_per_s * 1e12;
}

std::string results_text(const studies::Sweep& sweep,
                         const std::vector<studies::SweepPoint>& points) {
  std::vector<TextTable::Column> columns;
  for (const std::string& field : sweep.fields) {
    columns.push_back({field});
  }
  for (const char* name : {"iteration", "tokens/s", "MFU", "memory"}) {
    columns.push_back({name, Align::Right});
  }
  const bool priced = studies::all_priced(points);
  if (priced) {
    columns.push_back({"USD per trillion tokens", Align::Right});
  }
  columns.push_back({"plan"});
  TextTable table(columns);
  Failures failures;
  for (std::size_t i = 0; i < std::min(points.size(), kRowsPrinted); ++i) {
    const studies::SweepPoint& point = points[i];
    std::vector<std::string> row = sweep.points[i];
    const bool found = point.state == studies::PointState::Found;
    row.push_back(found ? format_duration(Seconds(point.iteration_time_s)) : "");
    row.push_back(found ? format_count(point.tokens_per_s) : "");
    row.push_back(found ? percent(point.mfu) : "");
    row.push_back(found ? format_bytes(Bytes(point.peak_memory_bytes)) : "");
    if (priced) {
      row.push_back(found ? cost_number(dollars_per_trillion_tokens(point)) : "");
    }
    row.push_back(point_text(point, failures));
    table.add_row(row);
  }
  std::string text = table.text() + failures.text();
  if (points.size() > kRowsPrinted) {
    text += fmt::format("... and {} more points in the files\n", points.size() - kRowsPrinted);
  }
  return text;
}

bool all_are(const std::vector<studies::SweepPoint>& points, studies::PointState state) {
  return std::all_of(points.begin(), points.end(),
                     [state](const studies::SweepPoint& point) { return point.state == state; });
}

bool any_is(const std::vector<studies::SweepPoint>& points, studies::PointState state) {
  return std::any_of(points.begin(), points.end(),
                     [state](const studies::SweepPoint& point) { return point.state == state; });
}

// Of points that failed nothing has to be kept: the same command searches them again.
bool some_worked(const std::vector<studies::SweepPoint>& points) {
  return any_is(points, studies::PointState::Found) ||
         any_is(points, studies::PointState::Infeasible);
}

// Points are not shared between the processes of a launcher.
bool leaves_it_to_rank_0(const OutputOptions& output) {
  if (search::launched_rank() > 0) {
    return true;
  }
  if (search::launched_size() > 1) {
    note_all({fmt::format("orrery: whatif runs on rank 0 alone, with its threads: the other {} of "
                          "{} ranks have nothing to do",
                          search::launched_size() - 1, search::launched_size())},
             output);
  }
  return false;
}

int run_whatif(const WhatifOptions& options) {
  if (leaves_it_to_rank_0(options.output)) {
    return kOk;
  }
  const studies::Sweep sweep = studies::read_sweep(read_json_file(options.path), options.path);
  std::vector<std::string> inputs = named_files(sweep.document);
  inputs.push_back(options.path);
  const std::string stem = stem_of(options);
  const std::string results = stem + ".json";
  std::vector<OutputPath> outputs;
  for (const char* suffix : kSuffixes) {
    outputs.push_back({"--output", stem + suffix});
  }
  check_outputs(outputs, inputs);
  std::vector<studies::SweepPoint> points(sweep.points.size());
  if (std::filesystem::exists(results)) {
    points = studies::read_sweep_points(read_json_file(results), sweep, results);
  }
  const int jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  install_interrupt_handler();
  Progress progress("whatif", options.output.quiet);
  // Whole tables are written, so that many quick points share one writing.
  std::chrono::steady_clock::time_point written;
  studies::run_sweep(sweep, points, jobs, [&](std::size_t finished) {
    const auto now = std::chrono::steady_clock::now();
    if (now - written > kBetweenTables && some_worked(points)) {
      write_tables(sweep, points, stem);
      written = now;
    }
    progress.update(static_cast<double>(finished) / static_cast<double>(points.size()),
                    fmt::format("{} of {} points", finished, points.size()));
  });
  progress.finish();
  if (all_are(points, studies::PointState::Failed)) {  // a mistake in the sweep
    bad_input(options.path, "every point failed, so that no results were written",
              points.front().message);
  }
  write_tables(sweep, points, stem);
  write_file_atomically(stem + ".svg", studies::sweep_svg(sweep, points));
  if (options.output.json) {
    print_json(studies::sweep_json(sweep, points));
  } else {
    print(results_text(sweep, points));
  }
  if (!options.output.quiet) {
    note(fmt::format("wrote {0}.json, {0}.csv and {0}.svg", stem));
  }
  if (interrupted()) {
    return kInterrupted;
  }
  if (!any_is(points, studies::PointState::Found)) {
    note(fmt::format("orrery: {}: no point has a plan that fits", options.path));
    return kInfeasible;
  }
  return kOk;
}

}  // namespace

void add_whatif(const Command& app, Action& chosen) {
  auto options = std::make_shared<WhatifOptions>();
  const Command command = app.add_subcommand("whatif",
                                             "search every point of a sweep over hardware, "
                                             "network, batch or sequence");
  command.footer(kWhatifExamples);
  command.add_option("SWEEP", options->path, "sweep document (JSON)").required();
  command.add_option("-o,--output", options->output_path,
                     "path of the results, .json, .csv and .svg (SWEEP-result)");
  command.add_option("-j,--jobs", options->jobs, "threads (all cores)");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_whatif(*options); }; });
}

}  // namespace orrery::cli
