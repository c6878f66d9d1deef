// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/shell_expand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::plan::shell {
namespace {

constexpr std::int64_t kMaxExpandedBytes = 4 << 20;
constexpr std::size_t kMaxFields = 200'000;
constexpr int kMaxDepth = 16;

}  // namespace

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_metacharacter(char c) {
  return is_blank(c) || std::string_view("\n;&|<>()").find(c) != std::string_view::npos;
}

char Cursor::next() {
  const char c = peek();
  if (!done()) {
    ++pos;
    line += c == '\n' ? 1 : 0;
  }
  return c;
}

void Cursor::skip(std::size_t count) {
  while (count-- > 0) {
    next();
  }
}

void Cursor::fail(std::string_view message) const {
  bad_input(fmt::format("{}:{}", *where, line), message);
}

std::string_view Cursor::balanced(char open, char close) {
  const std::size_t begin = pos;
  const Cursor start = *this;
  int depth = 1;
  char quote = '\0';
  while (!done()) {
    const char c = next();
    if (c == '\\' && quote != '\'') {
      next();
    } else if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == open) {
      ++depth;
    } else if (c == close && --depth == 0) {
      return text.substr(begin, pos - 1 - begin);
    }
  }
  start.fail(fmt::format("\"{}\" without its \"{}\"", open, close));
}

// A mark is kMarkBegin, the index of its reason, kMarkEnd.
constexpr char kMarkBegin = '\x1a';
constexpr char kMarkEnd = '\x1b';
constexpr std::string_view kBlanks = " \t\r\n";

namespace {

// Calls visit(text before the mark, index of its reason, the mark) up to the end of the text.
template <typename Visit>
void for_each_part(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find(kMarkBegin), text.size());
    const std::size_t end = std::min(text.find(kMarkEnd, begin), text.size() - 1) + 1;
    const std::string_view mark = begin == text.size() ? "" : text.substr(begin, end - begin);
    std::size_t reason = static_cast<std::size_t>(-1);
    if (!mark.empty()) {
      std::from_chars(mark.data() + 1, mark.data() + mark.size(), reason);
    }
    visit(text.substr(0, begin), reason, mark);
    text.remove_prefix(begin == text.size() ? begin : end);
  }
}

}  // namespace

std::string Expander::mark(std::string reason) {
  reasons_.push_back(std::move(reason));
  unset_.push_back(false);
  return fmt::format("{}{}{}", kMarkBegin, reasons_.size() - 1, kMarkEnd);
}

std::string Expander::mark_unset(std::string_view name) {
  std::string text = mark(fmt::format("${} is not set in this file", name));
  unset_.back() = true;
  return text;
}

bool Expander::is_marked(std::string_view text) {
  return text.find(kMarkBegin) != std::string_view::npos;
}

std::string Expander::without_unset(std::string_view text) const {
  std::string result;
  for_each_part(text, [&](std::string_view part, std::size_t reason, std::string_view mark_text) {
    result += part;
    result += reason < unset_.size() && unset_[reason] ? std::string_view() : mark_text;
  });
  return result;
}

ShellWord Expander::to_word(std::string_view text, int line) const {
  ShellWord word{.text = {}, .line = line, .unknown = {}};
  for_each_part(text, [&](std::string_view part, std::size_t reason, std::string_view mark_text) {
    word.text += part;
    if (mark_text.empty()) {
      return;
    }
    word.text += '?';
    if (word.unknown.empty()) {
      word.unknown = reason < reasons_.size() ? reasons_[reason] : "a control character";
    }
  });
  return word;
}

// Collects characters into fields the way a shell splits words.
class Expander::Fields {
 public:
  Fields(Values& fields, std::int64_t& expanded, bool split, const Cursor& cursor)
      : fields_(fields), expanded_(expanded), split_(split), cursor_(cursor) {}

  void begin() { started_ = true; }  // "" is a field of its own

