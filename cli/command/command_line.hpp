// SPDX-License-Identifier: Apache-2.0
// A sub-command of the program and its options. CLI11 reads them; its header, which costs a file
// seconds of build time, is read by command_line.cpp and main.cpp alone.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

// What CLI11 is told of an option that stands where the value of another one belongs.
inline constexpr const char* kOptionForValue = "an option for a value";

// An option that was declared; what is said of it returns it again.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  const Option& required() const;
  const Option& one_value_each() const;  // of an option that may be repeated
  const Option& delimiter(char between_values) const;
  const Option& one_of(std::initializer_list<const char*> values) const;

 private:
  CLI::Option* option_;
};

// A handle: copies mean the same command, which the program owns.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command add_subcommand(const std::string& name, const std::string& help) const;
  void require_subcommand() const;
  void footer(const std::string& examples) const;
  void callback(std::function<void()> chosen) const;

  // `names` is "-j,--jobs", or a word in capitals for what has no name. A value is a text, a vector
  // of texts or a number: int, std::int64_t, std::uint64_t, double. An empty text is an error: it
  // is a variable that a script did not set. So is another option where a value belongs.
  template <typename T>
  Option add_option(const std::string& names, T& value, const std::string& help) const;
  Option add_flag(const std::string& names, bool& value, const std::string& help) const;
  // Puts a declared option under this title of the help.
  void group(const std::string& option, const std::string& title) const;

 private:
  CLI::App* app_;
};

}  // namespace orrery::cli
