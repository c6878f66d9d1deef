// SPDX-License-Identifier: Apache-2.0
// Words of a shell script: quoting, expansion and field splitting over known variables. Used by
// launch_script/shell_words.cpp only. No command is ever run; what is not known marks the word.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/launch_script/shell_words.hpp"

namespace orrery::plan::shell {

// A position in a text; `line` counts the newlines passed.
struct Cursor {
  std::string_view text;
  const std::string* where = nullptr;
  std::size_t pos = 0;
  int line = 1;

  bool done() const { return pos >= text.size(); }
  char peek(std::size_t ahead = 0) const {
    return pos + ahead < text.size() ? text[pos + ahead] : '\0';
  }
  bool at(std::string_view prefix) const { return text.substr(pos).starts_with(prefix); }
  char next();
  void skip(std::size_t count);
  [[noreturn]] void fail(std::string_view message) const;
  // The text up to the closing bracket that matches the one just passed, quotes respected.
  std::string_view balanced(char open, char close);
};

// Expanded texts; what is not known stands in them as a mark (see Expander::mark).
using Values = std::vector<std::string>;  // one for a scalar
using Variables = std::map<std::string, Values, std::less<>>;

// Integers, variables, parentheses and + - * / %; nothing for anything else or on overflow.
std::optional<std::int64_t> evaluate_arithmetic(std::string_view text, const Variables& variables);

// A decimal integer that is the whole text; nothing for any other text.
std::optional<std::int64_t> parse_integer(std::string_view text);

// Whether a branch runs. Ordered: min is "and", max is "or".
enum class Taken { No, Maybe, Yes };
Taken opposite(Taken taken);
// [ A = B ], [[ A -gt B ]], test -n A; anything else is Maybe.
Taken evaluate_test(const Values& words);

// Of a variable's name: letters, underscores and behind the first digits.
bool is_name_start(char c);
bool is_name(char c);
bool is_blank(char c);  // space, tab, carriage return
// Ends a word unless quoted.
bool is_metacharacter(char c);

// Turns the words of a cursor into fields.
class Expander {
 public:
  explicit Expander(Variables& variables) : variables_(variables) {}
  // Reads one word at the cursor; appends its fields. Without `split` (assignments) one field.
  void read_word(Cursor& cursor, Values& fields, bool split);

  // Text without blanks that stands for a part whose value is not known, and why.
  std::string mark(std::string reason);
  static bool is_marked(std::string_view text);
  // The text without the marks of variables that the file does not set: a script sees them empty.
  std::string without_unset(std::string_view text) const;
  // The text with "?" for marks, and the reason of the first one.
  ShellWord to_word(std::string_view text, int line) const;

 private:
  class Fields;
  void read_quoted(Cursor& cursor, Fields& fields);
  void expand_dollar(Cursor& cursor, Fields& fields, bool quoted);
  void expand_parameter(std::string_view body, const Cursor& cursor, Fields& fields, bool quoted);
  void expand_variable(std::string_view name, bool all, Fields& fields, bool quoted);
  void read_text(Cursor& cursor, Fields& fields, bool quoted, bool whole);

  Variables& variables_;
  std::string mark_unset(std::string_view name);

  std::vector<std::string> reasons_;
  std::vector<bool> unset_;  // per reason
  int depth_ = 0;
  std::int64_t expanded_ = 0;  // bytes
};

}  // namespace orrery::plan::shell