  void literal(std::string_view text) {
    started_ = true;
    expanded_ += static_cast<std::int64_t>(text.size()) + 1;
    if (expanded_ > kMaxExpandedBytes) {
      cursor_.fail("expansions of more than 4 MiB");
    }
    current_ += text;
  }

  void value(std::string_view text, bool quoted) {
    if (quoted || !split_) {
      literal(text);
      return;
    }
    while (!text.empty()) {
      const std::size_t first = text.find_first_not_of(kBlanks);
      if (first != 0) {
        end_field();
      }
      if (first == std::string_view::npos) {
        break;
      }
      text.remove_prefix(first);
      const std::size_t end = std::min(text.find_first_of(kBlanks), text.size());
      literal(text.substr(0, end));
      text.remove_prefix(end);
    }
  }

  void next_value() {
    if (split_) {
      end_field();
    } else {
      literal(" ");
    }
  }

  void end_field() {
    if (!started_) {
      return;
    }
    if (fields_.size() >= kMaxFields) {
      cursor_.fail("too many words");
    }
    fields_.push_back(std::move(current_));
    current_.clear();
    started_ = false;
  }

 private:
  Values& fields_;
  std::int64_t& expanded_;
  bool split_;
  const Cursor& cursor_;
  std::string current_;
  bool started_ = false;
};

void Expander::read_word(Cursor& cursor, Values& fields, bool split) {
  Fields collected(fields, expanded_, split, cursor);
  if (!split) {
    collected.begin();  // an empty assignment is an empty value
  }
  read_text(cursor, collected, false, false);
  collected.end_field();
}

// Up to the end of the word, or of the text when `whole`.
void Expander::read_text(Cursor& cursor, Fields& fields, bool quoted, bool whole) {
  while (!cursor.done() && (whole || !is_metacharacter(cursor.peek()))) {
    const char c = cursor.peek();
    if (c == '\\') {
      cursor.next();
      const char escaped = cursor.next();
      if (escaped != '\n' && escaped != '\0') {
        fields.literal(std::string_view(&escaped, 1));
      }
    } else if (c == '\'' && !quoted) {
      const Cursor start = cursor;
      cursor.next();
      const std::size_t begin = cursor.pos;
      while (!cursor.done() && cursor.peek() != '\'') {
        cursor.next();
      }
      if (cursor.done()) {
        start.fail("quote without its end");
      }
      fields.literal(cursor.text.substr(begin, cursor.pos - begin));
      cursor.next();
    } else if (c == '"') {
      read_quoted(cursor, fields);
    } else if (c == '$' || c == '`') {
      expand_dollar(cursor, fields, quoted);
    } else {
      cursor.next();
      fields.literal(std::string_view(&c, 1));
    }
  }
}

void Expander::read_quoted(Cursor& cursor, Fields& fields) {
  const Cursor start = cursor;
  cursor.next();
  fields.begin();
  while (!cursor.done() && cursor.peek() != '"') {
    const char c = cursor.peek();
    if (c == '$' || c == '`') {
      expand_dollar(cursor, fields, true);
      continue;
    }
    cursor.next();
    if (c == '\\') {
      const char escaped = cursor.next();
      if (escaped == '\n') {
        continue;
      }
      if (std::string_view("$`\"\\").find(escaped) == std::string_view::npos) {
        fields.literal("\\");
      }
      fields.literal(std::string_view(&escaped, 1));
    } else {
      fields.literal(std::string_view(&c, 1));
    }
  }
  if (cursor.done()) {
    start.fail("quote without its end");
  }
  cursor.next();
}

