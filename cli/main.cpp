// SPDX-License-Identifier: Apache-2.0
// The `orrery` program: parses the command line, runs one sub-command and maps what went wrong to
// exit codes. All options are read by CLI11, whose own exit codes never leave this file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <new>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/version.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/wrapped_text.hpp"
#include "search/space/field_names.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kMainExamples = R"(
Examples:
  orrery plan llama3-70b hgx-h100:8 --batch 512      the fastest plan, proved
  orrery simulate plan.json --trace trace.json       one plan in detail
  orrery show network llama3-70b                     what something is
  orrery list networks                               what there is
  orrery plan --help                                 the options of a sub-command

NETWORK is a name of `orrery list networks`, a native JSON file or a Hugging Face config.json.
CLUSTER is NODE:COUNT (hgx-h100:8), a name of `orrery list clusters` or a JSON file.
Exit codes: 0 ok, 1 bug, 2 bad input, 3 nothing feasible, 4 input/output, 5 device missing,
130 interrupted.)";

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::BadInput:
      return kBadInput;
    case ErrorKind::InputOutput:
      return kInputOutput;
    case ErrorKind::DeviceMissing:
      return kDeviceMissing;
  }
  return kBug;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// The words of a line that begins with something else than a sub-command.
void check_command_name(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') {
    return;
  }
  std::vector<std::string> names = command_names(app);
  if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    names.insert(names.end(), {"--help", "--version"});
    bad_input("", fmt::format("unknown sub-command \"{}\"", printable(argv[1])),
              nearest_hint(argv[1], names));
  }
}

// The longest option that a word says more than: "batch-size" means "batch", "sequence" "seq".
std::string shorter_option(const std::string& word, const std::vector<std::string>& names) {
  constexpr std::size_t kLeast = 3;  // letters; a shorter beginning is chance
  const std::vector<std::string_view> parts = split(word, '-');
  std::string longest;
  for (const std::string& name : names) {
    const bool is_part = std::find(parts.begin(), parts.end(), name) != parts.end();
    if (name.size() >= std::max(kLeast, longest.size() + 1) &&
        (is_part || word.starts_with(name))) {
      longest = name;
    }
  }
  return longest;
}

// The hint for a word that begins with a dash: "-batch" and "-b" mean "--batch", "--tp" a field.
std::string option_hint(const std::string& word, const CLI::App& command) {
  const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  if (bare.empty()) {
    return "";
  }
  if (command.get_option_no_throw("--fix") != nullptr && search::is_plan_field(bare)) {
    return fmt::format("did you mean \"--fix {}=...\"? ", printable(bare));
  }
  std::vector<std::string> names;
  std::vector<std::string> longer;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back(name);
      if (name.starts_with(bare)) {
        longer.push_back("--" + name);
      }
    }
  }
  std::string meant = nearest_name(bare, names);
  if (meant.empty() && longer.size() > 1) {
    return fmt::format("did you mean one of {}? ", fmt::join(longer, ", "));
  }
  if (meant.empty()) {
    meant = longer.empty() ? shorter_option(bare, names) : longer.front().substr(2);
  }
  return meant.empty() ? "" : fmt::format("did you mean \"--{}\"? ", meant);
}

// CLI11's words for what is wrong with an option's value, in the words of the other messages.
[[noreturn]] void explain_value(const std::string& message, const CLI::App& command,
                                const std::string& usage) {
  const std::string option = message.substr(0, message.find(':'));
  const std::size_t set = message.find(" not in {");
  if (set != message.npos) {
    const std::string value = message.substr(option.size() + 2, set - option.size() - 2);
    std::vector<std::string> known;
    for (const std::string_view name :
         split(std::string_view(message).substr(set + 9, message.size() - set - 10), ',')) {
      known.emplace_back(name);
    }
    bad_input(option, fmt::format("unknown value \"{}\"", printable(value)),
              nearest_hint(value, known));
  }
  if (message.find(" required TEXT missing") != message.npos) {
    bad_input("", option + " needs a value", usage);
  }
  if (message.find("At Most 1 required but received") != message.npos) {
    bad_input("", option + " is given more than once", usage);
  }
  const std::string missing = message.substr(0, message.find(" is required"));
  const CLI::Option* const required =
      missing.size() < message.size() ? command.get_option_no_throw(missing) : nullptr;
  bad_input(
      "", message,
      required == nullptr ? usage : fmt::format("{}; {}", required->get_description(), usage));
}

