// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace orrery::cli {

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

const Option& Option::not_negative() const {
  option_->check(CLI::NonNegativeNumber);
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
  return Option(app_->add_option(names, value, help));
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
