// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's command line, taken from a launch script or a plain list of arguments. Names are
// those of megatron/training/arguments.py and of the configuration classes it generates flags from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plan/launch_script/shell_words.hpp"

namespace orrery::plan {

// Flags of no consequence for time and memory (data, logging, checkpoints, learning rate, ...).
bool megatron_flag_is_irrelevant(std::string_view flag);
// "" or why a flag that changes the run is not modelled.
std::string_view megatron_flag_not_modelled(std::string_view flag);

class MegatronArguments {
 public:
  MegatronArguments(std::string_view text, const std::string& where);

  bool has(std::string_view flag);    // of a switch, which takes no value
  bool given(std::string_view flag);  // of a flag whose values are not asked for
  std::optional<std::string> text(std::string_view flag);
  std::optional<std::int64_t> integer(std::string_view flag, std::int64_t min, std::int64_t max);
  std::int64_t integer_or(std::string_view flag, std::int64_t fallback, std::int64_t min,
                          std::int64_t max);
  std::optional<double> number(std::string_view flag, double min, double max);
  std::vector<std::string> texts(std::string_view flag);  // all values; empty when absent
  // One of `names` (the first when absent) as an index.
  std::size_t choice(std::string_view flag, const std::vector<std::string>& names);

  // Every flag that was not asked for must be irrelevant.
  void finish() const;

  std::string where(std::string_view flag) const;  // "file:line: --flag"
  const std::string& file() const { return where_; }

 private:
  struct Argument {
    int line = 0;
    std::vector<ShellWord> values;
    bool asked = false;
  };
  void add(const ShellWord& flag, std::vector<ShellWord> values);
  Argument* find(std::string_view flag);
  // No more than `count` values: a word too many is a typing mistake, or holds flags.
  void expect_values(const Argument& argument, std::size_t count) const;
  const std::string& value(std::string_view flag, const Argument& argument,
                           std::size_t index) const;

  std::string where_;
  std::map<std::string, Argument, std::less<>> arguments_;
  std::set<std::string, std::less<>> asked_for_;  // every flag that was asked for, given or not
};

}  // namespace orrery::plan
