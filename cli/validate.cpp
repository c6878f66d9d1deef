// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"
#include "studies/validation/plan_groups.hpp"
#include "studies/validation/scatter.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kValidateExamples = R"(
Examples:
  orrery validate measurements/*.csv
  orrery validate runs.csv --json --report errors.txt
  orrery validate measurements/*.csv --html accuracy.html)";

struct ValidateOptions {
  std::vector<std::string> files;
  std::string jobs = "0";
  std::string worst = "10";
  std::string report_path;
  std::string html_path;
  std::string markdown_path;
  std::string plot_folder;
  bool groups = false;
  bool assumed = false;
  OutputOptions output;
};

void write_pictures(const studies::Validation& validation, const ValidateOptions& options) {
  if (!options.html_path.empty()) {
    write_result(options.html_path, studies::scatter_page(validation), options.output);
  }
  if (!options.plot_folder.empty()) {
    const std::vector<studies::Scatter> pictures = studies::scatters(validation);
    if (!pictures.empty()) {
      create_folders(options.plot_folder);
    }
    for (const studies::Scatter& picture : pictures) {
      std::string name = picture.name;
      std::replace(name.begin(), name.end(), ' ', '-');
      write_file_atomically(fmt::format("{}/{}.svg", options.plot_folder, name), picture.svg);
    }
    if (!options.output.quiet) {
      note(pictures.empty()
               ? std::string("wrote no pictures: there are no rows to draw")
               : fmt::format("wrote {} into {}", counted(std::ssize(pictures), "picture"),
                             printable(options.plot_folder)));
    }
  }
}

// Nothing but skipped rows is no score; the result says why each was.
void check_some_simulated(const studies::Validation& validation, const std::string& where) {
  const auto& rows = validation.rows;
  if (std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.simulated(); })) {
    return;
  }
  bad_input(where,
            fmt::format("no row was simulated, {} skipped", counted(std::ssize(rows), "row")),
            rows.empty() ? std::string() : "the first: " + rows.front().skipped_because);
}

void note_empty_files(const studies::Validation& validation, const ValidateOptions& options) {
  for (const std::string& file : validation.empty_files) {
    if (!options.output.quiet) {
      note(fmt::format("{}: there are no rows below the names of the columns", printable(file)));
    }
  }
}

// The tables do not show how cells were read.
void note_assumed(const studies::Validation& validation, const ValidateOptions& options) {
  const auto& rows = validation.rows;
  const auto assumed =
      std::count_if(rows.begin(), rows.end(), [](const auto& row) { return !row.assumed.empty(); });
  if (assumed > 0 && !options.assumed && !options.output.quiet) {
    note(fmt::format("{} of {} rest on assumptions, which --assumed lists", assumed,
                     counted(std::ssize(rows), "row")));
  }
}

int run_validate(const ValidateOptions& options) {
  check_outputs({{"--report", options.report_path},
                 {"--html", options.html_path},
                 {"--markdown", options.markdown_path},
                 json_path(options.output)},
                options.files);
  if (!options.plot_folder.empty()) {
    check_folder_writable(options.plot_folder);
  }
  const std::set<std::string> names(options.files.begin(), options.files.end());
  if (names.size() < options.files.size()) {
    bad_input("validate", "a file is named twice", "its rows would count twice");
  }
  studies::ValidateOptions how;
  how.jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  how.worst = static_cast<std::size_t>(parse_integer(options.worst, "--worst", 0, 100'000));
  const studies::Validation validation = studies::validate_files(options.files, how);
  note_empty_files(validation, options);
  const std::vector<studies::PlanGroup> groups = studies::plan_groups(validation.rows);
  if (options.output.json) {
    Json document = studies::to_json(validation);
    document.set("plan_groups", studies::plan_groups_json(groups));
    print_json(document);
  } else {
    print(studies::to_text(validation, how) +
          (options.groups ? studies::plan_groups_text(groups) : std::string()) +
          (options.assumed ? studies::assumed_text(validation.rows) : std::string()));
    note_assumed(validation, options);
  }
  if (!options.report_path.empty()) {
    write_result(options.report_path, studies::to_text(validation, how), options.output);
  }
  if (!options.markdown_path.empty()) {
    write_result(options.markdown_path, studies::to_markdown(validation), options.output);
  }
  write_pictures(validation, options);
  check_some_simulated(validation, options.files.size() == 1 ? options.files.front() : "validate");
  return kOk;
}

}  // namespace

void add_validate(const Command& app, Action& chosen) {
  auto options = std::make_shared<ValidateOptions>();
  const Command command = app.add_subcommand("validate", "predicted against measured");
  command.footer(kValidateExamples);
  command.add_option("FILE", options->files, "measurement files (CSV)").required();
  command.add_flag("--groups", options->groups,
                   "list the groups of four or more plans of one network on one cluster, and what "
                   "the plan predicted best costs in each");
  command.add_flag("--assumed", options->assumed,
                   "list how cells were read and what blank ones were taken as");
  command.add_option("--worst", options->worst, "rows to list with the largest errors (10)");
  command.add_option("-j,--jobs", options->jobs, "threads (all cores)");
  command.add_option("--report", options->report_path, "write the text as well");
  command.add_option("--markdown", options->markdown_path, "write the tables as Markdown");
  command.add_option("--html", options->html_path,
                     "write a page with a scatter of predicted against measured per source");
  command.add_option("--plot", options->plot_folder,
                     "write the scatters as SVG files into this folder");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_validate(*options); }; });
}

}  // namespace orrery::cli
