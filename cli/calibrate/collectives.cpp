// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "calibrate/copies.hpp"
#include "calibrate/fit/collective_profiles.hpp"
#include "calibrate/reader.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "topologies/cluster.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kCalibrateCollectivesExamples = R"(
Examples:
  orrery calibrate collectives logs/*.txt --each
  orrery calibrate collectives rows.csv --profiles costmodel/profiles)";

struct CollectiveOptions {
  std::vector<std::string> files;
  std::string profiles;
  std::string gpu;
  bool each = false;
  bool partial = false;
  std::string jobs = "0";
  OutputOptions common;
};

struct Errors {
  int logs = 0;
  std::vector<double> fitted;
  std::vector<double> left_out;
  std::vector<double> times_left_out;
  int with_interval = 0;
  int in_interval = 0;

  void add(const calibrate::LogError& error) {
    ++logs;
    fitted.insert(fitted.end(), error.fitted.begin(), error.fitted.end());
    left_out.insert(left_out.end(), error.left_out.begin(), error.left_out.end());
    times_left_out.insert(times_left_out.end(), error.times_left_out.begin(),
                          error.times_left_out.end());
    with_interval += error.has_interval ? static_cast<int>(error.left_out.size()) : 0;
    in_interval += error.in_interval;
  }
};

std::optional<double> coverage_of(const Errors& errors) {
  return errors.with_interval > 0
             ? std::optional(errors.in_interval / static_cast<double>(errors.with_interval))
             : std::nullopt;
}

using Lines = std::map<std::string, Errors>;

Lines lines_of(const std::vector<calibrate::LogError>& errors, bool each) {
  Lines lines;
  for (const calibrate::LogError& error : errors) {
    const std::string group = calibrate::error_group(*error.log);
    lines[group].add(error);
    lines[group + " " + error.log->family].add(error);
    if (each) {
      lines[group + " " + error.log->family + " " + error.log->name].add(error);
    }
  }
  return lines;
}

std::string text_of(const Lines& lines) {
  TextTable table({{"error of predicted collectives"},
                   {"logs", Align::Right},
                   {"times", Align::Right},
                   {"median", Align::Right},
                   {"p90", Align::Right},
                   {"times out", Align::Right},
                   {"p90", Align::Right},
                   {"logs out", Align::Right},
                   {"p90", Align::Right},
                   {"in interval", Align::Right}});
  for (const auto& [name, errors] : lines) {
    table.add_row({name, fmt::format("{}", errors.logs), fmt::format("{}", errors.fitted.size()),
                   percent(calibrate::quantile_of(errors.fitted, 0.5)),
                   percent(calibrate::quantile_of(errors.fitted, 0.9)),
                   percent(calibrate::quantile_of(errors.times_left_out, 0.5)),
                   percent(calibrate::quantile_of(errors.times_left_out, 0.9)),
                   percent(calibrate::quantile_of(errors.left_out, 0.5)),
                   percent(calibrate::quantile_of(errors.left_out, 0.9)),
                   coverage_of(errors) ? percent(*coverage_of(errors)) : "-"});
  }
  return table.text();
}

Json json_of(const Lines& lines) {
  Json result = Json::object();
  for (const auto& [name, errors] : lines) {
    Json& line = result.set(name, Json::object());
    line.set("logs", errors.logs);
    line.set("times", static_cast<std::int64_t>(errors.fitted.size()));
    line.set("median", calibrate::quantile_of(errors.fitted, 0.5));
    line.set("p90", calibrate::quantile_of(errors.fitted, 0.9));
    line.set("times_left_out_median", calibrate::quantile_of(errors.times_left_out, 0.5));
    line.set("times_left_out_p90", calibrate::quantile_of(errors.times_left_out, 0.9));
    line.set("left_out_median", calibrate::quantile_of(errors.left_out, 0.5));
    line.set("left_out_p90", calibrate::quantile_of(errors.left_out, 0.9));
    line.set("left_out_coverage80", coverage_of(errors) ? Json(*coverage_of(errors)) : Json());
  }
  return result;
}

int run_collectives(const CollectiveOptions& options) {
  const int jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  calibrate::ReadOptions reading;
  reading.partial = options.partial;
  reading.device = options.gpu.empty() ? "" : topologies::load_gpu(options.gpu).name;
  std::vector<calibrate::SampleFile> samples;
  calibrate::CopyFinder copies;
  for (const std::string& path : options.files) {
    calibrate::Reading read = calibrate::read_foreign(path, "", reading);
    copies.drop_copies(path, read);
    std::move(read.files.begin(), read.files.end(), std::back_inserter(samples));
    note_all(read.remarks, options.common);
  }
  const calibrate::CollectiveLogs collected = calibrate::collect_logs(samples);
  note_all(collected.remarks, options.common);
  for (const calibrate::CollectiveLog& log : collected.peers) {
    note_all({log.name + ": left out: messages, which `orrery calibrate fit` fits"},
             options.common);
  }
  if (collected.logs.empty()) {
    bad_input(options.files.front(), "no collective of 1 KiB or more to fit",
              "give logs of nccl-tests or a table of collective times");
  }
  const calibrate::ResidualPriors prior;
  const std::vector<calibrate::LogError> errors =
      calibrate::log_errors(collected.logs, prior, true, jobs);
  const Lines lines = lines_of(errors, options.each);
  if (options.common.json) {
    print_json(json_of(lines));
  } else {
    print(text_of(lines));
  }
  if (!options.profiles.empty()) {
    const auto written =
        calibrate::update_profiles(options.profiles, collected.logs, errors, prior);
    if (!options.common.quiet) {
      note(fmt::format("wrote {}", fmt::join(written, ", ")));
    }
  }
  return 0;
}

}  // namespace

void add_calibrate_collectives(const Command& app, Action& chosen) {
  auto options = std::make_shared<CollectiveOptions>();
  const Command command = app.add_subcommand(
      "collectives", "fit the collectives of profiles to logs, with the error on logs left out");
  command.add_option("FILE", options->files, "logs of nccl-tests or tables of collective times")
      .required();
  command.add_option("--profiles", options->profiles,
                     "folder of profiles whose collective sections are replaced");
  command.add_option("--gpu", options->gpu, "the GPU of files that name none");
  command.add_flag("--each", options->each, "list every log");
  command.add_flag("--partial", options->partial, "use what can be read of damaged files");
  command.add_option("-j,--jobs", options->jobs, "threads (all cores)");
  command.footer(kCalibrateCollectivesExamples);
  add_output_options(command, options->common);
  command.callback(
      [options, &chosen] { chosen = [options] { return run_collectives(*options); }; });
}

}  // namespace orrery::cli
