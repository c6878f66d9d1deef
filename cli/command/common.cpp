// SPDX-License-Identifier: Apache-2.0
#include "cli/command/common.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/quantity_text.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/command/command_line.hpp"

namespace orrery::cli {
namespace {

// The length of a colour of sim/pipeline/schedule_picture.cpp at the beginning of a text
// ("\x1b[30;44m",
// "\x1b[0m"); 0 when there is none.
std::size_t colour_length(std::string_view text) {
  for (const std::string_view begin : {"\x1b[0", "\x1b[30;"}) {
    const std::size_t end = text.find_first_not_of("0123456789", begin.size());
    if (text.starts_with(begin) && end != text.npos && text[end] == 'm') {
      return end + 1;
    }
  }
  return 0;
}

// Control characters, which names out of documents may hold, are escaped.
std::string for_terminal(std::string_view text) {
  constexpr int kWhole = std::numeric_limits<int>::max();
  std::string shown;
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find_first_of("\n\t\x1b"), text.size());
    shown += printable(text.substr(0, plain), kWhole);
    text.remove_prefix(plain);
    if (!text.empty()) {
      const std::size_t kept = text.front() == '\x1b' ? colour_length(text) : 1;
      shown += kept > 0 ? std::string(text.substr(0, kept)) : printable(text.substr(0, 1));
      text.remove_prefix(std::max<std::size_t>(kept, 1));
    }
  }
  return shown;
}

}  // namespace

void add_output_options(const Command& command, OutputOptions& options) {
  command.add_flag("--json", options.json, "print one JSON object instead of text");
  command.add_flag("-q,--quiet", options.quiet, "no progress and no notes on standard error");
  command.add_option("--color", options.color, "auto, always or never")
      .one_of({"auto", "always", "never"});
}

namespace {

TextPlace& text_place() {
  static TextPlace place = TextPlace::StandardOutput;
  return place;
}

}  // namespace

void set_text_place(TextPlace place) { text_place() = place; }

bool wants_color(const OutputOptions& options) {
  if (options.color != "auto") {
    return options.color == "always";
  }
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') &&
         knows_escape_codes(text_place() == TextPlace::StandardOutput ? STDOUT_FILENO
                                                                      : STDERR_FILENO);
}

namespace {

std::optional<Error>& unprinted() {
  static std::optional<Error> first;
  return first;
}

void print_all(std::string_view text) {
  if (unprinted()) {
    return;
  }
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  try {
    write_file_atomically("-", text);
  } catch (const Error& error) {
    unprinted() = error;
  }
  std::signal(SIGPIPE, before);
}

}  // namespace

void print(std::string_view text) {
  const std::string shown = for_terminal(text);
  if (text_place() == TextPlace::StandardOutput) {
    print_all(shown);
  } else if (text_place() == TextPlace::StandardError) {
    (void)std::fwrite(shown.data(), 1, shown.size(), stderr);
  }
}

void print_json(const Json& document) { print_all(document.dump() + "\n"); }

void report_unprinted() {
  if (!unprinted()) {
    return;
  }
  const std::string closed = std::make_error_code(std::errc::broken_pipe).message();
  if (std::string_view(unprinted()->what()).find(closed) != std::string_view::npos) {
    (void)std::raise(SIGPIPE);
  }
  throw *unprinted();
}

// Nobody can be told where this fails.
void note(std::string_view text) {
  const std::string line = for_terminal(text) + "\n";
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

void check_folder_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path known = path;  // the nearest folder that there is
  while (!known.empty() && !fs::exists(known, error)) {
    known = known.parent_path();
  }
  const std::string folder = known.empty() ? "." : known.string();
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorKind::InputOutput, folder, "is a file, not a folder");
  }
  if (access(folder.c_str(), W_OK) != 0) {
    throw Error(ErrorKind::InputOutput, folder, "cannot be written: permission denied");
  }
}

void check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (path.empty() || path == "-") {
    return;
  }
  const auto fail = [&](const char* message) {
    throw Error(ErrorKind::InputOutput, path, message);
  };
  if (fs::is_directory(path, error)) {
    fail("is a folder, not a file");
  }
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  if (!fs::is_directory(folder, error)) {
    fail("its folder does not exist");
  }
  const bool special = fs::exists(path, error) && !fs::is_regular_file(path, error);
  if (access(special ? path.c_str() : folder.c_str(), W_OK) != 0) {
    fail("cannot be written: permission denied");
  }
}

void write_result(const std::string& path, std::string_view text, const OutputOptions& output) {
  write_file_atomically(path, text);
  if (!output.quiet && path != "-") {
    note(fmt::format("wrote {}", printable(path)));
  }
}

void note_all(const std::vector<std::string>& remarks, const OutputOptions& output) {
  for (const std::string& remark : remarks) {
    if (!output.quiet) {
      note(remark);
    }
  }
}

PlanDocument load_plan_document(const std::string& path) {
  Json document = read_json_file(path);
  const std::string name = path == "-" ? "standard input" : path;
  const Json* inner = document.find("plan");
  if (document.find("schema") == nullptr && inner != nullptr && inner->is_object()) {
    return {Json(*inner), name + ": /plan"};
  }
  return {std::move(document), name};
}

plan::Plan load_plan_of(const std::string& path) {
  const PlanDocument document = load_plan_document(path);
  return plan::read_plan(document.json, document.where);
}

plan::Plan load_training_plan_of(const std::string& path) {
  plan::Plan plan = load_plan_of(path);
  if (plan.serving) {
    bad_input(path, "this plan serves requests, it does not train",
              "`orrery simulate` runs serving plans");
  }
  return plan;
}

Seconds parse_time(const std::string& text, const char* option, double most) {
  if (text.empty()) {
    return Seconds();
  }
  const bool plain = text.find_first_not_of("+-.0123456789e") == std::string::npos;
  if (plain) {
    return Seconds(parse_number(text, option, 0.0, most));
  }
  const Seconds time = parse_duration(text, option);
  if (time.value() > most) {
    bad_input(option, fmt::format("{} is out of range (0 to {:.10g} s)", printable(text), most));
  }
  return time;
}

Seconds parse_time_limit(const std::string& text) {
  const Seconds limit = parse_time(text, "--time-limit");
  if (!text.empty() && limit.value() <= 0) {
    bad_input("--time-limit", fmt::format("\"{}\" leaves a search no time", printable(text)),
              "leave the option out for no limit");
  }
  return limit;
}

std::string percent(double fraction, int decimals) {
  return fmt::format("{:.{}f} %", 100.0 * fraction, decimals);
}

}  // namespace orrery::cli
