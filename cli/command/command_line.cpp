// SPDX-License-Identifier: Apache-2.0
#include "cli/command/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/quantity_text.hpp"

namespace orrery::cli {
namespace {

template <typename T>
T number_of(const std::string& text, const std::string& option) {
  if constexpr (std::is_same_v<T, double>) {
    return parse_number(text, option, -1e300, 1e300);
  } else {
    using Limits = std::numeric_limits<T>;
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const std::int64_t most = std::cmp_less(Limits::max(), kMost) ? Limits::max() : kMost;
    return static_cast<T>(
        parse_integer(text, option, static_cast<std::int64_t>(Limits::min()), most));
  }
}

// CLI11 takes what follows an option as its value, also the next option; a value may stand right
// behind a short one.
bool is_option(const std::string& text, const CLI::App& command) {
  return text.starts_with("--") ||
         (text.starts_with("-") && command.get_option_no_throw(text.substr(0, 2)) != nullptr);
}

}  // namespace

const Option& Option::required() const {
  option_->required();
  return *this;
}

const Option& Option::one_value_each() const {
  option_->allow_extra_args(false);
  return *this;
}

const Option& Option::delimiter(char between_values) const {
  option_->delimiter(between_values);
  return *this;
}

const Option& Option::one_of(std::initializer_list<const char*> values) const {
  option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return *this;
}

Command Command::add_subcommand(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help));
}

void Command::require_subcommand() const { app_->require_subcommand(1); }

void Command::footer(const std::string& examples) const { app_->footer(examples); }

void Command::callback(std::function<void()> chosen) const { app_->callback(std::move(chosen)); }

template <typename T>
Option Command::add_option(const std::string& names, T& value, const std::string& help) const {
  CLI::Option* option = nullptr;
  if constexpr (std::is_arithmetic_v<T>) {
    const std::string name = names.substr(names.find(',') + 1);
    option = app_->add_option_function<std::string>(
        names, [name, &value](const std::string& text) { value = number_of<T>(text, name); }, help);
    option->type_name("NUMBER");
  } else {
    option = app_->add_option(names, value, help);
  }
  const bool named = names.starts_with("-");  // others are given as such, after "--"
  option->check(
      [app = app_, named](const std::string& text) {
        return text.empty() ? "empty value" : named && is_option(text, *app) ? kOptionForValue : "";
      },
      "");
  return Option(option);
}
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, std::int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;

Option Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}

void Command::group(const std::string& option, const std::string& title) const {
  CLI::Option* const declared = app_->get_option_no_throw(option);
  ORRERY_CHECK(declared != nullptr, "an option of the help that is not declared");
  declared->group(title);
}

}  // namespace orrery::cli
