// SPDX-License-Identifier: Apache-2.0
// What the sub-commands share: where results and notes go, and how plans and workloads are read
// from the command line. Results go to standard output, notes to standard error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"

namespace orrery::cli {

class Command;

// --json, --quiet and --color of every sub-command.
struct OutputOptions {
  bool json = false;
  bool quiet = false;
  std::string color = "auto";
};
void add_output_options(const Command& command, OutputOptions& options);
// Whether to paint: a terminal that is not dumb and no NO_COLOR, unless asked.
bool wants_color(const OutputOptions& options);

// Where text goes that print() is given: beside a document on standard output to standard error, or
// nowhere where that is to stay quiet, so that who reads the document reads nothing else.
enum class TextPlace { StandardOutput, StandardError, Nowhere };
void set_text_place(TextPlace place);

// On standard output. Where it cannot take them, the command goes on, so that its files are
// written; report_unprinted() tells then.
void print(std::string_view text);
void print_json(const Json& document);  // with a newline
// Error for what could not be printed. Where nobody reads any more the process ends as other
// programs do, by SIGPIPE.
void report_unprinted();
void note(std::string_view text);  // one line on standard error

// Error(InputOutput) when the file could not be written in the end; found before long work.
void check_writable(const std::string& path);
// The same of a folder that is created, with its parents, where there is something to write.
void check_folder_writable(const std::string& path);
// Writes the file and says so on standard error unless quiet.
void write_result(const std::string& path, std::string_view text, const OutputOptions& output);
// On standard error unless quiet, a line each.
void note_all(const std::vector<std::string>& remarks, const OutputOptions& output);

// The plan document of a plan file, or of the --json output of a command, and what to call it.
struct PlanDocument {
  Json json;
  std::string where;
};
PlanDocument load_plan_document(const std::string& path);
// A plan file, or the --json output of a command that holds one as its member "plan".
plan::Plan load_plan_of(const std::string& path);
// The same for commands that know training only: Error for a plan that serves requests.
plan::Plan load_training_plan_of(const std::string& path);

// The value of an option in seconds, or with a unit ("10", "2 min"), up to `most` seconds; 0 when
// it is empty.
Seconds parse_time(const std::string& text, const char* option, double most = 1e9);
// The value of --time-limit; 0, no limit, when it is empty. 0 itself is refused: no search could
// end in it, and whoever means no limit leaves the option out.
Seconds parse_time_limit(const std::string& text);

// "12.3 %"
std::string percent(double fraction, int decimals = 1);

}  // namespace orrery::cli