void Expander::expand_dollar(Cursor& cursor, Fields& fields, bool quoted) {
  if (cursor.peek() == '`') {
    const Cursor start = cursor;
    cursor.next();
    while (!cursor.done() && cursor.peek() != '`') {
      cursor.next();
    }
    if (cursor.done()) {
      start.fail("quote without its end");
    }
    cursor.next();
    fields.literal(mark("the output of a command is not known"));
    return;
  }
  cursor.next();
  const char c = cursor.peek();
  if (cursor.at("((")) {
    cursor.skip(2);
    const std::string_view body = cursor.balanced('(', ')');
    const std::string_view rest = cursor.balanced('(', ')');
    if (rest.empty()) {
      const auto result = evaluate_arithmetic(body, variables_);
      if (result.has_value()) {
        fields.literal(fmt::format("{}", *result));
        return;
      }
    }
    fields.literal(mark(fmt::format("$(({})) is not known", printable(body, 60))));
  } else if (c == '(') {
    cursor.next();
    cursor.balanced('(', ')');
    fields.literal(mark("the output of a command is not known"));
  } else if (c == '{') {
    cursor.next();
    const std::string_view body = cursor.balanced('{', '}');
    expand_parameter(body, cursor, fields, quoted);
  } else if (is_name_start(c)) {
    const std::size_t begin = cursor.pos;
    while (is_name(cursor.peek())) {
      cursor.next();
    }
    expand_variable(cursor.text.substr(begin, cursor.pos - begin), false, fields, quoted);
  } else if (c == '@' || c == '*') {
    cursor.next();  // the script is read as run without arguments
  } else if (c != '\0' && std::string_view("0123456789#?$!-").find(c) != std::string_view::npos) {
    cursor.next();
    fields.literal(mark(fmt::format("${} is known only when it runs", c)));
  } else {
    fields.literal("$");
  }
}

void Expander::expand_variable(std::string_view name, bool all, Fields& fields, bool quoted) {
  const auto found = variables_.find(name);
  if (found == variables_.end()) {
    fields.literal(mark_unset(name));
    return;
  }
  const Values values = found->second;
  for (std::size_t i = 0; i < values.size() && (all || i == 0); ++i) {
    if (i > 0) {
      fields.next_value();
    }
    fields.value(values[i], quoted);
  }
}

void Expander::expand_parameter(std::string_view body, const Cursor& cursor, Fields& fields,
                                bool quoted) {
  std::size_t end = 0;
  while (end < body.size() && is_name(body[end])) {
    ++end;
  }
  const std::string_view name = body.substr(0, end);
  std::string_view rest = body.substr(end);
  bool all = false;
  if (rest.starts_with("[@]") || rest.starts_with("[*]")) {
    all = true;
    rest.remove_prefix(3);
  }
  if (name.empty() && (rest == "@" || rest == "*")) {
    return;
  }
  const bool positional = !name.empty() && !is_name_start(name.front());
  const auto found = variables_.find(name);
  const bool colon = rest.starts_with(':');
  const std::string_view operation = colon ? rest.substr(1) : rest;
  const bool set = found != variables_.end() &&
                   !(colon && found->second.size() == 1 && found->second.front().empty());
  const bool chooses = !operation.empty() &&
                       std::string_view("-=+").find(operation.front()) != std::string_view::npos;
  if (name.empty() || (!rest.empty() && !chooses)) {
    fields.literal(mark(fmt::format("${{{}}} is not followed", printable(body, 40))));
    return;
  }
  if (!chooses || (set && operation.front() != '+')) {
    if (positional) {
      fields.literal(mark(fmt::format("${} is known only when it runs", name)));
    } else {
      expand_variable(name, all, fields, quoted);
    }
    return;
  }
  if (set == (operation.front() == '+')) {
    if (++depth_ > kMaxDepth) {
      cursor.fail("expansions nested too deeply");
    }
    Cursor fallback{operation.substr(1), cursor.where, 0, cursor.line};
    Values values;
    Fields collected(values, expanded_, false, cursor);
    collected.begin();
    read_text(fallback, collected, quoted, true);
    collected.end_field();
    fields.value(values.front(), quoted);
    if (operation.front() == '=') {
      variables_[std::string(name)] = values;
    }
    --depth_;
  }
}

}  // namespace orrery::plan::shell