// An option is of the last sub-command, whose `path` is "calibrate fit ", and stands behind it.
void check_places(const CLI::App& app, const CLI::App& last, const std::string& path) {
  for (const CLI::App* command = &app; command != &last;
       command = command->get_subcommands().front()) {
    for (const std::string& word : command->remaining()) {
      const std::string name =
          word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
      if (name.size() < 2 || name[0] != '-') {
        continue;
      }
      if (last.get_option_no_throw(name) == nullptr) {
        bad_input("", fmt::format("unknown option \"{}\"", printable(name)),
                  fmt::format("{}see orrery {}--help", option_hint(name, last), path));
      }
      bad_input("", fmt::format("{} goes behind the sub-command", name),
                fmt::format("orrery {}{} ...", path, name));
    }
  }
}

// What CLI11 rejected, as Error: an unknown option goes before what it may have displaced.
[[noreturn]] void explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += command->get_name() + " ";
  }
  const std::string usage = fmt::format("see orrery {}--help", path);
  const std::string_view message = error.what();
  if (message.ends_with(kOptionForValue)) {  // the words after it are out of place for that
    bad_input("", fmt::format("{} needs a value", message.substr(0, message.find(':'))), usage);
  }
  check_places(app, *command, path);
  for (const std::string& word : command->remaining()) {
    if (word.starts_with("-") && word.size() > 1) {
      const std::string name = word.substr(0, word.find('='));
      bad_input("", fmt::format("unknown option \"{}\"", printable(name)),
                option_hint(name, *command) + usage);
    }
  }
  const std::vector<std::string> names = command_names(*command);
  for (const std::string& word : command->remaining()) {
    if (!names.empty()) {
      bad_input("", fmt::format("unknown sub-command \"{}\"", path + printable(word)),
                nearest_hint(word, names));
    }
    const bool could_compare = path == "schedule ";
    bad_input("", fmt::format("unexpected argument \"{}\"", printable(word)),
              (could_compare ? "several schedules stand behind --compare; " : "") + usage);
  }
  if (!names.empty()) {
    bad_input("", "no sub-command", fmt::format("one of {}", fmt::join(names, ", ")));
  }
  explain_value(error.what(), *command, usage);
}

// Descriptions of options beside their names, in lines of the width of a page.
class Help : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr std::size_t kPage = 100;
    return fmt::format("{}", fmt::join(wrapped(CLI::Formatter::make_option_desc(option),
                                               kPage - get_column_width()),
                                       "\n"));
  }
};

int parse_and_run(int argc, char** argv) {
  CLI::App app("Orrery: which parallel plan trains a network fastest, how long it takes, and why",
               "orrery");
  app.formatter(std::make_shared<Help>());
  app.set_version_flag("--version", "orrery " + version_text());
  app.require_subcommand(1);
  app.footer(kMainExamples);
  Action action;
  for (const auto add :
       {add_plan, add_planner, add_reproduce, add_simulate, add_compare, add_validate, add_whatif,
        add_export, add_import, add_schedule, add_show, add_list, add_generate, add_calibrate}) {
    add(Command(&app), action);
  }
  check_command_name(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return kOk;
  } catch (const CLI::CallForVersion& version) {
    print(fmt::format("{}\n", version.what()));
    return kOk;
  } catch (const CLI::ParseError& error) {
    explain(app, error);
  }
  return action();
}

}  // namespace

int run(int argc, char** argv) {
  try {
    const int code = parse_and_run(argc, argv);
    report_unprinted();
    return code;
  } catch (const Error& error) {
    note(fmt::format("orrery: {}", error.what()));
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    note("orrery: out of memory");
    return kInputOutput;
  } catch (const std::exception& error) {
    note(fmt::format("orrery: internal error: {}", printable(error.what(), 2000)));
    return kBug;
  }
}

}  // namespace orrery::cli

int main(int argc, char** argv) { return orrery::cli::run(argc, argv); }
